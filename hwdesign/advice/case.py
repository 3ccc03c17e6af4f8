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

from hwdesign._check import choice, instance, listed, shown, whole
from hwdesign.advice.safe import visible
from hwdesign.catalogue.device import Device
from hwdesign.catalogue.device import device as as_device
from hwdesign.catalogue.precision import Recipe
from hwdesign.catalogue.precision import recipe as as_recipe
from hwdesign.models import config
from hwdesign.models.model import PARTS, Model
from hwdesign.models.steps import Plan, same_gpus, step
from hwdesign.timing.estimate import decode_step, decode_steps
from hwdesign.timing.layouts import layouts

WAYS = ("tp", "kvp", "dp", "ep", "pp")


def as_model(source):
    """A model from whatever names one.

    Parameters
    ----------
    source : Model, str, path or dict
        The model itself, the name of a shipped config, the path of a config.json, or the parsed
        config.

    Returns
    -------
    Model
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
    try:  # no link is followed: in a cache of the hub it leads to a file without a name
        return Model.from_config(
            os.path.abspath(source) if Path(source).stem == "config" else source
        )
    except FileNotFoundError:
        said = Path(source).name.removesuffix(".json").lower()
        near = difflib.get_close_matches(said, config.names(), n=1)
        hint = f"did you mean {near[0]!r}?" if near else "hwdesign show --help lists the names"
        what = f"there is no file '{visible(str(source), 200)}'"
        raise ValueError(
            f"model must be the path of a config.json or a shipped name: {what}; {hint}"
        ) from None


def config_path(source):
    """Where a config lies.

    Parameters
    ----------
    source : str or path
        As `as_model` takes it.

    Returns
    -------
    Path
        Of the file in the package where it is the name of a shipped config.

    Examples
    --------
    >>> config_path("gpt2").name, config_path("models/x/config.json").name
    ('gpt2.json', 'config.json')
    """
    shipped = resources.files("hwdesign.models").joinpath("configs", f"{source}.json")
    return Path(str(shipped)) if source in config.names() else Path(source)


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
        Formats; by default those of the checkpoint, else BF16.
    attention, ffn : Plan, optional
        Plans of the two parts; by default one GPU.
    batch : int
        Sequences in flight over all GPUs.
    context : int
        Tokens that each new token sees [token]; also the length of the prompt that guideline 6
        looks at.

    Raises
    ------
    ValueError
        If a name is unknown, a number is out of range, the plans use different GPUs, or the device
        lacks the format or a link.

    Examples
    --------
    >>> case = Case(model="llama-3.1-8b", device="H100_SXM")
    >>> case.recipe.name, case.gpus, round(case.seconds * 1e3)
    ('bf16', 1, 30)
    """

    model: Model
    device: Device = "GB300"
    recipe: Recipe | None = None
    attention: Plan = field(default_factory=Plan)
    ffn: Plan = field(default_factory=Plan)
    batch: int = 64
    context: int = 8192  # [token]

    def __post_init__(self):
        batch, context = whole(batch=self.batch, context=self.context)
        model, plans = as_model(self.model), {"attention": self.attention, "ffn": self.ffn}
        for name, plan in plans.items():
            instance(name, plan, Plan | None, "a Plan, as in Plan(tp=8)")
        attention, ffn = (plan or Plan() for plan in plans.values())
        if attention.gpus != ffn.gpus:
            told = f"got {attention.gpus} and {ffn.gpus}: {plan_text(attention, ffn)}"
            raise ValueError(f"attention and ffn must use the same GPUs, {told}")
        same_gpus(attention, ffn)
        if attention.ep > 1 or attention.gather or ffn.kvp > 1:
            raise ValueError(
                "attention takes tp, kvp, dp, pp and ffn tp, ep, dp, pp, gather, got "
                f"{plan_text(attention, ffn)}"
            )
        values = {
            "model": model,
            "device": as_device(self.device),
            "recipe": as_recipe(
                (model.quantization or "bf16") if self.recipe is None else self.recipe
            ),
            "batch": batch,
            "context": context,
            "attention": attention,
            "ffn": ffn,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        if self.recipe.math.rate not in self.device.dense_peak:
            peaks = ", ".join(self.device.dense_peak)
            raise ValueError(
                f"recipe must multiply in a format of {self.device.name} ({peaks}), got "
                f"{self.recipe.name!r}"
            )
        if attention.pp > len(self.model.blocks):
            raise ValueError(
                f"pp must be <= the {len(self.model.blocks)} layers of {self.model.name}, got "
                f"{attention.pp}"
            )
        if self.gpus > 1 and not self.device.link_bandwidth:
            raise ValueError(
                f"device must have a link to share a model over {self.gpus} GPUs, got "
                f"{self.device.name} without one"
            )

    @property
    def gpus(self):
        """GPUs of both plans."""
        return self.attention.gpus

    @functools.cached_property
    def refusal(self):
        """Why the plans cannot run this model, in words; None if they can."""
        try:
            step(self.model, batch=1, context=1, attention=self.attention, ffn=self.ffn)
        except ValueError as error:
            return str(error)
        return None

    @functools.cached_property
    def breakdown(self):
        """Time of the decode step, None where the plans cannot run."""
        if self.refusal:
            return None
        load = {
            "batch": self.batch,
            "context": self.context,
            "attention": self.attention,
            "ffn": self.ffn,
        }
        return decode_step(self.model, self.device, self.recipe, **load)

    @property
    def seconds(self):
        """Time of the decode step [s], None where the plans cannot run."""
        return self.breakdown and float(self.breakdown.seconds)

    def gain(self, other):
        """Share of the step that another case saves [dimensionless]."""
        instance("other", other, Case, "a Case, as in Case(model='gpt2')")
        return 1 - other.seconds / self.seconds

    def layouts(self):
        """Pairs of plans over the same GPUs and stages, as a list."""
        stages = {"pp": self.attention.pp}
        return [
            (replace(a, **stages), replace(f, **stages))
            for a, f in layouts(self.model, self.gpus // self.attention.pp)
        ]

    def fastest(self, pairs):
        """This case under the fastest of these pairs of plans; None if none fits into memory,
        though its own plans do.
        """
        pairs = listed("pairs", pairs, tuple, "pairs of Plan")
        load = {"batch": self.batch, "context": self.context}
        steps = decode_steps(self.model, self.device, self.recipe, pairs, **load)
        fitted = self.breakdown.feasible if self.breakdown else any(s.feasible for s in steps)
        timed = [(float(s.seconds), i) for i, s in enumerate(steps) if s.feasible or not fitted]
        if not timed:
            return None
        attention, ffn = pairs[min(timed)[1]]
        return replace(self, attention=attention, ffn=ffn)

    def low(self, part):
        """Format of a part's weights."""
        choice("part", part, PARTS)
        return (
            self.recipe.weights
            if part in self.model.low_precision_parts(self.recipe)
            else as_recipe("bf16").weights
        )


def change(case, **changes):
    """A case with other values.

    Parameters
    ----------
    case : Case
        Where to start.
    **changes
        Fields of `Case` to replace.

    Returns
    -------
    Case or None
        The new case; None where its plans cannot run or do not fit into memory although those of
        `case` do.

    Examples
    --------
    >>> change(
    ...     Case(model=Model.from_config("llama-3.1-8b")), attention=Plan(tp=3), ffn=Plan(tp=3)
    ... ) is None
    True
    """
    plan, model = changes.get("attention", case.attention), changes.get("model", case.model)
    if plan.pp > len(model.blocks) or (new := replace(case, **changes)).refusal:
        return None
    fitted = case.breakdown is None or case.breakdown.feasible
    return None if fitted and not new.breakdown.feasible else new


def plan_text(attention, ffn):
    """Two plans as the command line takes them.

    Parameters
    ----------
    attention, ffn : Plan
        Plans of the two parts.

    Returns
    -------
    str
        Ways of 1 are left out, and so is what both parts share.

    Examples
    --------
    >>> (
    ...     plan_text(Plan(tp=8, kvp=4), Plan(ep=32)),
    ...     plan_text(Plan(), Plan()),
    ...     plan_text(Plan(tp=8, pp=4), Plan(tp=8, pp=4)),
    ... )
    ('--attention tp=8,kvp=4 --ffn ep=32', 'one GPU', '--attention tp=8 --ffn tp=8 --pp 4')
    """
    if attention.gpus == ffn.gpus == 1:
        return "one GPU"
    parts = []
    for name, plan in (("attention", attention), ("ffn", ffn)):
        ways = [
            f"{way}={getattr(plan, way)}" for way in WAYS if way != "pp" and getattr(plan, way) > 1
        ] or ["tp=1"]
        parts.append(f"--{name} {','.join([*ways, *(['gather'] if plan.gather else [])])}")
    return " ".join([*parts, *([f"--pp {attention.pp}"] if attention.pp > 1 else [])])


def parse_plan(name, text):
    """A plan from its text.

    Parameters
    ----------
    name : str
        Argument to name in an error.
    text : str
        Ways by name, ``"tp=8,kvp=4"``; "gather" stands alone.

    Returns
    -------
    Plan
        Ways that are not named are 1.

    Raises
    ------
    ValueError
        If a way is unknown, named twice or no whole number >= 1.

    Examples
    --------
    >>> parse_plan("ffn", "tp=2,ep=4").gpus
    8
    """
    found = {}
    for item in text.split(","):
        way, _, value = (x.strip() for x in item.partition("="))
        if way in found or way not in (*WAYS[:-1], "gather"):
            known = f"{', '.join(WAYS[:-1])} and gather"
            raise ValueError(
                f"{name} must be ways like tp=8,kvp=4 out of {known}, each once, got {text!r}"
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
    """Both plans from one number for each way.

    Parameters
    ----------
    tp, kvp, dp : int
        Ways of attention, whose product is the GPUs of a stage.
    ep : int
        Ways of the experts over the same GPUs; what is left of them splits each expert (tensor
        parallel).
    pp : int
        Pipeline stages.

    Returns
    -------
    tuple of Plan
        Attention and ffn; without experts spread, data-parallel groups are whole copies of the
        model.

    Raises
    ------
    ValueError
        If `ep` does not divide the GPUs of a stage.

    Notes
    -----
    Source: the options of vLLM and SGLang, which take the same GPUs for both parts.

    Examples
    --------
    >>> [p.gpus for p in short_plans(tp=8, ep=8)], short_plans(tp=8, ep=2)[1].tp
    ([8, 8], 4)
    """
    attention, (ep,) = Plan(tp=tp, kvp=kvp, dp=dp, pp=pp), whole(ep=ep)
    gpus = attention.gpus // attention.pp
    if gpus % ep:
        more, verb = ep // math.gcd(gpus, ep), "add" if gpus == 1 else "take"
        hint = f"{verb} --tp {attention.tp * more} or --dp {attention.dp * more}"
        raise ValueError(
            f"ep must divide the {gpus} GPU{'s' * (gpus > 1)} of tp x kvp x dp, got {ep}: {hint}"
        )
    return attention, Plan(tp=gpus // ep, ep=ep, pp=pp) if ep > 1 else Plan(
        tp=gpus // dp, dp=dp, pp=pp
    )
