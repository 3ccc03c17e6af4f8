"""A layer of routed experts, in the kernels of the engines."""

import numpy as np
from calibration_cases import SECONDS, Case, every_third, version_of

from hwdesign.catalogue.device import device as as_device
from hwdesign.catalogue.precision import recipe as as_recipe
from hwdesign.models.steps import Experts
from hwdesign.timing import kernels
from hwdesign.timing.silicon import measurements, tables

OPERATIONS = ("moe", "moe_fused")
HELD_EP = (4, 16, 64, 256)
HIDDEN, WIDTH, TOP_K, EXPERTS = 7168, 2048, 8, 256  # the layer of DeepSeek-R1 that the MoE tables hold

MOE = SECONDS | {
    "bandwidth": (0.8, 0.1, 1),
    "rate": (0.5, 0.02, 1),
    "pairs": (0.4, 0.01, 1),
    "tokens": (0.5, 0.01, 2),
    "local": (3e-7, 1e-10, 1e-5),
    "touched": (3e-7, 1e-10, 1e-5),
}
FUSED = {name: MOE[name] for name in ("fixed", "bandwidth", "rate", "touched")} | {"pairs": (0.7, 0.01, 5)}


def experts_case(operation, precision, device, rows, layer, **what):
    """A layer of routed experts: `layer` holds the arguments of `Experts` that follow the rows."""
    card, recipe = as_device(device), as_recipe(precision)
    sizes, peak = recipe.operand_bytes, card.peak_flops(recipe.math)

    def predict(c, rows=slice(None)):
        part = Experts(**{name: np.broadcast_to(values, len(seconds))[rows] for name, values in layer.items()}, hidden=HIDDEN)
        return kernels.expert_seconds(part, sizes["b"], sizes["a"], card, peak, c)

    seconds, (framework, version) = rows["seconds"].astype(float), version_of(operation, device)
    named = {"operation": operation, "device": device, "precision": precision, "framework": framework, "version": version}
    return Case(**named, seconds=seconds, predict=predict, shape=rows, **what)


def moe_case(device, precision):
    """Routed experts of DeepSeek-R1's layer, balanced routing; the EP widths 4, 16, 64 and 256 are held out whole."""
    rows = measurements("moe", device, precision=precision, routing="balanced")
    tokens, ep = rows["tokens"], rows["ep"]
    layer = {
        "tokens": tokens,
        "pairs": np.maximum(TOP_K * tokens / ep, 1),
        "touched": np.maximum(np.minimum(EXPERTS, TOP_K * tokens) / ep, 1),  # round-robin: none twice before all had one
        "local": EXPERTS / ep,
        "width": WIDTH / rows["tp"],
    }
    subsets = {"tp 1": rows["tp"] == 1, "all": np.ones(len(ep), bool)}
    return experts_case("moe", precision, device, rows, layer, bounds=MOE, held=np.isin(ep, HELD_EP), subsets=subsets)


def fused_case(device, precision):
    """The same layer in SGLang's fused kernels, all experts on one rank; every third token count is held out.

    These rows beat the memory's floor if all experts are read that round-robin routing would touch. They read as if a token took
    four new experts each time, out of half of them (the model's router limits a token to half of its groups): that is inferred.
    """
    rows = measurements("moe_fused", device, precision=precision, run=0)
    tokens = rows["tokens"]
    layer = {
        "tokens": tokens,
        "pairs": TOP_K * tokens,
        "touched": np.minimum(EXPERTS / 2, 4 * tokens + 4),
        "local": EXPERTS,
        "width": WIDTH / rows["tp"],
    }
    subsets = {"all": np.ones(len(tokens), bool)}
    return experts_case("moe_fused", precision, device, rows, layer, bounds=FUSED, held=every_third(tokens), subsets=subsets)


def cases(source):
    """Every case, one after the other."""
    for row in tables():
        for operation, case in (("moe", moe_case), ("moe_fused", fused_case)):
            if row["operation"] == operation:
                for precision in np.unique(measurements(operation, row["device"])["precision"]):
                    yield case(row["device"], str(precision))
