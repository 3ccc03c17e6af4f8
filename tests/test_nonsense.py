"""Every public name, each argument given every kind of nonsense: a result, or an error that names the argument, at once."""

import contextlib
import functools
import inspect
import re
import signal
import warnings

import numpy as np
import pytest

import hwdesign as hw
from hwdesign.advice.breaks import Refusal
from hwdesign.measure import backends, collectives, machine, suite
from hwdesign.measure.runs import Measurement
from hwdesign.models.indexer import Indexer
from hwdesign.models.parts import vector

resource = pytest.importorskip("resource")  # limits of memory and of time are those of Unix

NONSENSE = {
    "None": None,
    "empty text": "",
    "text": "nonsense",
    "long text": "x" * 100_000,
    "null character": "a\0b",
    "bytes": b"bytes",
    "truth": True,
    "negative": -1,
    "zero": 0,
    "fraction": 1.5,
    "NaN": float("nan"),
    "infinity": float("inf"),
    "2**70": 2**70,
    "1e300": 1e300,
    "5000 digits": 10**5000,
    "complex": 1j,
    "empty list": [],
    "mixed list": [1, "a"],
    "ragged list": [[1], [1, 2]],
    "list of NaN": [float("nan")],
    "deep list": eval("[" * 80 + "1" + "]" * 80),
    "set": {1, "a"},
    "empty dict": {},
    "dict": {"nonsense": 1},
    "object": object(),
    "class": str,
    "function": print,
    "date": np.datetime64("2026-01-01"),
    "zeros": np.zeros((2, 3)),
    "ones": np.ones((2, 3)),
    "words": np.array(["a", "b"]),
    "iterator": iter(()),
}
SECONDS = 1.0  # of processor time that a call may take
MEMORY = 2 * 2**30  # beyond what the process holds [byte]

MODEL, PLAN = hw.Model.from_config("llama-3.1-8b"), hw.Plan(tp=2)
EXPERTS = hw.Model.from_config("gpt-oss-20b")
ATTENTION = hw.SelfAttention(num_heads=8, num_kv_heads=2, head_dim=16)
INDEXER, VECTOR = Indexer(num_heads=4, head_dim=16, top_k=64), vector("extra", "norm", 64)
BLOCK = hw.Block(mixer=ATTENTION, ffn=hw.DenseFFN(width=64))
GB300, RECIPE, CASE = hw.device("GB300"), hw.recipe("fp8"), hw.Case(model="gpt2", device="H100_SXM")
CPU = hw.Device(name="a CPU", form_factor="server", dense_peak={"bf16": 1.3e12}, memory_bandwidth=2.4e10, memory_capacity=48e9,
                sms=2, link_bandwidth=1e10)  # fmt: skip
FIX = hw.Fix(text="nothing", case=CASE, before=CASE)
REFUSAL = Refusal(engine="vLLM 0.33.0", says="asserts", source="https://example.org")
FINDING = hw.Finding(guideline=2, dimension="width", value="50257", rule="tile 128", status="warn")
VERDICT = hw.Verdict(guideline=5, status="not applicable", reason="no experts")
WHERE = {"model": MODEL, "device": "H100_SXM"}
LOAD = WHERE | {"recipe": "fp8", "batch": 8, "context": 1000}
PLANS = {"attention": PLAN, "ffn": PLAN}
TAKEN = Measurement(
    operation="copy", shape={"elements": 16}, precision="fp32", seconds=1e-3, spread=0.0, repeats=9, device="a CPU",
    backend="numpy", software={"python": "3.11", "numpy": "2.0"}, taken_on="2026-01-31",
)  # fmt: skip
ROUND = {"backend": "numpy", "rounds": 1, "rotate": False}
TABLE = hw.decode_candidates(MODEL, "H100_SXM", "fp8", gpus=[2], batch=[1], input_tokens=100, output_tokens=10)
SWEEP = {"seconds": np.array([[2.0], [1.0]]), "feasible": np.array([[True], [False]])}

