"""Which formats an engine runs a model in: those of its products and that of its cache, each with
where it comes from. One rule, shared by the checker and the published serving points.
"""

from dataclasses import dataclass, replace

from hwdesign._check import choice, instance
from hwdesign.catalogue.device import device as as_device
from hwdesign.catalogue.engine import engine as as_engine
from hwdesign.catalogue.precision import RECIPES, Recipe, multiplied, named_precision
from hwdesign.catalogue.precision import precision as as_precision
from hwdesign.catalogue.precision import recipe as as_recipe
from hwdesign.models.model import need_model

NOT_KNOWN = "what the checkpoint stores is not known from its config"
ORIGINS = ("option", "checkpoint", "engine", "default")


@dataclass(frozen=True, kw_only=True)
class Formats:
    """Formats of a model on a device in an engine.

    Parameters
    ----------
    recipe : Recipe
        Formats of the products, as the device multiplies them, and of the cache.
    stored : str
        Name of the recipe that the weights are stored in.
    recipe_from, cache_from : str
        "option", "checkpoint", "engine" or "default".

    Examples
    --------
    >>> from hwdesign.models import config
    >>> found = engine_formats(config.load("gpt-oss-120b"), "H200", "vllm")
    >>> found.recipe.name, found.recipe_from, found.recipe.kv_cache.name, found.cache_from
    ('mxfp4_w4a16', 'checkpoint', 'bf16', 'engine')
    """

    recipe: Recipe
    stored: str
    recipe_from: str
    cache_from: str

    def __post_init__(self):
        instance("recipe", self.recipe, Recipe, "a Recipe, as recipe('fp8')")
        for name in ("recipe_from", "cache_from"):
            choice(name, getattr(self, name), ORIGINS)


def engine_formats(model, device, engine, *, recipe=None, cache=None):
    """Formats in which an engine runs a model on a device.

    Parameters
    ----------
    model : Model
        What is served; its checkpoint may name both formats.
    device : str or Device
        Accelerator; where it lacks the math, weights stay stored and are multiplied in BF16.
    engine : str or Engine
        Whose defaults are taken.
    recipe : str or Recipe, optional
        Formats of the products; by default the checkpoint's, else BF16. The cache of a recipe is
        not looked at.
    cache : str or Precision, optional
        Format of the cache; by default the checkpoint's own setting if it names one and its recipe
        is used; else what the engine does: FP8 in TensorRT-LLM with FP8 or NVFP4 weights, block
        FP8 excepted; else BF16.

    Returns
    -------
    Formats
        Element sizes in [byte].

    Raises
    ------
    ValueError
        If a name is unknown, neither the device nor a kernel for stored weights runs the recipe, or
        without a recipe the engine does not load the checkpoint or nobody knows what it stores.

    Notes
    -----
    Source: `hwdesign/catalogue/engines.csv`.

    Examples
    --------
    >>> from hwdesign.models import config
    >>> r1 = config.load("deepseek-r1")
    >>> engine_formats(r1, "H200", "sglang").recipe.kv_cache.name
    'bf16'
    >>> engine_formats(r1, "B200", "trtllm", recipe="nvfp4").recipe.kv_cache.name
    'fp8'
    """
    device, engine = as_device(device), as_engine(engine)
    own = need_model(model).quantization
    if recipe is not None:
        stored, recipe_from = as_recipe(recipe), "option"
    elif model.bytes_unknown:
        raise ValueError(f"recipe must be given, since {NOT_KNOWN}: {model.bytes_unknown}")
    elif own:
        if refused := engine.does_not_load(model.quant_method, own):
            raise ValueError(f"recipe must be given, that of the checkpoint to serve: {refused}")
        stored, recipe_from = as_recipe(own), "checkpoint"
    else:
        stored, recipe_from = RECIPES["bf16"], "default"
    if cache is not None:
        form, cache_from = named_precision("cache", cache), "option"
    elif model.kv_cache and stored.name == own:
        form, cache_from = as_precision(model.kv_cache), "checkpoint"
    else:
        form, cache_from = engine.default_cache(stored.name), "engine"
    run = stored
    if stored.name == "mxfp4" and stored.math.rate in device.dense_peak:
        run = RECIPES[engine.mxfp4]
    run = multiplied(replace(run, kv_cache=form), device.dense_peak)
    return Formats(recipe=run, stored=stored.name, recipe_from=recipe_from, cache_from=cache_from)
