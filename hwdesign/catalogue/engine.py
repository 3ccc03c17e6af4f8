"""Inference engines as the data of `engines.csv`: what each does by default with memory, with the
format of the cache and with pipeline stages; one fact a row, each with its source and the date it
was read.

Status says how a fact is known: *code* (read in the engine's source), *documented* (said by its
makers), *checkpoints* (read in the files that they publish), *reported* (by a user), *estimate* (of
another tool). Nothing was run.
"""

import csv
import fnmatch
import functools
from dataclasses import dataclass
from importlib import resources

from hwdesign._check import check_fields, choice, listed, single
from hwdesign.catalogue.precision import BF16, FP8, RECIPES

TEXTS = ("label", "version", "mxfp4", "extra_layers", "cut_option", "latent_fp8_option")
LISTS = ("low_cache", "not_loaded", "latent_fp8_devices")
ALIASES = {"tensorrt-llm": "trtllm", "trt-llm": "trtllm", "tensorrt_llm": "trtllm"}


@dataclass(frozen=True, kw_only=True)
class Engine:
    """What an inference engine does where nobody tells it otherwise.

    Parameters
    ----------
    name, label, version : str
        As an argument, as it is printed, and the version whose source was read.
    memory_share : float
        Share of a device's memory that it uses [dimensionless].
    memory_fixed : tuple of (float, float)
        What it keeps of that besides weights and cache: contexts, graphs, buffers. Each is the
        capacity from which on it holds, ascending, and the amount [byte].
    cache_share : float
        Share of what is then free that it gives to the cache [dimensionless].
    low_cache : tuple of str
        Recipes with which it stores the cache in FP8 though the checkpoint names no format.
    not_loaded : tuple of str
        Checkpoints that it does not load: methods as a quantization config names them, or a method,
        a colon and a pattern of recipes, as in "gptq:w3*".
    mxfp4 : str
        Recipe in which it runs a checkpoint in MXFP4 where the device has the math.
    extra_layers : str
        Which pipeline stages take one layer more where it does not divide: "first", "middle" or
        "last", as `hwdesign.formulas.pipeline.stage_layers` takes it.
    cut_option : str
        What sets the layers of each stage by hand; empty where nothing does.
    latent_fp8_option : str
        What makes latent attention read an FP8 cache with a kernel of its own; empty where that
        needs nothing.
    latent_fp8_devices : tuple of str
        Devices on which it must be said.
    tables : str
        Label of the fitted constants that are its own; by default its name, those of its newest
        versions.

    Examples
    --------
    >>> engine("vllm").label, engine("TensorRT-LLM").default_cache("nvfp4").name
    ('vLLM', 'fp8')
    """

    name: str
    label: str
    version: str
    memory_share: float
    memory_fixed: tuple = ((0.0, 0.0),)  # [byte]
    cache_share: float = 1.0
    low_cache: tuple[str, ...] = ()
    not_loaded: tuple[str, ...] = ()
    mxfp4: str = "mxfp4"
    extra_layers: str = "first"
    cut_option: str = ""
    latent_fp8_option: str = ""
    latent_fp8_devices: tuple[str, ...] = ()
    tables: str = ""

    def __post_init__(self):
        check_fields(self, texts=("name", *TEXTS, "tables"))
        object.__setattr__(self, "tables", self.tables or self.name)
        choice("mxfp4", self.mxfp4, RECIPES)
        like = "(capacity, bytes), the first capacity 0"
        steps = listed("memory_fixed", self.memory_fixed, tuple, like)
        for step in steps:
            for amount in step:
                single("memory_fixed", amount)
        if not steps or steps[0][0] != 0 or any(len(step) != 2 for step in steps):
            raise ValueError(f"memory_fixed must be pairs of {like}, got {steps}")
        object.__setattr__(self, "memory_fixed", steps)
        for name in ("memory_share", "cache_share"):
            if not 0 < single(name, getattr(self, name)) <= 1:
                raise ValueError(f"{name} must be above 0 and at most 1, got {getattr(self, name)}")
        for name in LISTS:
            object.__setattr__(self, name, listed(name, getattr(self, name), str, "texts"))

    def default_cache(self, recipe_name):
        """Format of the cache with a recipe, where neither a user nor the checkpoint names one."""
        return FP8 if recipe_name in self.low_cache else BF16

    def does_not_load(self, method, recipe_name):
        """Why it does not load what a method wrote in a recipe, in words; None where it does.

        >>> engine("vllm").does_not_load("mlx", "w4a16_g64_zp16")
        'vLLM 0.33.0 loads no checkpoint of mlx in w4a16_g64_zp16'
        """
        for pattern in self.not_loaded:
            name, _, recipes = pattern.partition(":")
            if name == method and fnmatch.fnmatchcase(recipe_name, recipes or "*"):
                return f"{self.title} loads no checkpoint of {method} in {recipe_name}"
        return None

    def cache_room(self, capacity, held):
        """What it leaves to the cache on a device of this capacity [byte], beside weights and
        activations; negative where those alone are too large.
        """
        fixed = [kept for least, kept in self.memory_fixed if capacity >= least][-1]
        return self.cache_share * (self.memory_share * capacity - fixed - held)

    @property
    def title(self):
        """Label and version."""
        return f"{self.label} {self.version}"


@functools.cache
def rows():
    """All rows of `engines.csv`, as a tuple of dicts of column to text.

    >>> sorted({row["engine"] for row in rows()})
    ['sglang', 'trtllm', 'vllm']
    """
    text = resources.files("hwdesign.catalogue").joinpath("engines.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


@functools.cache
def _engines():
    found = {}
    for row in rows():
        fields, field, value = found.setdefault(row["engine"], {}), row["field"], row["value"]
        if field == "memory_fixed":
            step = (float(row["from_capacity"]), float(value))
            fields[field] = (*fields.get(field, ()), step)
        elif field in LISTS:
            fields[field] = tuple(value.split())
        else:
            fields[field] = value if field in TEXTS else float(value)
    return {name: Engine(name=name, **values) for name, values in found.items()}


def engine_names():
    """Names of the engines.

    Returns
    -------
    tuple of str
        Names, the default one first.

    Notes
    -----
    Source: `engines.csv`.

    Examples
    --------
    >>> engine_names()
    ('vllm', 'sglang', 'trtllm')
    """
    return tuple(_engines())


def engine(engine):
    """Engine by name; an `Engine` is returned as it is.

    Parameters
    ----------
    engine : str or Engine
        Name as in `engine_names()` or as its makers write it, upper or lower case.

    Returns
    -------
    Engine
        Its fields carry their units, as in [byte].

    Raises
    ------
    ValueError
        If the name is unknown; the message lists the known ones.

    Notes
    -----
    Source: `engines.csv`, one source per row.

    Examples
    --------
    >>> engine("vLLM").memory_share
    0.92
    """
    if isinstance(engine, Engine):
        return engine
    return choice("engine", engine, _engines(), normal=_key)


def _key(name):
    name = name.strip().lower()
    return ALIASES.get(name, name)
