"""What is judged: a model on a device, in formats, under plans, at a load; and the words for plans
and changes.
"""

import difflib
import functools
import math
import os
import re
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path

from hwdesign._check import count, every, instance, listed, shown, whole
from hwdesign.catalogue.device import Device
from hwdesign.catalogue.device import device as as_device
from hwdesign.catalogue.engine import Engine
from hwdesign.catalogue.engine import engine as as_engine
from hwdesign.catalogue.precision import Precision, Recipe
from hwdesign.models import config
from hwdesign.models.engine_plans import engine_plan_refusal
from hwdesign.models.latent import LatentAttention
from hwdesign.models.model import Model
from hwdesign.models.steps import Plan, plan_refusal, same_gpus
from hwdesign.safe import visible
from hwdesign.timing.estimate import ENGINE, decode_step, decode_steps
from hwdesign.timing.formats import engine_formats
from hwdesign.timing.intervals import interval_factors
from hwdesign.timing.layouts import layouts
from hwdesign.timing.serving import time_per_output_token

WAYS = ("tp", "kvp", "dp", "ep", "pp")


def as_model(source):
    """The model itself, or that of a shipped name, a folder, a config.json or a parsed config.

    One from a config.json bears the name of its folder, also of the current one.

    Raises
    ------
    ValueError
        If it is none of these, with the nearest shipped name, or the config is refused.

    Examples
    --------
    >>> as_model("gpt2").hidden_size
    768
    """
    if isinstance(source, Model):
        return source
    if not isinstance(source, str | os.PathLike | dict):
        raise ValueError(
            "model must be a Model, the path of a config.json or a shipped name, got "
            f"{visible(shown(source))}"
        )
    if isinstance(source, dict) or source in config.names():
        return Model.from_config(source)
    try:
        return Model.from_config(source)
    except FileNotFoundError:
        raise ValueError(_no_such_model(source)) from None


def _no_such_model(source):
    """What to say where there is no such file, with the shipped name that is nearest."""
    path = str(source) and str(config_path(source))  # an empty text is not the current folder
    name = Path(source).name.removesuffix(".json").lower()
    near = difflib.get_close_matches(name, config.names(), n=1)
    hint = f"did you mean {near[0]!r}?" if near else "hwdesign show --help lists the names"
    if fetch := config.fetch_command(source):
        hint = f"fetch a model of the Hugging Face hub with '{fetch}'; {hint}"
    return (
        "model must be a model's folder, the path of its config.json or a shipped name: there is "
        f"no file '{visible(path, 200)}'; {hint}"
    )


