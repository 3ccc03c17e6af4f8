"""Time of single operations: by the calibrated models of `hwdesign.timing`, or by the plain
bound.
"""

import functools

import numpy as np

from hwdesign._check import choice, flag
from hwdesign.catalogue.device import device as as_device
from hwdesign.catalogue.precision import BF16
from hwdesign.catalogue.precision import recipe as as_recipe
from hwdesign.formulas import collectives, roofline
from hwdesign.models.steps import EXCHANGES
from hwdesign.timing import kernels
from hwdesign.timing.calibration import constants
from hwdesign.timing.gemm_kernel import gemm_kernel_seconds
from hwdesign.timing.silicon import PREFERENCE

MEASURED_RECIPES = ("bf16", "fp8", "fp8_block", "nvfp4")
EXPERT_KERNELS = {"grouped": "moe", "fused": "moe_fused"}  # and the constants of each
BY_RATE = {
    "bf16": "bf16",
    "fp16": "bf16",
    "fp8": "fp8",
    "fp4": "nvfp4",
}  # format whose constants another recipe takes


class Clock:
    """Times operations on one device under one recipe, and remembers whose constants it took and
    what it has timed.

    Parameters
    ----------
    device : str or Device
        Accelerator.
    recipe : str or Recipe
        Formats.
    ideal : bool
        Whether to return the plain bound.
    framework : str, optional
        Whose GEMM kernels; by default the first that was measured.

    Examples
    --------
    >>> from hwdesign.models.steps import Step
    >>> clock = Clock("GB300", "nvfp4")
    >>> bool(clock.small(Step(small_kernels=1)) > 1e-6), list(clock.notes)
    (True, [])
    """

    def __init__(self, device, recipe, ideal=False, framework=None):
        self.device, self.recipe, self.ideal, self.framework = (
            as_device(device),
            as_recipe(recipe),
            ideal,
            framework,
        )
        flag("ideal", ideal)
        if framework is not None:
            choice("framework", framework, PREFERENCE, normal=str.lower)
        self.notes, self.known, self.parts = {}, {}, {}

    def again(self):
        """A clock that remembers the same operations, for a step of another model or load."""
        other = Clock(self.device, self.recipe, self.ideal, self.framework)
        other.known = self.known
        return other

    def part(self, key, timed):
        """A part of a step that another layout may have had, too; a clock has one model and
        load.
        """
        if key not in self.parts:
            self.parts[key] = timed()
        return self.parts[key]

    def once(self, key, seconds):
        """Time of an operation that another step may have had, too."""
        if key not in self.known:
            self.known[key] = seconds()
        return self.known[key]

    def constants(self, operation, precision="", framework=None):
        """Fitted constants of an operation; a note where they are those of a stand-in."""
        key = ("constants", operation, precision, framework)
        found = self.once(key, lambda: constants(operation, self.device, precision, framework))
        if not found.measured:
            self.notes[
                f"{operation} takes the constants of "
                f"{' '.join(x for x in (found.device, found.precision) if x)}"
            ] = None
        return found

    def form(self, recipe):
        """Name of the measured format nearest to a recipe."""
        if recipe.name in MEASURED_RECIPES:
            return recipe.name
        near = choice("recipe", recipe.math.rate, BY_RATE)
        self.notes[f"recipe {recipe.name} takes the constants of {near}"] = None
        return near

    def bound(self, flops, nbytes, fmt):
        """The plain bound [s]."""
        return roofline.bound_time(
            flops,
            nbytes,
            peak_flops=self.device.peak_flops(fmt),
            bandwidth=self.device.memory_bandwidth,
        )

    def gemm(self, gemm, recipe):
        """Time of all runs of a GEMM [s]."""
        if self.ideal:
            return self.bound(gemm.flops, gemm.bytes(recipe), recipe.math)
        c = self.constants("gemm", self.form(recipe), self.framework)
        m, n, k = gemm.m, gemm.n, gemm.k
        return gemm.count * self.once(
            (recipe, *map(_key, (m, n, k))),
            lambda: gemm_kernel_seconds(m, n, k, self.device, recipe, c),
        )

    def attention(self, work):
        """Time of one run of scores and values [s]."""
        cache = self.recipe.kv_cache
        low = cache.bits <= 8 and cache.rate in self.device.dense_peak
        fmt = cache if low else BF16
        if self.ideal:
            return self.bound(work.flops, work.cache_elements * cache.bytes, fmt)
        decode = np.all(np.asarray(work.queries) == 1)
        kind = f"{'mla' if work.latent else 'attention'}_{'decode' if decode else 'prefill'}"
        c = self.constants(kind, "fp8" if low else "bf16")
        model = kernels.decode_attention_seconds if decode else kernels.prefill_attention_seconds
        key = (
            kind,
            work.heads,
            work.kv_heads,
            work.window,
            work.size,
            work.latent,
            work.pieces,
            *map(_key, (work.batch, work.context, work.queries, work.cache_elements)),
        )
        return self.once(
            key, lambda: model(work, cache.bytes, self.device, self.device.peak_flops(fmt), c)
        )

    def experts(self, experts, recipe, kernel=None):
        """The faster kernel, as an engine takes it, or the one that is named."""
        size, peak = recipe.operand_bytes, self.device.peak_flops(recipe.math)
        wanted = (
            EXPERT_KERNELS.values()
            if kernel is None
            else (choice("kernel", kernel, EXPERT_KERNELS),)
        )
        each = (self.constants(name, self.form(recipe)) for name in wanted)
        return functools.reduce(
            np.minimum,
            (
                kernels.expert_seconds(experts, size["b"], size["a"], self.device, peak, c)
                for c in each
            ),
        )

    def exchange(self, exchange, recipe):
        """Time of one exchange [s]."""
        kind, ranks = choice("kind", exchange.kind, EXCHANGES), exchange.ranks
        if not self.device.link_bandwidth:
            raise ValueError(
                f"device must have a link to share a model over {ranks} GPUs, got "
                f"{self.device.name} without one"
            )
        domain = self.device.link_domain
        if domain and ranks > domain:
            self.notes[
                f"{kind} over {ranks} GPUs is timed as if the link joined them; it joins {domain}"
            ] = None
        size = recipe.activations.bytes if kind == "dispatch" else BF16.bytes
        nbytes, link = exchange.elements * size, self.device.link_bandwidth
        if self.ideal:
            sent = {
                "all-reduce": collectives.all_reduce_bytes,
                "all-gather": collectives.all_gather_bytes,
                "reduce-scatter": collectives.all_gather_bytes,
            }
            return (sent[kind](nbytes, ranks) if kind in sent else nbytes) / link
        if kind in ("all-reduce", "all-gather", "reduce-scatter"):
            summed = kernels.all_reduce_seconds(nbytes, ranks, link, self.constants("all-reduce"))
            # an all-reduce contains both others, so an engine never waits longer for them
            return (
                summed
                if kind == "all-reduce"
                else np.minimum(summed, self.ring(nbytes, ranks, link))
            )
        if kind == "send":
            c = self.constants("ring")
            return collectives.transfer_time(nbytes, c["latency"], c["bandwidth"] * link)
        return kernels.all_to_all_seconds(nbytes, ranks, link, self.constants(kind))

    def ring(self, nbytes, ranks, link):
        """Time of a gather or scatter in a ring [s]."""
        return kernels.ring_seconds(nbytes, ranks, link, self.constants("ring"))

    def small(self, done):
        """Time of all small kernels of a step [s]."""
        if self.ideal:
            return 0.0
        floor = self.constants("small kernel")["fixed"] * done.small_kernels
        return floor + done.small_elements * BF16.bytes / self.device.memory_bandwidth


def _key(value):
    """A number or an array of them, as something that can be looked up."""
    array = np.asarray(value)
    return array.shape, array.tobytes()
