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

__all__ = [
    "SAME_AREA",
    "byte_budget",
    "dimension_sweep",
    "error_maps",
    "explore_k",
    "explore_tokens",
    "kernel_switch",
    "layer_shapes",
    "machine_roofline",
    "opening",
    "own_sweeps",
    "pair_cost",
    "ridges",
    "roofline",
    "saturation_ladder",
    "served_times",
    "time_by_aspect",
]