def config_path(source):
    """Where a config lies: in the package where it is the name of a shipped one, or in a folder.

    >>> config_path("gpt2").name, config_path("models/x/config.json").name
    ('gpt2.json', 'config.json')
    """
    if source in config.names():
        shipped = resources.files("hwdesign.models").joinpath("configs", f"{source}.json")
        return Path(str(shipped))
    path = Path(source)
    return path / "config.json" if os.path.isdir(path) else path


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model on a device: formats, plans of both parts over the same GPUs, and a decode load.

    Parameters
    ----------
    model : Model, str or path
        What is judged; also the name of a shipped config, or the path of a config.json.
    device : str or Device
        Accelerator.
    recipe : str or Recipe, optional
        Formats of the products; by default those of the checkpoint, else BF16. On a device without
        their math the weights stay as they are stored and are multiplied in BF16.
    cache : str or Precision, optional
        Format of the cache; by default what the checkpoint names, else what the engine does.
    engine : str or Engine
        Whose defaults are taken: the cache's format, what is kept of the memory.
    attention, ffn : Plan, optional
        Plans of the two parts; by default one GPU.
    batch : int
        Sequences in flight over all GPUs.
    context : int
        Tokens that each new token sees [token].
    prompt : int, optional
        Length of a prompt [token]; by default `context`.
    answer : int, optional
        Length of an answer [token]: with it `token_seconds` is known.
    split : sequence of int, optional
        Layers of each pipeline stage [layer]; by default equally many, as the engine counts them.

    Raises
    ------
    ValueError
        If a name is unknown, a number is out of range, the plans use different GPUs, the device
        lacks a link or any kernel for the format, or the split does not hold every layer once.

    Examples
    --------
    >>> case = Case(model="llama-3.1-8b", device="H100_SXM")
    >>> case.recipe.name, case.gpus, round(case.seconds * 1e3)
    ('bf16', 1, 30)
    """

    model: Model
    device: Device = "GB300"
    recipe: Recipe | None = None
    cache: Precision | None = None
    engine: Engine = ENGINE
    attention: Plan = field(default_factory=Plan)
    ffn: Plan = field(default_factory=Plan)
    batch: int = 64
    context: int = 8192  # [token]
    prompt: int | None = None  # [token]
    answer: int | None = None  # [token]
    split: tuple | None = None  # [layer]

    def __post_init__(self):
        batch, context = whole(batch=self.batch, context=self.context)
        (prompt,) = whole(prompt=context if self.prompt is None else self.prompt)
        if self.answer is not None:
            (answer,) = whole(answer=self.answer)
            object.__setattr__(self, "answer", answer)
        model, device, engine = as_model(self.model), as_device(self.device), as_engine(self.engine)
        attention, ffn = _plans(self.attention, self.ffn)
        formats = engine_formats(model, device, engine, recipe=self.recipe, cache=self.cache)
        values = {
            "model": model,
            "device": device,
            "engine": engine,
            "recipe": formats.recipe,
            "cache": formats.recipe.kv_cache,
            "batch": batch,
            "context": context,
            "prompt": prompt,
            "attention": attention,
            "ffn": ffn,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        self._refuse_what_cannot_be()

    def _refuse_what_cannot_be(self):
        if "bf16" not in self.device.dense_peak:
            raise ValueError(
                "device must multiply BF16, which head and router take in every recipe, got "
                f"{self.device.name} ({', '.join(self.device.dense_peak)})"
            )
        device, stages, layers = self.device, self.attention.pp, len(self.model.blocks)
        if stages > layers:
            raise ValueError(
                f"pp must be <= the {layers} layers of {self.model.name}, got {stages}"
            )
        if self.gpus > 1 and not device.link_bandwidth:
            raise ValueError(
                f"device must have a link to share a model over {self.gpus} GPUs, got "
                f"{device.name} without one"
            )
        if self.split is not None:
            split = every("split", self.split, count)
            if len(split) != stages or sum(split) != layers:
                raise ValueError(f"split must be {stages} numbers of sum {layers}, got {split}")
            object.__setattr__(self, "split", split)

    @property
    def gpus(self):
        """GPUs of both plans."""
        return self.attention.gpus

    @functools.cached_property
    def refusal(self):
        """The `PlanError` that says why the plans cannot run this model; None if they can."""
        return plan_refusal(self.model, self.attention, self.ffn)

    @functools.cached_property
    def engine_refusal(self):
        """Why the engine does not run these plans, in words; None where it does. What it says of
        shapes is guideline 2's and 5's.
        """
        return engine_plan_refusal(self.engine, self.model, self.attention, self.ffn)

    @property
    def cache_option(self):
        """What makes latent attention of this engine on this device read a cache of 8 bits with the
        kernel that is timed; empty where that needs nothing.
        """
        latent = any(isinstance(b.mixer, LatentAttention) for b in self.model.block_counts)
        asks = self.device.name in self.engine.latent_fp8_devices
        return self.engine.latent_fp8_option if latent and asks and self.cache.bits == 8 else ""

    @functools.cached_property
    def breakdown(self):
        """Time of the decode step, None where the plans cannot run."""
        if self.refusal:
            return None
        return decode_step(
            self.model,
            self.device,
            self.recipe,
            batch=self.batch,
            context=self.context,
            attention=self.attention,
            ffn=self.ffn,
            engine=self.engine,
        )

    @functools.cached_property
    def token_seconds(self):
        """Time per output token on a server that also prefills [s]; None where the plans cannot
        run or the length of an answer is not known.
        """
        if self.refusal or self.answer is None:
            return None
        seconds = time_per_output_token(
            self.model,
            self.device,
            self.recipe,
            concurrency=self.batch,
            input_tokens=self.prompt,
            output_tokens=self.answer,
            attention=self.attention,
            ffn=self.ffn,
            engine=self.engine,
        )
        return float(seconds)

    @property
    def token_interval(self):
        """Where the middle 80 % of served points lay around such a `token_seconds`, as
        (least, most) [s]; None where that is not known.
        """
        if self.token_seconds is None:
            return None
        return tuple(self.token_seconds * factor for factor in interval_factors())

    @property
    def seconds(self):
        """Time of the decode step [s], None where the plans cannot run."""
        if self.breakdown is None:
            return None
        return float(self.breakdown.seconds)

    def gain(self, other):
        """Share of the step that another case saves [dimensionless]."""
        instance("other", other, Case, "a Case, as in Case(model='gpt2')")
        return 1 - other.seconds / self.seconds

    def layouts(self):
        """Pairs of plans over the same GPUs and stages, as a list."""
        return list(self._layouts)

    @functools.cached_property
    def _layouts(self):
        stages = self.attention.pp
        pairs = layouts(self.model, self.gpus // stages)
        if stages == 1:
            return pairs
        return [(replace(a, pp=stages), replace(ffn, pp=stages)) for a, ffn in pairs]

    def copies(self):
        """Pairs of plans over the same GPUs and stages that are two or more whole copies of the
        model, as a list.
        """
        stages = self.attention.pp
        gpus = self.gpus // stages
        found = []
        for copies in (n for n in range(2, gpus + 1) if gpus % n == 0):
            for attention, ffn in layouts(self.model, gpus // copies):
                ways = {"pp": stages, "dp": attention.dp * copies}
                found.append((replace(attention, **ways), replace(ffn, pp=stages, dp=copies)))
        return found

    def ranked(self, pairs):
        """This case under those of these pairs of plans that fit into memory, one by one, the
        fastest first; under all of them if none fits and its own plans do not either.
        """
        pairs = listed("pairs", pairs, tuple, "pairs of Plan")
        load = {"batch": self.batch, "context": self.context, "engine": self.engine}
        steps = decode_steps(self.model, self.device, self.recipe, pairs, **load)
        if self.breakdown is None:
            must_fit = any(timed.feasible for timed in steps)
        else:
            must_fit = self.breakdown.feasible
        order = sorted(range(len(pairs)), key=lambda place: steps[place].seconds)
        for place in order:
            if steps[place].feasible or not must_fit:
                attention, ffn = pairs[place]
                case = replace(self, attention=attention, ffn=ffn)
                vars(case).update(refusal=None, breakdown=steps[place])  # known already
                yield case

    def low(self, part):
        """Format of a part's weights; of most of them where the checkpoint mixes formats."""
        return self.model.part_formats(part, self.recipe)[0][0].weights


