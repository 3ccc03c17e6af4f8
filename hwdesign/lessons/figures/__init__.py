"""Figures of the book, one file per chapter; their functions are gathered here."""

from hwdesign.lessons.figures.accuracy import error_maps, kernel_switch, served_times
from hwdesign.lessons.figures.charts import line_chart
from hwdesign.lessons.figures.checklist import (
    change_steps,
    cost_bars,
    explore_load,
    pair_scatter,
    verdict_map,
)
from hwdesign.lessons.figures.decoupled import crossings, dominant_map, layout_bars, layout_drawing
from hwdesign.lessons.figures.decoupled_sliders import explore_batch, explore_gpus
from hwdesign.lessons.figures.expert_parallel import (
    expert_rows,
    layout_times,
    memory_loop,
    rates_by_width,
    touched_share,
    uneven_loads,
)
from hwdesign.lessons.figures.expert_parallel_published import (
    exchange_lines,
    layer_by_width,
    own_exchanges,
    skew_ratio,
    unit_brackets,
)
from hwdesign.lessons.figures.expert_parallel_sliders import (
    explore_copies,
    explore_skew,
    explore_width,
)
from hwdesign.lessons.figures.landscape import fronts, lever_bars, opening, share_bars, timeline
from hwdesign.lessons.figures.landscape_sliders import explore_front
from hwdesign.lessons.figures.low_precision import (
    block_picture,
    error_lines,
    number_lines,
    own_formats,
    score_differences,
)
from hwdesign.lessons.figures.low_precision_sliders import (
    explore_block,
    explore_outliers,
    explore_speedup,
)
from hwdesign.lessons.figures.low_precision_speed import (
    format_roofs,
    peak_and_best,
    speedup_lines,
    speedup_map,
    waterfall,
)
from hwdesign.lessons.figures.machine import machine_roofline
from hwdesign.lessons.figures.near_square import (
    byte_budget,
    dimension_sweep,
    layer_shapes,
    own_sweeps,
    pair_cost,
    saturation_ladder,
    time_by_aspect,
)
from hwdesign.lessons.figures.near_square_sliders import SAME_AREA, explore_k, explore_tokens
from hwdesign.lessons.figures.pipeline import (
    bubble_map,
    chunk_profile,
    gantt,
    latency_and_rate,
    layer_strips,
)
from hwdesign.lessons.figures.pipeline_own import own_pipeline
from hwdesign.lessons.figures.pipeline_sliders import (
    explore_balance,
    explore_chunks,
    explore_stages,
)
from hwdesign.lessons.figures.roofline import ridges, roofline
from hwdesign.lessons.figures.tile_alignment import (
    efficiency_map,
    fine_steps,
    processor_strip,
    shard_map,
    tile_map,
)
from hwdesign.lessons.figures.tile_published import (
    cliffs,
    odd_blocks,
    own_steps,
    processor_count,
    staircase,
)
from hwdesign.lessons.figures.tile_sliders import PROCESSORS, explore_processors, explore_tiles
from hwdesign.lessons.figures.wide_deep import (
    aspect_map,
    depth_ratio,
    implied_bandwidth,
    own_siblings,
    stacked_terms,
    time_by_hidden,
)
from hwdesign.lessons.figures.wide_deep_sliders import explore_depth, explore_layers

__all__ = [
    "PROCESSORS",
    "SAME_AREA",
    "aspect_map",
    "block_picture",
    "bubble_map",
    "byte_budget",
    "change_steps",
    "chunk_profile",
    "cliffs",
    "cost_bars",
    "crossings",
    "depth_ratio",
    "dimension_sweep",
    "dominant_map",
    "efficiency_map",
    "error_lines",
    "error_maps",
    "exchange_lines",
    "expert_rows",
    "explore_balance",
    "explore_batch",
    "explore_block",
    "explore_chunks",
    "explore_copies",
    "explore_depth",
    "explore_front",
    "explore_gpus",
    "explore_k",
    "explore_layers",
    "explore_load",
    "explore_outliers",
    "explore_processors",
    "explore_skew",
    "explore_speedup",
    "explore_stages",
    "explore_tiles",
    "explore_tokens",
    "explore_width",
    "fine_steps",
    "format_roofs",
    "fronts",
    "gantt",
    "implied_bandwidth",
    "kernel_switch",
    "latency_and_rate",
    "layer_by_width",
    "layer_shapes",
    "layer_strips",
    "layout_bars",
    "layout_drawing",
    "layout_times",
    "lever_bars",
    "line_chart",
    "machine_roofline",
    "memory_loop",
    "number_lines",
    "odd_blocks",
    "opening",
    "own_exchanges",
    "own_formats",
    "own_pipeline",
    "own_siblings",
    "own_steps",
    "own_sweeps",
    "pair_cost",
    "pair_scatter",
    "peak_and_best",
    "processor_count",
    "processor_strip",
    "rates_by_width",
    "ridges",
    "roofline",
    "saturation_ladder",
    "score_differences",
    "served_times",
    "shard_map",
    "share_bars",
    "skew_ratio",
    "speedup_lines",
    "speedup_map",
    "stacked_terms",
    "staircase",
    "tile_map",
    "time_by_aspect",
    "time_by_hidden",
    "timeline",
    "touched_share",
    "uneven_loads",
    "unit_brackets",
    "verdict_map",
    "waterfall",
]
