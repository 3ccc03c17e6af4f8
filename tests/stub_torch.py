"""A torch that is none: a CUDA device on NumPy with a clock of its own, so that every CUDA branch runs without a GPU.

Kernels compute on the CPU and move the device's clock by what a roofline says. Tensors are bytes with a format.
"""

import contextlib
import types

import numpy as np


class OutOfMemoryError(RuntimeError):
    pass


class Dtype:
    def __init__(self, name, itemsize):
        self.name, self.itemsize = name, itemsize


def _e4m3():
    code = np.arange(256)
    sign, e, m = 1 - 2.0 * (code >> 7), code >> 3 & 15, code & 7
    value = sign * np.where(e == 0, m / 8 * 2.0**-6, (1 + m / 8) * 2.0 ** (e - 7.0))
    value[[127, 255]] = np.nan
    return value


E4M3 = _e4m3()
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def encode(x, name):
    x = np.asarray(x, np.float32)
    if name == "bfloat16":
        return (np.ascontiguousarray(x).view(np.uint32) >> 16).astype(np.uint16)
    if name == "float8_e4m3fn":
        order = np.argsort(E4M3[:127])
        size = np.clip(np.abs(x), 0, 448)
        return (order[np.clip(np.searchsorted(E4M3[:127], size), 0, 126)] | np.where(np.signbit(x), 128, 0)).astype(np.uint8)
    return x.astype({"float32": np.float32, "float16": np.float16, "uint8": np.uint8}[name])


def decode(raw, name):
    if name == "bfloat16":
        return (raw.astype(np.uint32) << 16).view(np.float32)
    if name == "float8_e4m3fn":
        return E4M3[raw].astype(np.float32)
    if name == "float4_e2m1fn_x2":
        return E2M1[np.stack([raw & 15, raw >> 4], -1).reshape(raw.shape[0], -1)].astype(np.float32)
    return raw.astype(np.float32)


RATES = {"bfloat16": 6e14, "float16": 6e14, "float8_e4m3fn": 1.2e15, "float4_e2m1fn_x2": 2.4e15, "float32": 5e13}  # [FLOP/s]


class Tensor:
    """Raw numbers of a format, on the device or the host."""

    def __init__(self, torch, raw, dtype):
        self.torch, self.raw, self.dtype = torch, raw, dtype

    shape = property(lambda self: self.raw.shape)

    def __len__(self):
        return len(self.raw)

    def __getitem__(self, key):
        return Tensor(self.torch, self.raw[key], self.dtype)

    def values(self):
        return decode(self.raw, self.dtype.name)

    def to(self, what):
        return self if isinstance(what, str) else Tensor(self.torch, encode(self.values(), what.name), what)

    def view(self, what):
        if not isinstance(what, Dtype):
            return Tensor(self.torch, self.raw.reshape(what), self.dtype)
        raw = {"bfloat16": np.uint16, "float32": np.float32, "float16": np.float16}.get(what.name, np.uint8)
        return Tensor(self.torch, self.raw.view(raw), what)

    def repeat(self, n):
        self.torch.allocate(self.raw.nbytes * n)
        return Tensor(self.torch, np.tile(self.raw, n), self.dtype)

    def t(self):
        return Tensor(self.torch, self.raw.T, self.dtype)

    def contiguous(self):
        return Tensor(self.torch, np.ascontiguousarray(self.raw), self.dtype)

    def cpu(self):
        return self

    def numpy(self):
        return self.raw

    def float(self):
        return Tensor(self.torch, self.values(), self.torch.float32)

    def fill_(self, value):
        self.raw[...] = encode(np.full(self.shape, value, np.float32), self.dtype.name)

    def copy_(self, other):
        def kernel():
            self.raw[...] = other.raw

        self.torch.launch(kernel, self.raw.nbytes * 2 / self.torch.bandwidth)
        return self


