"""Design LLMs that suit the hardware: formulas, models, step times and the checker behind the book.

Names load on first use, so importing the package costs NumPy and nothing else. Devices and number
formats of the catalogue are names, too:

>>> from hwdesign import GB300, NVFP4
>>> GB300.ridge(NVFP4)
1875.0
"""

import importlib
import re
import sys
from pathlib import Path

__version__ = "0.2.0"

# What a user's own script needs, by the module that defines it; the rest is imported by module.
_PUBLIC = {
    "formulas.roofline": "attainable_flops bound_time break_even_k "
    "gemm_bytes gemm_flops gemm_intensity intensity ridge",
    "formulas.tiling": "head_sharding pad tile_efficiency wave_efficiency",
    "formulas.pipeline": "stage_layers",
    "catalogue.precision": "PRECISIONS RECIPES Precision Recipe precision recipe",
    "catalogue.device": "Device device device_names",
    "models.blocks": "Block DenseFFN MoE SelfAttention",
    "models.latent": "LatentAttention",
    "models.mamba": "Mamba2",
    "models.model": "Model",
    "models.sharding": "good_ways width_tiers widths_near",
    "models.layers": "Gemm",
    "models.steps": "Exchange Experts Plan step",
    "models.sheet": "sheet sheet_text",
    "timing.silicon": "gemm_grid",
    "timing.estimate": "Breakdown decode_step exchange_time expert_time gemm_time prefill_step",
    "timing.layouts": "best_steps decode_sweep layouts",
    "timing.search": "candidate_text decode_candidates prefill_workers",
    "timing.serving": "time_per_output_token",
    "timing.served": "served_points",
    "advice.case": "Case",
    "advice.verdict": "Finding Fix Limits Verdict",
    "advice.checklist": "Checklist checklist",
    "advice.fixing": "fix",
    "advice.designing": "design",
    "measure.runs": "load_run save_run shipped_runs",
    "measure.gemm": "measure_copy measure_gemm",
    "measure.attention": "measure_attention",
    "measure.collectives": "measure_collectives",
    "measure.suite": "run_suite",
    "measure.constants": "measured_device",
}
_HOME = {name: module for module, names in _PUBLIC.items() for name in names.split()}

__all__ = ["__version__", "units", *_HOME]


def __getattr__(name):
    if name == "units":
        value = _module("units")
    elif name in _HOME:
        value = getattr(_module(_HOME[name]), name)
    elif name.isupper() and name in _constants():
        value = _constants()[name]
    elif name.startswith("__"):  # asked by Python's own tools
        raise AttributeError(name)
    else:
        kind = ImportError if _imported(sys._getframe(1)) else AttributeError
        raise kind(f"module 'hwdesign' has no attribute {name!r}; {_where(name)}")
    globals()[name] = value
    return value


def __dir__():
    return sorted([*__all__, *_constants()])


def _module(name):
    return importlib.import_module(f"hwdesign.{name}")


def _constants():
    """Number formats and devices of the catalogue by their names as constants."""
    formats, devices = _module("catalogue.precision"), _module("catalogue.device")
    found = {name.upper(): value for name, value in formats.PRECISIONS.items()}
    return found | {name: devices.device(name) for name in devices.device_names()}


def _imported(frame):
    """Whether ``from hwdesign import name`` asks: there Python drops an AttributeError's words."""
    import dis

    return dis.opname[frame.f_code.co_code[frame.f_lasti]] == "IMPORT_FROM"


def _where(name):
    """Where a name that is not public is found, in words; else the public names."""
    root = Path(__file__).parent
    defined = re.compile(rf"^(def|class) {re.escape(name)}\b|^{re.escape(name)} = ", re.MULTILINE)
    for path in sorted(root.rglob("*.py")):
        *rooms, file = ("hwdesign", *path.relative_to(root).with_suffix("").parts)
        if file == name:
            return f"write 'from {'.'.join(rooms)} import {name}'"
        if file != "__init__" and defined.search(path.read_text(encoding="utf-8")):
            return f"write 'from {'.'.join([*rooms, file])} import {name}'"
    import difflib

    near = difflib.get_close_matches(name, __all__, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}public names are {', '.join(sorted(__all__))}, and the catalogue's constants"
