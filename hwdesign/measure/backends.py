"""What can be timed here: torch on a CUDA device, torch on the CPU, NumPy; and operands that no
cache holds.

Operands are views into two long stretches of memory, the arenas: one of inputs, one of outputs,
together at least four times the last-level cache. A measurement walks through them from where the
last one stopped, so every call finds its operands in memory. The numbers are random: constant ones
draw less power, and a device then runs at higher clocks.
"""

import contextlib
import datetime
import functools
import importlib
import math
import os
import platform
import re
import sys

import numpy as np

from hwdesign._check import choice, count, flag
from hwdesign.catalogue.device import device as as_device
from hwdesign.measure import machine
from hwdesign.measure.runs import ELEMENT_BYTES, Measurement, Skipped, combine
from hwdesign.measure.timer import time_calls
from hwdesign.units import fmt

COLD = 4  # working set over cache
CACHE = 2.0**27  # of a GPU, taken where nobody says how large it is [byte]
ALIGN = 256  # of an operand [byte]
COPIES = {"cpu": 4096, "cuda": 1024}  # most sets of operands
MOST_ROUNDS = 1000  # of a measurement
RANDOM = 1_000_003  # random numbers before they repeat
OUTPUT = {
    "fp64": "fp64",
    "fp32": "fp32",
    "fp16": "fp16",
    "bf16": "bf16",
    "fp8": "bf16",
    "nvfp4": "bf16",
}
# Which random bits a format reads: BF16 numbers side by side are also good FP32 and FP64 ones (a
# BF16 is the head of an FP32).
BITS = {"fp32": "bf16", "fp64": "bf16", "nvfp4": "fp8", "output": "bf16"}
TOLERANCE = {
    "fp64": 1e-10,
    "fp32": 1e-4,
    "fp16": 5e-3,
    "bf16": 2e-2,
    "fp8": 3e-2,
    "nvfp4": 3e-2,
}  # see `compare`
E2M1 = np.array(
    [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]
)  # values of an FP4 element


