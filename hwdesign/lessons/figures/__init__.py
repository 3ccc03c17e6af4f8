"""Figures of the book, one file per chapter; their functions are gathered here."""

from hwdesign.lessons.figures.accuracy import error_maps, kernel_switch, served_times
from hwdesign.lessons.figures.machine import machine_roofline
from hwdesign.lessons.figures.near_square import (
    byte_budget,
    dimension_sweep,
    layer_shapes,
    opening,
    own_sweeps,
    pair_cost,
    saturation_ladder,
    time_by_aspect,
)
from hwdesign.lessons.figures.near_square_sliders import SAME_AREA, explore_k, explore_tokens
from hwdesign.lessons.figures.roofline import ridges, roofline
from hwdesign.lessons.figures.tile_alignment import efficiency_map, fine_steps, processor_strip, shard_map, tile_map
from hwdesign.lessons.figures.tile_published import cliffs, odd_blocks, own_steps, processor_count, staircase
from hwdesign.lessons.figures.tile_sliders import PROCESSORS, explore_processors, explore_tiles

__all__ = [
    "PROCESSORS",
    "SAME_AREA",
    "byte_budget",
    "cliffs",
    "dimension_sweep",
    "efficiency_map",
    "error_maps",
    "explore_k",
    "explore_processors",
    "explore_tiles",
    "explore_tokens",
    "fine_steps",
    "kernel_switch",
    "layer_shapes",
    "machine_roofline",
    "odd_blocks",
    "opening",
    "own_steps",
    "own_sweeps",
    "pair_cost",
    "processor_count",
    "processor_strip",
    "ridges",
    "roofline",
    "saturation_ladder",
    "served_times",
    "shard_map",
    "staircase",
    "tile_map",
    "time_by_aspect",
]