def _plans(attention, ffn):
    """Both plans of a case, one GPU where there is none; refuses pairs that cannot be."""
    for name, plan in (("attention", attention), ("ffn", ffn)):
        instance(name, plan, Plan | None, "a Plan, as in Plan(tp=8)")
    attention, ffn = attention or Plan(), ffn or Plan()
    if attention.gpus != ffn.gpus:
        raise ValueError(
            f"attention and ffn must use the same GPUs, got {attention.gpus} and {ffn.gpus}: "
            f"{plan_text(attention, ffn)}"
        )
    same_gpus(attention, ffn)
    if attention.ep > 1 or attention.gather or ffn.kvp > 1:
        raise ValueError(
            "attention takes tp, kvp, dp, pp and ffn tp, ep, dp, pp, gather, got "
            f"{plan_text(attention, ffn)}"
        )
    return attention, ffn


def change(case, **changes):
    """A case with other values; None where its plans cannot run, or do not fit into memory although
    those of `case` do.

    >>> case = Case(model=Model.from_config("llama-3.1-8b"))
    >>> change(case, attention=Plan(tp=3), ffn=Plan(tp=3)) is None
    True
    """
    plan = changes.get("attention", case.attention)
    model = changes.get("model", case.model)
    if plan.pp > len(model.blocks):
        return None
    new = replace(case, **({"split": None} | changes if "model" in changes else changes))
    if new.refusal:
        return None
    fits_before = case.breakdown is None or case.breakdown.feasible
    if fits_before and not new.breakdown.feasible:
        return None
    return new