class Backend:
    """NumPy on the CPU, and what all backends share.

    Examples
    --------
    >>> numpy = Backend()
    >>> numpy.name, numpy.precisions, numpy.missing["bf16"]
    ('numpy', ('fp32', 'fp64'), 'NumPy multiplies fp32 and fp64')
    """

    name, torch, kind = "numpy", None, "cpu"
    precisions = ("fp32", "fp64")
    dtypes = {"fp32": np.float32, "fp64": np.float64}
    arenas = {}  # bits -> [flat bytes, cursor]; one for all that runs on the CPU

    def __init__(self):
        self.device, self.device_name = machine.cpu_name(), None
        self.cache, self.cache_from = machine.cpu_cache()
        self.missing = dict.fromkeys(
            ("fp16", "bf16", "fp8", "nvfp4"), "NumPy multiplies fp32 and fp64"
        )
        blas = np.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {})
        self.software = {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "blas": f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip(),
            "threads": os.environ.get("OMP_NUM_THREADS") or str(os.cpu_count()),
        }

    # Memory
    # ----------------------------------------------------------------------------------------------

    def free(self):
        """Memory that can still be taken [byte]."""
        return machine.cpu_free()

    def release(self):
        """Give the arenas back."""
        self.arenas.clear()

    def _random(self, bits, nbytes):
        x = np.random.default_rng(0).standard_normal(RANDOM, dtype=np.float32)
        x = (x.view(np.uint32) >> 16).astype(np.uint16) if bits == "bf16" else x.astype(np.float16)
        return np.resize(x.view(np.uint8), nbytes)

    def array(self, flat, precision, shape):
        """Bytes of the arena as an array."""
        return flat.view(self.dtypes[precision]).reshape(shape)

    def _take(self, bits, precision, shape):
        nbytes = math.ceil(math.prod(shape) * _bytes(precision))
        arena = self.arenas[bits]
        step = math.ceil(nbytes / ALIGN) * ALIGN
        if arena[1] + step > len(arena[0]):
            arena[1] = 0
        start, arena[1] = arena[1], arena[1] + step
        packed = (*shape[:-1], shape[-1] // 2) if precision == "nvfp4" else shape
        return self.array(arena[0][start : start + nbytes], precision, packed)

    def operands(self, precision, inputs, outputs, *, rotate=True):
        """Sets of operands, enough of them to exceed the cache four times, and flags where that
        cannot be.
        """
        out, reserve = OUTPUT[precision], {}
        each = {
            "in": sum(map(_aligned(precision), inputs)),
            "out": sum(map(_aligned(out), outputs)),
        }
        total, room = (
            sum(each.values()),
            self.free() + sum(len(flat) for flat, _ in self.arenas.values()),
        )
        if 2 * total > room:
            raise MemoryError(
                f"out of memory: it needs {fmt(2 * total, 'byte')}, {fmt(room, 'byte')} are free"
            )
        copies = (
            max(
                1,
                min(COPIES[self.kind], math.ceil(COLD * self.cache / total), int(room / 4 / total)),
            )
            if rotate
            else 1
        )
        for bits, size in ((BITS.get(precision, precision), each["in"]), ("output", each["out"])):
            least = min(COLD * self.cache * size / total, room / 8) if rotate else 0
            reserve[bits] = int(max(least // ALIGN * ALIGN, copies * size)) + size
            if len(self.arenas.get(bits, ((), 0))[0]) < copies * size + size:
                self.arenas.pop(bits, None)
                self.arenas[bits] = [self._random(BITS.get(bits, bits), reserve[bits]), 0]
        ins, outs = BITS.get(precision, precision), "output"
        places = [(ins, precision, s) for s in inputs] + [(outs, out, s) for s in outputs]
        sets = [tuple(self._take(*place) for place in places) for _ in range(copies)]
        if copies * total >= COLD * self.cache:
            return sets, ()
        size, cache = fmt(copies * total, "byte"), f"{fmt(self.cache, 'byte')} ({self.cache_from})"
        return sets, (
            f"working set: {size} is less than {COLD} x the cache of {cache}: the time may be "
            "too good",
        )

    # Operations -----------------------------------------------------------------------------------

    def gemm(self, precision, a, w, out):
        """A call that multiplies ``a @ w.T`` into `out`."""
        return functools.partial(np.matmul, a, w.T, out=out)

    def copy(self, x, out):
        """A call that copies."""
        return functools.partial(np.copyto, out, x)

    def attention(self, q, k, v, out):
        """A call of softmax attention that returns its result; the queries of a group share their
        keys and values.
        """

        def call():
            scores = np.matmul(q, k.swapaxes(-1, -2)) / math.sqrt(q.shape[-1])
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            return np.matmul(weights / weights.sum(-1, keepdims=True), v, out=out)

        return call

    def double(self, x, precision):
        """An array as float64 on the CPU."""
        return np.asarray(x, np.float64)

    def blank(self, x):
        """Fill an output with NaN, so that a kernel that writes nothing is found out."""
        x.fill(math.nan)

    # Measuring ------------------------------------------------------------------------------------

    def measure(
        self, operation, shape, precision, *, inputs, outputs, call, check, rounds=5, rotate=True
    ):
        """The rounds combined to a `Measurement`, its result checked; or `Skipped` with the
        reason.
        """
        choice("precision", precision, ELEMENT_BYTES)
        rounds, rotate = count("rounds", rounds, MOST_ROUNDS), flag("rotate", rotate)
        label = f"{operation} {precision}"
        if precision not in self.precisions:
            return Skipped(
                operation=label,
                reason=self.missing.get(precision, f"{self.name} has no {precision}"),
            )
        taken = []
        try:
            for _ in range(rounds):
                timing, flags = self._round(precision, inputs, outputs, call, check, rotate)
                flags = tuple(
                    f for f in flags if operation != "launch" or not f.startswith("working set")
                )
                taken.append(
                    Measurement(
                        operation=operation,
                        shape=shape,
                        precision=precision,
                        seconds=timing.seconds,
                        spread=timing.spread,
                        repeats=timing.repeats,
                        device=self.device,
                        device_name=self.device_name,
                        backend=self.name,
                        software=self.software,
                        taken_on=datetime.date.today().isoformat(),
                        flags=flags,
                    )
                )
        except (RuntimeError, MemoryError) as error:
            first = str(error).strip().split("\n")[0] or "out of memory"
            error.__traceback__ = None  # its frames hold the operands
            self.release()
            return Skipped(operation=label, reason=first)
        return combine(taken)

    def _round(self, precision, inputs, outputs, call, check, rotate):
        sets, flags = self.operands(precision, inputs, outputs, rotate=rotate)
        calls = [call(*arrays) for arrays in sets]

        def written():
            return getattr(calls[0], "result", sets[0][-1])

        timing = time_calls(
            calls,
            torch=self.torch if self.kind == "cuda" else None,
            before=lambda: self.blank(written()),
        )
        return timing, (*flags, *timing.flags, *check(*sets[0][:-1], written()))

    def compare(self, precision, found, wanted, scale):
        """A flag where sampled outputs differ from the reference by more than the format's
        tolerance of `scale`.

        `scale` is the size of the sum if its terms had random signs: the root of the sum of their
        squares.
        """
        bad = ~(np.abs(found - wanted) <= TOLERANCE[precision] * (np.abs(wanted) + scale))
        if not bad.any():
            return ()
        worst = np.unravel_index(
            np.argmax(np.where(np.isnan(found), np.inf, np.abs(found - wanted))), bad.shape
        )
        return (
            f"wrong result: {int(bad.sum())} of {bad.size} sampled outputs differ from the "
            "float64 reference, "
            f"for example {found[worst]:.4g} instead of {wanted[worst]:.4g}; do not use this time",
        )


class TorchBackend(Backend):
    """torch on one device, "cuda" or "cpu".

    Parameters
    ----------
    torch : module
        An imported torch.
    kind : str
        "cuda" or "cpu".

    Examples
    --------
    >>> issubclass(TorchBackend, Backend)
    True
    """

    def __init__(self, torch, kind):
        super().__init__()
        self.torch, self.kind, self.name = torch, kind, f"torch-{kind}"
        self.software |= {"torch": str(torch.__version__), "threads": str(torch.get_num_threads())}
        names = {
            "fp32": "float32",
            "bf16": "bfloat16",
            "fp16": "float16",
            "fp8": "float8_e4m3fn",
            "nvfp4": "float4_e2m1fn_x2",
        }
        self.dtypes = {p: getattr(torch, name, None) for p, name in names.items()}
        self.missing = {"fp64": "torch is timed in fp32 and below"}
        if kind == "cpu":
            self.software["omp_wait"] = os.environ.get("OMP_WAIT_POLICY", "default").lower()
            self.software["blas"] = (
                re.findall(r"BLAS_INFO=(\w+)", torch.__config__.show()) or ["unknown"]
            )[0]
            fp8 = self.dtypes["fp8"] is not None and hasattr(torch, "_scaled_mm")
            self.precisions = ("fp32", "bf16", "fp16", *(("fp8",) if fp8 else ()))
            self.missing["nvfp4"] = "torch multiplies no nvfp4 on a CPU"
            if not fp8:
                self.missing["fp8"] = _no_scaled(torch, "fp8")
            return
        index = torch.cuda.current_device()
        self.device, self.arenas = torch.cuda.get_device_name(index), {}
        self.device_name = machine.catalogue_name(self.device)
        self.cache, self.cache_from = self._cuda_cache(index)
        driver = (
            machine.said(
                "nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"
            ).split()
            or ["unknown"]
        )[0]
        self.software |= {
            "cuda": str(torch.version.cuda or getattr(torch.version, "hip", None)),
            "driver": driver,
        }
        for name in ("blas", "threads"):
            self.software.pop(name)
        self._precisions(torch.cuda.get_device_capability(index))

    def _cuda_cache(self, index):
        known = self.device_name and as_device(self.device_name).l2
        if known:
            return known, "catalogue"
        told = getattr(self.torch.cuda.get_device_properties(index), "L2_cache_size", 0)
        return (float(told), "told by the device") if told else (CACHE, "assumed, unknown")

    def _precisions(self, capability):
        has = f"this GPU has {capability[0]}.{capability[1]}"
        missing = {
            "bf16": f"bf16 needs compute capability 8.0, {has}" if capability < (8, 0) else "",
            "fp8": f"fp8 needs compute capability 8.9, {has}" if capability < (8, 9) else "",
            "nvfp4": f"nvfp4 needs compute capability 10.0 (Blackwell), {has}"
            if capability < (10, 0)
            else "",
        }
        for name in ("fp8", "nvfp4"):
            if not missing[name] and not (
                self.dtypes[name] is not None and hasattr(self.torch, "_scaled_mm")
            ):
                missing[name] = _no_scaled(self.torch, name)
        self.missing |= {name: why for name, why in missing.items() if why}
        self.precisions = tuple(
            p for p in ("bf16", "fp16", "fp8", "nvfp4", "fp32") if p not in self.missing
        )

    def free(self):
        if self.kind == "cpu":
            return machine.cpu_free()
        cuda = self.torch.cuda
        return cuda.mem_get_info()[0] + cuda.memory_reserved() - cuda.memory_allocated()

    def release(self):
        super().release()
        if self.kind == "cuda":
            self.torch.cuda.empty_cache()

    def _random(self, bits, nbytes):
        torch = self.torch
        if bits == "fp8":
            x = np.random.default_rng(0).standard_normal(RANDOM, dtype=np.float32)
            block = torch.from_numpy(x).to(self.dtypes["fp8"]).view(torch.uint8)
            if self.kind == "cpu":
                return np.resize(block.numpy(), nbytes)
        elif self.kind == "cpu":
            return super()._random(bits, nbytes)
        else:
            block = torch.from_numpy(super()._random(bits, RANDOM * 2))
        return block.to(self.kind).repeat(math.ceil(nbytes / len(block)))[:nbytes]

    def array(self, flat, precision, shape):
        flat = self.torch.from_numpy(flat) if self.kind == "cpu" else flat
        return flat.view(self.dtypes[precision]).view(shape)

    def gemm(self, precision, a, w, out):
        torch, b = (
            self.torch,
            w.t(),
        )  # column-major, as low precisions demand and linear layers store their weights
        if precision not in ("fp8", "nvfp4"):
            return functools.partial(torch.mm, a, b, out=out)
        one = torch.ones((), dtype=torch.float32, device=self.kind)
        scales = {"scale_a": one, "scale_b": one}
        if (
            precision == "nvfp4"
            # a scale for 16 elements, in blocks of 128 rows x 4 scales; all 1, so their order is
            # free
        ):
            across = math.ceil(a.shape[1] * 2 / 16 / 4) * 4
            ones = (
                torch.ones(math.ceil(x.shape[0] / 128) * 128 * across, device=self.kind)
                for x in (a, w)
            )
            scales = {name: x.to(self.dtypes["fp8"]) for name, x in zip(scales, ones, strict=True)}
        fast = {"use_fast_accum": True} if precision == "fp8" else {}

        def call():
            try:
                return torch._scaled_mm(a, b, out_dtype=torch.bfloat16, out=out, **scales, **fast)
            except (
                TypeError,
                AttributeError,
                ValueError,
            ) as error:  # a private function: its arguments change with the version
                why = str(error)
            raise RuntimeError(why)

        return call

    def copy(self, x, out):
        return functools.partial(out.copy_, x)

    def attention(self, q, k, v, out):
        return _Kept(
            functools.partial(self.torch.nn.functional.scaled_dot_product_attention, q, k, v), out
        )

    def double(self, x, precision):
        if precision == "nvfp4":
            codes = x.contiguous().view(self.torch.uint8).cpu().numpy()
            return E2M1[np.stack([codes & 15, codes >> 4], -1).reshape(len(codes), -1)]
        return x.float().cpu().numpy().astype(np.float64)

    def blank(self, x):
        x.fill_(math.nan)


class _Kept:
    """A call that cannot be told where to write; it keeps its last result, which in a CUDA graph is
    the one that replays fill.
    """

    def __init__(self, call, out):
        self.call, self.result = call, out

    def __call__(self):
        self.result = self.call()


def available():
    """What can be timed on this machine.

    Returns
    -------
    dict of str to Backend
        "torch-cuda", "torch-cpu", "numpy", the fastest first, as far as they are here. Each has
        `precisions`, `missing` (format -> reason), `device`, `cache` [byte] and `software`.

    Notes
    -----
    Source: torch says whether it sees a device; a broken torch counts as none. Where this call is
    the first to import torch, it sets OMP_WAIT_POLICY=PASSIVE if nothing is set: with a second
    program on the same cores, threads that spin made a GEMM of 0.1 ms last 8 ms. `software` names
    the policy.

    Examples
    --------
    >>> "numpy" in available()
    True
    """
    found = {}
    with contextlib.suppress(ImportError, OSError, RuntimeError):
        if (
            "torch" not in sys.modules
            # threads that wait for each other sleep; spinning ones block a core another program
            # holds
        ):
            os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        torch = importlib.import_module("torch")
        kinds = ["cuda", "cpu"] if torch.cuda.is_available() else ["cpu"]
        found = {f"torch-{kind}": TorchBackend(torch, kind) for kind in kinds}
    return {**found, "numpy": Backend()}


@functools.cache
def _known():
    return available()


def as_backend(backend=None):
    """A backend by name.

    Parameters
    ----------
    backend : str or Backend, optional
        By default the fastest that is here.

    Returns
    -------
    Backend
        One of `available()`, kept between calls together with its memory.

    Raises
    ------
    ValueError
        If it is not here; the message lists what is.

    Notes
    -----
    Source: `available`.

    Examples
    --------
    >>> as_backend("numpy").name
    'numpy'
    """
    if isinstance(backend, Backend):
        return backend
    return (
        next(iter(_known().values())) if backend is None else choice("backend", backend, _known())
    )


def _no_scaled(torch, precision):
    return f"torch {torch.__version__} has no {precision} matrix multiplication"


def _bytes(precision):
    """Bytes an element takes in the arena; block scales lie elsewhere."""
    return 0.5 if precision == "nvfp4" else ELEMENT_BYTES[precision]


def _aligned(precision):
    return lambda shape: math.ceil(math.prod(shape) * _bytes(precision) / ALIGN) * ALIGN
