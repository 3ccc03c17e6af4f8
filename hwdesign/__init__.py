"""Design LLMs that suit the hardware: formulas, catalogue, models and published silicon data behind the book.

Names load on first use, so importing the package costs NumPy and nothing else:

>>> from hwdesign import GB300, NVFP4
>>> GB300.ridge(NVFP4)
1875.0
"""

import importlib

__version__ = "0.1.0"

_ROOFLINE = "amdahl_speedup attainable_flops bound_time break_even_area break_even_k break_even_n critical_dimension gemm_bytes \
gemm_flops gemm_intensity gemm_read_bytes gemm_write_bytes intensity ridge"
_PRECISION = "Precision Recipe precision recipe PRECISIONS RECIPES FP32 TF32 BF16 FP16 FP8 FP8_1X128 FP8_128X128 MXFP8 MXFP4 \
NVFP4 INT8 INT4_G128"
_QUANTIZATION = "Encoded Scheme SCHEMES decode encode saturated sqnr"
_COLLECTIVES = "all_gather_bytes all_reduce_bytes one_shot_bytes remote_copies transfer_time"
_ROUTING = "balanced_placement device_loads even_placement imbalance routed_tokens touched_slots zipf_shares"
_PIPELINE = "bubble_overhead bubble_share idle_share pipeline_time schedule split_layers"
_CHUNKS = "best_chunks chunk_times equal_time_chunks fit_chunk_costs smoothed_chunks"
_SHARDING = "Neighbours Tier best_tier good_ways head_sharding stage_layers width_tiers widths_near"
_SILICON = "GemmGrid gemm_grid measurements slices sustained saturation_point tables"
_DEVICE = "Device device device_names A100_SXM H100_SXM H100_PCIE H200 B200 GB200 B300 GB300 MI300X L4 T4 L40S RTX_4090 \
RTX_5090 RTX_PRO_6000"
_RUNS = "Measurement Skipped Run load_run save_run shipped_runs"

# public name -> module that defines it
_HOME = {
    **dict.fromkeys(_ROOFLINE.split(), "formulas.roofline"),
    **dict.fromkeys(("ELEMENTS", "Element", "cast", "codes"), "formulas.number_formats"),
    **dict.fromkeys(_QUANTIZATION.split(), "formulas.quantization"),
    **dict.fromkeys(_PRECISION.split(), "catalogue.precision"),
    **dict.fromkeys(_DEVICE.split(), "catalogue.device"),
    **dict.fromkeys(("benchmark_scores", "difference_margin"), "catalogue.benchmarks"),
    **dict.fromkeys(("exchange_times", "load_statistics", "serving_units"), "catalogue.expert_parallel"),
    "chunked_prefills": "catalogue.chunked_pipeline",
    "cache_cuts": "catalogue.decoupled",
    "serving_landscape": "catalogue.landscape",
    **dict.fromkeys(("Weight", "SelfAttention", "LatentAttention", "Mamba2", "DenseFFN", "MoE", "Block"), "models.blocks"),
    **dict.fromkeys(("Model", "same_parameters"), "models.model"),
    **dict.fromkeys(("attention_flops", "cache_read_bytes"), "formulas.attention"),
    **dict.fromkeys(_COLLECTIVES.split(), "formulas.collectives"),
    **dict.fromkeys(("distinct_experts", "expert_ranks", "expert_tokens"), "formulas.experts"),
    **dict.fromkeys(_ROUTING.split(), "formulas.routing"),
    **dict.fromkeys(_PIPELINE.split(), "formulas.pipeline"),
    **dict.fromkeys(_CHUNKS.split(), "formulas.chunks"),
    **dict.fromkeys(("break_even_tokens", "merge_bytes", "merge_partials", "partial_attention"), "formulas.cache_parallel"),
    **dict.fromkeys(("cluster_efficiency", "pad", "tile_efficiency", "wave_efficiency", "waves"), "formulas.tiling"),
    **dict.fromkeys(_SHARDING.split(), "models.sharding"),
    **dict.fromkeys(("sheet", "sheet_text"), "models.sheet"),
    **dict.fromkeys(("Gemm", "transformer_gemms"), "models.layers"),
    **dict.fromkeys(("Plan", "Work", "Experts", "Exchange", "Step", "step"), "models.steps"),
    **dict.fromkeys(_SILICON.split(), "timing.silicon"),
    **dict.fromkeys(("GemmConstants", "fit_gemm_constants", "gemm_seconds", "gemm_terms", "ideal_constants"), "timing.gemm"),
    **dict.fromkeys(("Constants", "constants", "held_out_error"), "timing.calibration"),
    **dict.fromkeys(("gemm_kernel_seconds", "gemm_kernel_terms"), "timing.gemm_kernel"),
    **dict.fromkeys(("Staircase", "fit_staircase"), "timing.staircase"),
    **dict.fromkeys(("layer_gemm_seconds", "siblings"), "timing.depth"),
    **dict.fromkeys(
        (
            "Breakdown",
            "decode_step",
            "decode_steps",
            "exchange_time",
            "expert_time",
            "gemm_time",
            "prefill_step",
            "prefill_steps",
        ),
        "timing.estimate",
    ),
    **dict.fromkeys(("block_times", "stage_times"), "timing.pipeline"),
    **dict.fromkeys(("attention_kind", "best_steps", "decode_sweep", "layouts"), "timing.layouts"),
    **dict.fromkeys(("area_under", "matched_rate", "pareto_front", "whole_workers"), "timing.frontier"),
    **dict.fromkeys(("candidate_text", "decode_candidates", "prefill_workers"), "timing.search"),
    "time_per_output_token": "timing.serving",
    **dict.fromkeys(("served_plans", "served_points", "served_recipe"), "timing.served"),
    **dict.fromkeys(_RUNS.split(), "measure.runs"),
    **dict.fromkeys(("Case", "parse_plan", "plan_text", "short_plans"), "advice.case"),
    **dict.fromkeys(("Finding", "Fix", "Limits", "Verdict"), "advice.verdict"),
    **dict.fromkeys(("Checklist", "checklist"), "advice.checklist"),
    "available": "measure.backends",
    **dict.fromkeys(("measure_copy", "measure_gemm", "measure_launch"), "measure.gemm"),
    "measure_attention": "measure.attention",
    "measure_collectives": "measure.collectives",
    "measure_pipeline": "measure.pipeline",
    **dict.fromkeys(("run_suite", "summary"), "measure.suite"),
}
_MODULES = {
    "units": "units",
    "roofline": "formulas.roofline",
    "config": "models.config",
    "silicon": "timing.silicon",
    "calibration": "timing.calibration",
}

__all__ = ["__version__", *_HOME, *_MODULES]


def __getattr__(name):
    if name in _MODULES:
        return importlib.import_module(f"hwdesign.{_MODULES[name]}")
    if name in _HOME:
        value = getattr(importlib.import_module(f"hwdesign.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'hwdesign' has no attribute {name!r}; public names are {', '.join(sorted(__all__))}")


def __dir__():
    return sorted(__all__)