# A call of each public name that is quick and right.
CALLS = {
    "attainable_flops": {"flop_per_byte": 100.0, "peak_flops": 1e15, "bandwidth": 8e12},
    "bound_time": {"flops": 1e12, "moved": 1e9, "peak_flops": 1e15, "bandwidth": 8e12},
    "break_even_k": {"m": 16, "n": 64, "ridge_point": 10.0, "a": 1.0, "b": 1.0, "c": 2.0},
    "gemm_bytes": {"m": 2, "n": 3, "k": 4, "a": 1.0, "b": 1.0, "c": 2.0},
    "gemm_flops": {"m": 2, "n": 3, "k": 4},
    "gemm_intensity": {"m": 2, "n": 3, "k": 4, "a": 1.0, "b": 1.0, "c": 2.0},
    "intensity": {"flops": 1e9, "moved": 1e6},
    "ridge": {"peak_flops": 1e15, "bandwidth": 8e12},
    "pad": {"size": 100, "multiple": 64},
    "tile_efficiency": {"m": 100, "n": 200, "tile_m": 64, "tile_n": 64},
    "wave_efficiency": {"m": 100, "n": 200, "tile_m": 64, "tile_n": 64, "sms": 132},
    "stage_layers": {"layers": 30, "pp": 4, "extra": "last"},
    "Precision": {"name": "x", "label": "X", "bits": 8, "block": (1, 16), "scale_bits": 8, "rate": "fp8"},
    "Recipe": {"name": "x"} | dict.fromkeys(("weights", "activations", "outputs", "kv_cache", "math"), hw.BF16),
    "precision": {"precision": "fp8"},
    "recipe": {"recipe": "fp8"},
    "Device": {name: getattr(GB300, name) for name in hw.Device.__dataclass_fields__},
    "device": {"device": "H200"},
    "device_names": {},
    "Block": {"mixer": ATTENTION, "ffn": BLOCK.ffn, "norms": 2, "norm_bias": False, "scalars": 1, "residual": None,
              "repeated": False},
    "DenseFFN": {"width": 64, "gated": True, "bias": False},
    "LatentAttention": dict.fromkeys(("num_heads", "q_rank", "kv_rank", "nope_dim", "rope_dim", "v_dim"), 8)
    | {"bias": False, "window": None, "output_gate": True, "head_gate": False, "indexer": INDEXER},
    "Mamba2": dict.fromkeys(("num_heads", "head_dim", "groups", "state", "conv"), 8)
    | {"bias": False, "conv_bias": True, "norm": True, "out_bias": None},
    "MoE": {"num_experts": 8, "top_k": 2, "width": 64, "gated": True, "bias": False, "shared_width": 64,
            "shared_gate": False, "router_bias": False, "router_correction": False,
            "router_scale": False, "zero_experts": 4, "latent": 16, "latent_norm": True, "image_correction": False},
    "SelfAttention": {"num_heads": 8, "num_kv_heads": 2, "head_dim": 16, "window": 8, "qkv_bias": False,
                      "out_bias": False, "qk_norm": "head", "sinks": False, "value_dim": 8, "output_gate": "head",
                      "value_weight": True, "indexer": INDEXER},
    "Model": {"name": "x", "hidden_size": 64, "vocab_size": 100, "blocks": (BLOCK,), "tied_embeddings": False,
              "positions": 0, "norm_bias": False, "embedding_norm": False, "final_norm": True, "head_bias": False,
              "lm_head": True, "labels": 0, "quantization": "fp8", "quant_method": "fp8", "bytes_unknown": None,
              "formats": (("ffn", (("bf16", 0.75), ("fp8", 0.25))),), "kv_cache": "fp8", "max_positions": 4096,
              "left_out": ("a tower",), "closing": (VECTOR,), "embedding_size": 32},
    "Model.from_config": {"source": "gpt2"},
    "good_ways": {"width": 4096, "precision": "bf16", "tier": "tile 128", "most": 8},
    "head_sharding": {"num_heads": 32, "num_kv_heads": 8, "ways": 4},
    "width_tiers": {"width": 4096, "ways": 4, "precision": "nvfp4"},
    "widths_near": {"wish": 11000, "ways": 8, "precision": "nvfp4"},
    "Gemm": {"name": "x", "m": 2, "n": 3, "k": 4, "count": 1.0, "part": "ffn", "stored": True},
    "Exchange": {"kind": "all-reduce", "elements": 64.0, "ranks": 8, "count": 1},
    "Experts": {"tokens": 4.0, "pairs": 8.0, "touched": 6.0, "local": 8, "hidden": 16, "width": 32, "gate": 2, "count": 1,
                "stored": True, "slots": 16.0},
    "Plan": {"tp": 2, "ep": 1, "pp": 1, "kvp": 1, "dp": 1, "gather": False},
    "step": {"model": MODEL, "batch": 8, "context": 1000, "new_tokens": 1} | PLANS,
    "sheet": {"model": MODEL},
    "sheet_text": {"model": MODEL, "width": 28},
    "gemm_grid": {"device": "GB300", "precision": "nvfp4", "framework": "trtllm"},
    "Breakdown": {"terms": {"attention": 1.0}, "memory": 1e9, "capacity": 8e9, "activations": 0.0, "notes": (), "ideal": False,
                  "cache": 1e8, "engine": hw.decode_step(**LOAD).engine, "joules": hw.decode_step(**LOAD).joules},
    "decode_step": LOAD | PLANS | {"wide": ("ffn",), "ideal": False, "framework": "sglang", "engine": "sglang"},
    "prefill_step": LOAD | PLANS | {"cached": 0, "wide": (), "ideal": False, "framework": None, "clock": None,
                                    "engine": "trtllm"},
    "exchange_time": {"exchange": hw.Exchange(kind="all-reduce", elements=64.0, ranks=8), "device": "H200",
                      "recipe": "fp8", "ideal": False},
    "expert_time": {"experts": hw.Experts(tokens=4.0, pairs=8.0, touched=6.0, local=8, hidden=16, width=32),
                    "device": "H200", "recipe": "fp8", "engine": "trtllm"},
    "gemm_time": {"m": 16, "n": 64, "k": 64, "device": "H200", "recipe": "fp8", "ideal": False, "framework": None},
    "best_steps": {"sweep": SWEEP, "allowed": [True, True]},
    "decode_sweep": LOAD | {"gpus": [1, 2], "kinds": ("tensor", "data"), "wide": (), "engine": "vllm"},
    "layouts": {"model": EXPERTS, "gpus": 2},
    "candidate_text": {"candidates": TABLE, "i": 0},
    "decode_candidates": WHERE | {"recipes": ["fp8"], "gpus": [1, 2], "batch": [1, 8], "input_tokens": 100,
                                  "output_tokens": 10, "kinds": ("tensor",), "wide": (), "together": True, "engine": "vllm"},
    "prefill_workers": WHERE | {"recipe": "fp8", "tokens": 1000, "gpus": [1], "stages": [1, 2], "chunk": 500, "engine": "vllm"},
    "time_per_output_token": WHERE | {"recipe": "fp8", "concurrency": 4, "input_tokens": 100, "output_tokens": 10,
                                      "wide": (), "engine": "sglang"} | PLANS,
    "served_points": {"model": "llama-3.1-70b", "device": "H100_SXM", "matched": True, "tp": 2},
    "Case": {"model": "gpt2", "device": "H100_SXM", "recipe": "fp8", "batch": 8, "context": 1000, "cache": "fp8",
             "engine": "sglang", "prompt": 900, "answer": 200, "split": (12,)} | PLANS,
    "Finding": {"guideline": 2, "dimension": "width", "value": "50257", "rule": "tile 128", "status": "warn", "cost": 0.1,
                "fixes": (FIX,), "refused_by": (REFUSAL,), "subject": "query heads"},
    "Fix": {"text": "nothing", "case": CASE, "before": CASE, "width": 0.0, "worsens": ((1, "ok", "warn"),)},
    "Limits": {"warn": 0.05, "fail": 0.2},
    "fix": {"cases": hw.Case(model="gpt2"), "config": "gpt2", "guidelines": (2,), "budget": 0.02, "keep": ("heads",),
            "server_only": False, "limits": None},
    "Verdict": {"guideline": 5, "status": "warn", "reason": "why", "findings": (FINDING,)},
    "Checklist": {"case": CASE, "limits": hw.Limits(), "verdicts": (VERDICT,)},
    "checklist": {"case": CASE, "limits": hw.Limits()},
    "design": {"parameters": 1.5e9, "active": 1.5e9, "device": "H200", "gpus": 1, "context": 1000, "load": (), "tpot": 0.01,
               "ttft": 1.0, "family": "llama", "engine": "sglang", "leave": (), "vocabulary": 131072, "compare": (),
               "batches": [1, 8], "progress": None},
    "measured_device": {"device": CPU, "runs": hw.shipped_runs()[0]},
    "load_run": {"path": hw.shipped_runs()[0]},
    "save_run": {"path": "run.json", "measurements": [TAKEN], "machine": "a laptop"},
    "shipped_runs": {},
    "measure_copy": {"elements": 64} | ROUND,
    "measure_gemm": {"m": 8, "n": 8, "k": 8, "precision": "fp32"} | ROUND,
    "measure_attention": {"batch": 1, "context": 8, "heads": 4, "kv_heads": 2, "head_dim": 4, "precision": "fp32"} | ROUND,
    "measure_collectives": {"processes": 2, "sizes": [64], "timeout": 1},
    "run_suite": {"backend": "numpy", "quick": True, "limit": 0, "progress": None},
}  # fmt: skip
# Methods that take arguments: what has them, and the call.
METHODS = {
    "Model.active_parameters": (MODEL, {"include_embedding": True}),
    "Model.parameters_by_part": (MODEL, {"active": True}),
    "Model.part_formats": (MODEL, {"part": "ffn", "recipe": "fp8"}),
    "Model.weight_bytes": (MODEL, {"recipe": "fp8"}),
    "Model.kv_bytes_per_token": (MODEL, {"precision": "fp8"}),
    "Model.growth_bytes_per_token": (MODEL, {"precision": "fp8"}),
    "Model.kv_bytes": (MODEL, {"context": 100, "precision": "fp8", "reserved": False}),
    "Model.kv_bytes_per_gpu": (MODEL, {"context": 100, "tp": 2, "precision": "fp8"}),
    "Model.state_bytes": (MODEL, {"ssm": "fp32", "conv": "bf16"}),
    "Device.peak_flops": (GB300, {"precision": "fp8"}),
    "Device.ridge": (GB300, {"precision": "fp8"}),
    "Gemm.bytes": (hw.Gemm(name="x", m=2, n=3, k=4), {"recipe": "fp8"}),
    "GemmGrid.at": (hw.gemm_grid("H100_SXM", "bf16"), {"m": 16, "n": 1024, "k": 1024}),
    "Breakdown.share": (hw.decode_step(**LOAD), {"term": "ffn"}),
    "Case.gain": (CASE, {"other": CASE}),
    "Case.low": (CASE, {"part": "ffn"}),
    "Limits.grade": (hw.Limits(), {"cost": 0.06, "least": "ok"}),
    "Checklist.status_without": (hw.checklist(CASE), {"ignored": (2,)}),
}
CALLABLE = sorted(name for name in hw.__all__ if callable(getattr(hw, name)))