def ways_text(plan):
    """The ways of one plan as the command line takes them; stages apart, and those of 1.

    >>> ways_text(Plan(tp=8, kvp=4, pp=2)), ways_text(Plan(pp=2))
    ('tp=8,kvp=4', 'tp=1')
    """
    words = []
    for way in WAYS:
        ways = getattr(plan, way)
        if way != "pp" and ways > 1:
            words.append(f"{way}={ways}")
    if not words:
        words.append("tp=1")
    if plan.gather:
        words.append("gather")
    return ",".join(words)


def plan_text(attention, ffn):
    """Two plans as the command line takes them.

    >>> plan_text(Plan(tp=8, kvp=4), Plan(ep=32)), plan_text(Plan(), Plan())
    ('--attention tp=8,kvp=4 --ffn ep=32', 'one GPU')
    >>> plan_text(Plan(tp=8, pp=4), Plan(tp=8, pp=4))
    '--attention tp=8 --ffn tp=8 --pp 4'
    """
    if attention.gpus == ffn.gpus == 1:
        return "one GPU"
    text = f"--attention {ways_text(attention)} --ffn {ways_text(ffn)}"
    if attention.pp > 1:
        text += f" --pp {attention.pp}"
    return text


def parse_plan(name, text):
    """A plan from its ways, ``"tp=8,kvp=4"``; "gather" stands alone, and an error names `name`.

    >>> parse_plan("ffn", "tp=2,ep=4").gpus
    8
    """
    known = WAYS[:-1]
    found = {}
    for item in text.split(","):
        way, _, value = item.partition("=")
        way, value = way.strip(), value.strip()
        if way in found or way not in (*known, "gather"):
            raise ValueError(
                f"{name} must be ways like tp=8,kvp=4 out of {', '.join(known)} and gather, "
                f"each once, got {text!r}"
            )
        if way == "gather" and not value:
            found[way] = True
        elif way != "gather" and re.fullmatch("[1-9][0-9]{0,4}", value):
            found[way] = int(value)
        else:
            raise ValueError(
                f"{name} must give whole numbers from 1 to 99999, as in tp=8, got {item.strip()!r}"
            )
    return Plan(**found)


def short_plans(*, tp=1, kvp=1, dp=1, ep=1, pp=1):
    """Both plans from one number for each way, as the options of vLLM and SGLang.

    The product of tp, kvp and dp is the GPUs of a stage. Experts are spread over `ep` of them, and
    what is left of them splits each expert (tensor parallel); without experts spread, data-parallel
    groups are whole copies of the model.

    Raises
    ------
    ValueError
        If `ep` does not divide the GPUs of a stage.

    Examples
    --------
    >>> [p.gpus for p in short_plans(tp=8, ep=8)], short_plans(tp=8, ep=2)[1].tp
    ([8, 8], 4)
    """
    attention = Plan(tp=tp, kvp=kvp, dp=dp, pp=pp)
    (ep,) = whole(ep=ep)
    gpus = attention.gpus // attention.pp
    if gpus % ep:
        raise ValueError(_ep_does_not_divide(attention, gpus, ep))
    if ep > 1:
        return attention, Plan(tp=gpus // ep, ep=ep, pp=pp)
    return attention, Plan(tp=gpus // dp, dp=dp, pp=pp)


def _ep_does_not_divide(attention, gpus, ep):
    more = ep // math.gcd(gpus, ep)
    verb, noun = ("add", "GPU") if gpus == 1 else ("take", "GPUs")
    return (
        f"ep must divide the {gpus} {noun} of tp x kvp x dp, got {ep}: "
        f"{verb} --tp {attention.tp * more} or --dp {attention.dp * more}"
    )