def stub(*, device="NVIDIA H200", capability=(9, 0), l2=None, memory=140e9, rates=None, bandwidth=4e12, formats=("fp8", "nvfp4"),
         graphs=True, wrong=False, dead=False, idle=False, scaled_mm=True, fails=None, floor=2e-6, index=0,
         reserved=0):  # fmt: skip
    """A module like torch with one CUDA device of these properties.

    `rates`: format to rate [FLOP/s]; `wrong`: results are off; `dead`: kernels write nothing; `idle`: replays
    take their time and do nothing; `fails`: format to an error; `index`: the current device;
    `reserved`: memory that torch holds and nobody uses [byte].
    """
    rates = RATES | (rates or {})
    torch = types.SimpleNamespace(__version__="9.9.9+stub", bandwidth=bandwidth, log=[], clock=0.0, capturing=None, used=0.0)
    names = {"float32": 4, "float16": 2, "bfloat16": 2, "uint8": 1}
    names |= {"float8_e4m3fn": 1} if "fp8" in formats else {}
    names |= {"float4_e2m1fn_x2": 1} if "nvfp4" in formats else {}
    for name, size in names.items():
        setattr(torch, name, Dtype(name, size))
    torch.version = types.SimpleNamespace(cuda="99.9", hip=None)
    torch.get_num_threads = lambda: 1
    torch.__config__ = types.SimpleNamespace(show=lambda: "BLAS_INFO=mkl")

    def allocate(nbytes):
        if torch.used + nbytes > memory:
            raise OutOfMemoryError("CUDA out of memory. Tried to allocate too much.\nmore lines")
        torch.used += nbytes

    def launch(kernel, seconds):
        todo = [kernel]

        def run(idle=False):
            torch.clock += max(seconds, floor)
            todo.pop()() if todo and not idle else None  # replayed on the same data it would give the same again

        torch.log.append("capture" if torch.capturing is not None else "launch")
        run() if torch.capturing is None else torch.capturing.append(run)

    def product(a, b, out, name):
        if (fails or {}).get(name):
            raise (fails or {})[name]
        packed = 2 if name.startswith("float4") else 1
        m, k, n = a.shape[0], a.shape[1] * packed, b.shape[1]

        def kernel():
            x, y = (t.contiguous().values().astype(np.float64) for t in (a, b.t()))
            if not dead:
                out.raw[...] = encode(x @ y.T * (1.2 if wrong else 1.0), out.dtype.name)

        moved = a.raw.nbytes + b.raw.nbytes + out.raw.nbytes
        torch.launch(kernel, max(2 * m * n * k / rates[name], moved / torch.bandwidth))
        return out

    def scaled(a, b, *, scale_a, scale_b, out_dtype, out, use_fast_accum=False):
        assert a.raw.flags.c_contiguous and b.raw.flags.f_contiguous, "row-major a, column-major b"
        assert out_dtype is torch.bfloat16 and a.dtype is b.dtype
        if a.dtype.name.startswith("float4"):
            wanted = [-(-rows // 128) * 128 * -(-a.shape[1] * 2 // 64) * 4 for rows in (a.shape[0], b.shape[1])]
            assert [len(scale_a), len(scale_b)] == wanted and scale_a.dtype is torch.float8_e4m3fn
        return product(a, b, out, a.dtype.name)

    def attend(q, k, v):
        found = Tensor(torch, np.zeros_like(q.raw), q.dtype)

        def kernel():
            x, y, z = (t.values().astype(np.float64) for t in (q, k, v))
            weights = np.exp(x @ y.swapaxes(-1, -2) / np.sqrt(x.shape[-1]))
            found.raw[...] = encode(weights / weights.sum(-1, keepdims=True) @ z * (2 if wrong else 1), q.dtype.name)

        torch.launch(kernel, (k.raw.nbytes + v.raw.nbytes) / torch.bandwidth)
        return found

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            self.at = torch.clock

        def synchronize(self):
            torch.log.append("synchronize")

        def elapsed_time(self, end):
            return (end.at - self.at) * 1e3  # [ms]

    class CUDAGraph:
        def __init__(self):
            self.work = []

        def replay(self):
            torch.log.append("replay")
            ready = torch.clock + 5 * floor  # Python starts a graph more slowly than the device starts a kernel
            for run in self.work:
                run(idle)
            torch.clock = max(torch.clock, ready)

    @contextlib.contextmanager
    def graph(target):
        if not graphs:
            raise RuntimeError("operation not permitted when stream is capturing\nlong tail")
        torch.capturing = target.work
        try:
            yield
        finally:
            torch.capturing = None

    torch.allocate, torch.launch = allocate, launch
    torch.from_numpy = lambda x: Tensor(torch, x, torch.uint8 if x.dtype == np.uint8 else torch.float32)
    torch.ones = lambda *shape, dtype=None, device=None: Tensor(
        torch, np.ones(shape[0] if shape else (), np.float32), torch.float32)  # fmt: skip
    torch.mm = lambda a, b, *, out: product(a, b, out, a.dtype.name)
    if scaled_mm:
        torch._scaled_mm = scaled
    torch.nn = types.SimpleNamespace(functional=types.SimpleNamespace(scaled_dot_product_attention=attend))
    torch.cuda = types.SimpleNamespace(
        is_available=lambda: True, current_device=lambda: index, get_device_name=lambda i: device if i == index else "another",
        get_device_capability=lambda i: capability, memory_reserved=lambda: reserved, memory_allocated=lambda: 0,
        get_device_properties=lambda i: types.SimpleNamespace(**({"L2_cache_size": l2} if l2 else {})),
        mem_get_info=lambda: (memory - torch.used, memory), synchronize=lambda: None, empty_cache=lambda: None, Event=Event,
        CUDAGraph=CUDAGraph, graph=graph, OutOfMemoryError=OutOfMemoryError, device_count=lambda: 1,
    )  # fmt: skip
    return torch