class Late(BaseException):
    """Of no kind that the package catches."""


def by_name(call):
    """A call whose ``*arguments`` can be given by name, too: one of them."""
    kinds = {p.name: p.kind for p in inspect.signature(call).parameters.values()}
    if inspect.Parameter.VAR_POSITIONAL not in kinds.values():
        return call
    return functools.wraps(call)(lambda **given: call(*(given[name] for name in kinds)))


def calls():
    """Each name with what is called and its arguments."""
    for name, arguments in CALLS.items():
        owner, _, method = name.rpartition(".")
        yield name, by_name(getattr(getattr(hw, owner) if owner else hw, method)), arguments
    for name, (owner, arguments) in METHODS.items():
        yield name, getattr(owner, name.split(".")[1]), arguments


@contextlib.contextmanager
def limits():
    """A second of processor time and some memory; a call that takes more ends with an error."""

    def late(*_):
        raise Late(f"took more than {SECONDS} s of processor time")

    before, (soft, hard) = signal.signal(signal.SIGPROF, late), resource.getrlimit(resource.RLIMIT_AS)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    with contextlib.suppress(OSError, ValueError), open("/proc/self/statm", encoding="ascii") as file:
        held = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, hard))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def complaint(call, argument, arguments):
    """What is wrong with how a call takes its arguments, in words; None if nothing is."""
    try:
        with limits():
            call(**arguments)
    except (ValueError, FileNotFoundError) as error:
        text = str(error)
        told = text.split(" must")[0] if argument == "a" else text  # "a" is a word, too
        named = re.search(rf"\b{argument}\b", told) or (argument in ("source", "model") and "config key" in text)
        if not named or " must " not in text or len(text) > 1000:
            return f"{type(error).__name__}: {text[:200]} ({len(text)} characters)"
    except (Exception, Late) as error:
        return f"{type(error).__name__}: {error}"
    return None


