"""Time of single operations: by the calibrated models of `hwdesign.timing`, or by the plain
bound.
"""

import functools
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from hwdesign._check import PLAIN, choice, flag
from hwdesign.catalogue.device import device as as_device
from hwdesign.catalogue.engine import Engine
from hwdesign.catalogue.precision import BF16, FP32
from hwdesign.catalogue.precision import recipe as as_recipe
from hwdesign.formulas import collectives, roofline
from hwdesign.models.steps import EXCHANGES
from hwdesign.timing import kernels, sparse_kernels, state_kernels
from hwdesign.timing.calibration import constants
from hwdesign.timing.gemm_kernel import gemm_kernel_seconds
from hwdesign.timing.silicon import PREFERENCE

MOST_KNOWN = 50_000  # times that are remembered
MEASURED_RECIPES = ("bf16", "fp8", "fp8_block", "nvfp4")
DEEPEP = ("low latency", "high throughput")  # its kernels for few and for many tokens
MOST_IN_A_HOST = 8  # GPUs
EXPERT_RECIPES = (*MEASURED_RECIPES, "mxfp4_w4a16", "mxfp4_w4a8")  # measured for experts
EXPERT_ENGINES = ("vllm", "sglang", "trtllm")  # whose experts were measured
EXPANDS = ("sglang",)  # in prefill: sees all tokens while there are no more than an indexer picks
STANDS_FOR = {"mamba2": "gdn"}  # kernels without a table, and whose streams its state as well
# On Blackwell TensorRT-LLM has a second backend of experts (moe_config.backend TRTLLM, asked for by
# its recipes for few tokens), whose kernels SGLang takes from FlashInfer: the faster one counts.
SAME_KERNELS, LOW_LATENCY = {"trtllm": "sglang"}, ("nvfp4", "fp8_block")
BY_RATE = {
    "bf16": "bf16",
    "fp16": "bf16",
    "fp8": "fp8",
    "int8": "fp8",
    "fp4": "nvfp4",
    "int4": "nvfp4",
}  # format whose constants another recipe takes
IDEAL_BYTES = {  # what a GPU sends at least; the rest sends its elements
    "all-reduce": collectives.all_reduce_bytes,
    "all-gather": collectives.all_gather_bytes,
    "reduce-scatter": collectives.all_gather_bytes,
}


class Timed(NamedTuple):
    """A time, and what must be said about it: whose constants stand in for constants of its own."""

    seconds: float  # [s]
    notes: tuple = ()