def test_every_public_name_is_in_the_table():
    assert set(CALLABLE) - set(CALLS) == set(), "a public name without a call in CALLS"
    for name, call, arguments in calls():
        known = inspect.signature(call).parameters.values()
        wanted = {p.name for p in known if p.kind != p.VAR_KEYWORD}
        assert wanted <= set(arguments), f"{name} without {wanted - set(arguments)}"


@pytest.mark.parametrize(("name", "call", "arguments"), [pytest.param(*row, id=row[0]) for row in calls()])
def test_nonsense_is_refused_by_name(name, call, arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a text is also the name of a file
    monkeypatch.setattr(collectives, "_torch", lambda: None)  # no processes are started
    monkeypatch.setattr(machine, "cpu_cache", lambda: (2.0**22, "set by the test"))  # soon exceeded
    small = {"numpy": backends.Backend()}
    monkeypatch.setattr(backends, "_known", lambda: small)
    monkeypatch.setattr(suite, "cases", lambda backend, quick: {"launch": lambda rounds: TAKEN})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        call(**arguments)  # the first call reads what later ones keep
        tried = [(a, kind, complaint(call, a, arguments | {a: value})) for a in arguments for kind, value in NONSENSE.items()]
    found = [f"{name}({argument}={kind}): {why}" for argument, kind, why in tried if why]
    assert not found, "\n".join(["", *found])


BACKEND = backends.Backend()
LARGE = {
    "gpus": (lambda n: hw.layouts(MODEL, n), 100_000),
    "most": (lambda n: hw.good_ways(4096, most=n), 1024),
    "pp": (lambda n: hw.stage_layers(2**52, n), 100_000),
    "tp": (lambda n: hw.Plan(tp=n), 100_000),
    "width": (lambda n: hw.sheet_text(MODEL, n), 1000),
    "rounds": (lambda n: hw.measure_copy(64, BACKEND, rounds=n), 1000),
    "processes": (lambda n: hw.measure_collectives(n), 1024),
    "tokens": (lambda n: hw.prefill_workers(**CALLS["prefill_workers"] | {"tokens": n}), 10_000),
}


@pytest.mark.parametrize("name", LARGE)
def test_what_would_take_for_ever_is_refused_with_the_limit(name):
    call, most = LARGE[name]
    for number in (2**40, 2**52):
        with limits(), pytest.raises(ValueError, match=f"^{name} must be (<=|at most) {most}"):
            call(number)