class Clock:
    """Times operations on one device under one recipe, and remembers what it has timed.

    Every method returns a `Timed`.

    Parameters
    ----------
    device : str or Device
        Accelerator.
    recipe : str or Recipe
        Formats.
    ideal : bool
        Whether to return the plain bound.
    framework : str, optional
        Whose GEMM kernels, which must have been measured; by default those of the engine.
    engine : str or Engine, optional
        Whose kernels are preferred; by default the first that was measured.

    Examples
    --------
    >>> from hwdesign.models.steps import Step
    >>> timed = Clock("GB300", "nvfp4").small(Step(small_kernels=1))
    >>> bool(timed.seconds > 1e-6), timed.notes
    (True, ())
    """

    def __init__(self, device, recipe, ideal=False, framework=None, engine=None):
        self.device, self.recipe = as_device(device), as_recipe(recipe)
        self.ideal, self.framework = flag("ideal", ideal), framework
        self.engine = engine.name if isinstance(engine, Engine) else engine
        self.tables = engine.tables if isinstance(engine, Engine) else engine
        if framework is not None:
            choice("framework", framework, PREFERENCE, normal=str.lower)
        self.known, self.gemms, self.most_known = {}, _gemms(self.device), MOST_KNOWN

    def once(self, key, seconds, known=None):
        """Time of an operation that another step may have had, too; `known` are times of more than
        this clock.
        """
        most = self.most_known if known is None else MOST_KNOWN
        known = self.known if known is None else known
        found = known.get(key)  # another thread may clear them at any time
        if found is None:
            found = seconds()
            if len(known) >= most:
                known.clear()
            known[key] = found
        return found

    def constants(self, operation, precision="", framework=None, otherwise=None):
        """(constants of an operation, notes): notes where they are a stand-in's or a run's;
        `otherwise` is whose are preferred where no engine was named.
        """
        key, engine = ("constants", operation, precision, framework), self.tables or otherwise
        found = self.once(
            key, lambda: constants(operation, self.device, precision, framework, engine=engine)
        )
        return found, found.notes

    def form(self, recipe):
        """(name of the measured format nearest to a recipe, notes)."""
        if recipe.name in MEASURED_RECIPES:
            return recipe.name, ()
        rate = recipe.math.rate
        if rate == "fp8":  # of FP4 weights on FP8 activations the FP4 kernels are the nearest
            rate = recipe.weights.rate if recipe.weights.rate in BY_RATE else rate
        near = choice("recipe", rate, BY_RATE)
        return near, (f"recipe {recipe.name} takes the constants of {near}",)

    def bound(self, flops, nbytes, fmt):
        """The plain bound [s]."""
        peak, bandwidth = self.device.peak_flops(fmt), self.device.memory_bandwidth
        return Timed(roofline.bound_time(flops, nbytes, peak_flops=peak, bandwidth=bandwidth))

    def gemm(self, gemm, recipe):
        """Time of all runs of a GEMM."""
        if self.ideal:
            return self.bound(gemm.flops, gemm.bytes(recipe), recipe.math)
        form, as_form = self.form(recipe)
        found, borrowed = self.constants("gemm", form, self.framework)
        sizes = gemm.m, gemm.n, gemm.k
        one = all(np.ndim(size) == 0 for size in sizes)
        seconds = self.once(
            (recipe, *found.values(), *map(_key, sizes)),
            lambda: _distinct(*sizes, self.device, recipe, found),
            self.gemms if one else None,  # arrays are not kept longer than the clock
        )
        return Timed(gemm.count * seconds, as_form + borrowed)

    def attention(self, work):
        """Time of one run of scores and values."""
        cache = self.recipe.kv_cache
        low = cache.bits <= 8 and cache.rate in self.device.dense_peak
        fmt = cache if low else BF16
        if not self.ideal and work.kernel:
            return self._sparse(work, cache.bytes, "fp8" if low else "bf16", fmt)
        if self.ideal or work.kind:
            bound = self.bound(work.flops, work.cache_elements * cache.bytes, fmt)
            return bound if self.ideal else Timed(bound.seconds, _no_table(work.kind))
        decode = np.all(np.asarray(work.queries) == 1)
        kind = f"{'mla' if work.latent else 'attention'}_{'decode' if decode else 'prefill'}"
        found, notes = self.constants(kind, "fp8" if low else "bf16")
        model = kernels.decode_attention_seconds if decode else kernels.prefill_attention_seconds
        shape = (work.window, work.latent, work.pieces)
        sizes = (work.heads, work.kv_heads, work.size, work.batch, work.context, work.queries)
        sizes = (*sizes, work.cache_elements)
        peak = self.device.peak_flops(fmt)
        seconds = self.once(
            (kind, *shape, *map(_key, sizes)),
            lambda: model(work, cache.bytes, self.device, peak, found),
        )
        return Timed(seconds, notes)

    def fitted(self, kernel, queries, precision=""):
        """(whether a kernel decodes, constants, notes): notes also where they are those of another
        kernel, or of an engine that was not asked for.
        """
        decodes = bool(np.all(np.asarray(queries) == 1))
        like = STANDS_FOR.get(kernel, kernel)
        operation = like if like == "mhc" else f"{like}_{'decode' if decodes else 'prefill'}"
        found, notes = self.constants(operation, precision)
        if like != kernel:
            notes += (f"{kernel} has no table of its own: it takes the constants of {operation}",)
        if self.engine and found.framework != self.engine:
            notes += (f"{operation} takes the constants of {found.framework}",)
        return decodes, found, notes

    def _sparse(self, work, element_bytes, precision, fmt):
        """Time of one run of attention over some of the keys, or of its indexer."""
        kernel, _, index = work.kernel.partition(" ")
        if kernel == "inside":
            return Timed(0.0)
        decodes, found, notes = self.fitted(kernel, work.queries, precision)
        if index:
            model = sparse_kernels.index_decode_seconds
            model = model if decodes else sparse_kernels.index_prefill_seconds
            seconds = model(work, self.device, found)
        else:
            model = sparse_kernels.sparse_decode_seconds
            model = model if decodes else sparse_kernels.sparse_prefill_seconds
            peak = self.device.peak_flops(fmt)
            seconds = model(work, element_bytes, self.device, peak, found)
        if decodes or kernel != "dsa" or found.framework not in EXPANDS:
            return Timed(seconds, notes)
        few, whole = work.context <= work.top, Timed(0.0)
        if np.any(few) and not index:
            whole = self.attention(replace(work, kernel="", kind="", window=None))
        return Timed(np.where(few, whole.seconds, seconds)[()], notes + whole.notes)

    def scan(self, scan):
        """Time of one run of a recurrence over a state in FP32, with its convolution; the plain
        bound where no kernel of the kind was fitted.
        """
        if self.ideal or not scan.kernel:
            moved = scan.state * FP32.bytes / self.device.memory_bandwidth
            seconds = np.maximum(moved, scan.flops / self.device.peak_flops(BF16))
            silent = self.ideal or not scan.kind
            return Timed(seconds, () if silent else _no_table(scan.kind))
        if scan.kernel == "mhc":
            _, found, notes = self.fitted(scan.kernel, scan.queries)
            return Timed(state_kernels.mixing_seconds(scan, self.device, found), notes)
        decodes, found, notes = self.fitted(scan.kernel, scan.queries, "fp32")
        model = state_kernels.state_decode_seconds
        model = model if decodes else state_kernels.state_prefill_seconds
        return Timed(model(scan, FP32.bytes, self.device, found), notes)

    def expert_form(self, recipe):
        """(recipe that the engine's kernel runs, name of its constants, notes)."""
        name, four = recipe.name, recipe.weights.bits <= 4 and recipe.weight_only
        if name == "mxfp4":  # no engine multiplies MXFP4 by itself: the inputs are MXFP8 or BF16
            name = "mxfp4_w4a16" if self.engine == "vllm" else "mxfp4_w4a8"
            return as_recipe(name), name, ()
        if (self.engine, name) == ("sglang", "fp8"):  # its kernel is that of blocks
            return recipe, "fp8_block", ("recipe fp8 takes the constants of fp8_block",)
        if name in EXPERT_RECIPES:
            return recipe, name, ()
        if four:
            near = "mxfp4_w4a16" if recipe.weights.rate == "fp4" else "w4a16"
            known = name.startswith("w4a16")
            return recipe, near, () if known else (f"recipe {name} takes the constants of {near}",)
        form, notes = self.form(recipe)
        return recipe, form, notes

    def experts(self, experts, recipe):
        """Time of a layer of routed experts in the kernels of the engine."""
        run, form, as_form = self.expert_form(recipe)
        found, borrowed = self.constants("moe", form)
        size, peak = run.operand_bytes, self.device.peak_flops(run.math)
        seconds = kernels.expert_seconds(experts, size["b"], size["a"], self.device, peak, found)
        other = SAME_KERNELS.get(self.engine)
        if other and form in LOW_LATENCY and "fp4" in self.device.dense_peak:
            found = constants("moe", self.device, form, engine=other)
            also = kernels.expert_seconds(experts, size["b"], size["a"], self.device, peak, found)
            seconds = np.minimum(seconds, also)
        return Timed(seconds, as_form + borrowed)

    def exchange(self, exchange, recipe):
        """Time of one exchange."""
        kind, ranks = choice("kind", exchange.kind, EXCHANGES), exchange.ranks
        link, domain = self.device.link_bandwidth, self.device.link_domain
        if not link:
            raise ValueError(
                f"device must have a link to share a model over {ranks} GPUs, got "
                f"{self.device.name} without one"
            )
        size = recipe.activations.bytes if kind == "dispatch" else BF16.bytes
        nbytes, notes = exchange.elements * size, ()
        if domain and ranks > domain:
            joined = f"as if the link joined them; it joins {domain}"
            notes = (f"{kind} over {ranks} GPUs is timed {joined}",)
        if self.ideal:
            sent = IDEAL_BYTES[kind](nbytes, ranks) if kind in IDEAL_BYTES else nbytes
            return Timed(sent / link, notes)
        key = ("exchange", kind, _key(nbytes), ranks)
        timed = self.once(key, lambda: self._exchange(kind, nbytes, ranks, link))
        return Timed(timed.seconds, notes + timed.notes)

    def _exchange(self, kind, nbytes, ranks, link):
        if kind in IDEAL_BYTES:
            found, notes = self.constants("all-reduce", otherwise="trtllm")
            summed = kernels.all_reduce_seconds(nbytes, ranks, link, found)
            if kind == "all-reduce":
                return Timed(summed, notes)
            # an all-reduce contains both others, so an engine never waits longer for them
            ring, borrowed = self.constants("ring")
            alone = kernels.ring_seconds(nbytes, ranks, link, ring)
            return Timed(np.minimum(summed, alone), notes + borrowed)
        if kind == "send":
            found, notes = self.constants("ring")
            rate, fill = found["bandwidth"] * link, found.get("fill", 0)
            return Timed(kernels.pipelined_seconds(nbytes, found["latency"], rate, fill), notes)
        least, notes = np.inf, ()
        for name in self._all_to_alls(kind):
            found, borrowed = self.constants(name)
            seconds = kernels.all_to_all_seconds(nbytes, ranks, link, found)
            least, notes = np.minimum(least, seconds), notes + borrowed
        return Timed(least, notes)

    def _all_to_alls(self, kind):
        """Kernels of a dispatch or combine, of which the faster counts: DeepEP's for few and for
        many tokens in the engines that take it, else the one whose table spans a rack.
        """
        rack = (self.device.link_domain or 0) > MOST_IN_A_HOST
        deepep = self.engine == "sglang" or (self.engine == "vllm" and not rack)
        return [f"{kind} {name}" for name in DEEPEP] if deepep else [kind]

    def small(self, done):
        """Time of all small kernels of a step."""
        if self.ideal:
            return Timed(0.0)
        found, notes = self.constants("small kernel")
        moved = done.small_elements * BF16.bytes
        return Timed(kernels.small_seconds(done.small_kernels, moved, self.device, found), notes)


def _distinct(m, n, k, *how):
    """Time of GEMMs in rows of one N and K each; a pair that several rows have is timed once."""
    columns = [shape for shape in (np.shape(n), np.shape(k)) if len(shape) == 2]
    if np.ndim(m) > 1 or not columns or any(shape[1] > 1 for shape in columns):
        return gemm_kernel_seconds(m, n, k, *how)
    pairs = np.hstack(np.broadcast_arrays(np.atleast_2d(n), np.atleast_2d(k)))
    found, back = np.unique(pairs, axis=0, return_inverse=True)
    return gemm_kernel_seconds(m, found[:, :1], found[:, 1:], *how)[back.ravel()]


def _no_table(kind):
    """What is said of a time that is the plain bound, since no kernel of the kind was fitted."""
    return (f"{kind} has no table: the plain bound stands for its time",)


@functools.lru_cache(maxsize=8)
def _gemms(device):
    """What is known of single GEMMs on a device, for all clocks: key to time [s]."""
    return {}


def _key(value):
    """A number or an array of them, as something that can be looked up."""
    if type(value) in PLAIN:
        return value
    array = np.asarray(value)
    return array.shape, array.tobytes()
