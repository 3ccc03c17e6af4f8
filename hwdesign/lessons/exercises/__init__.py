"""The exercises of the chapters, one file a chapter; `practice` asks and checks them."""

from hwdesign.lessons.exercises.base import Exercise
from hwdesign.lessons.exercises.low_precision import EXERCISES as LOW_PRECISION
from hwdesign.lessons.exercises.near_square import EXERCISES as NEAR_SQUARE
from hwdesign.lessons.exercises.tile_alignment import EXERCISES as TILE_ALIGNMENT
from hwdesign.lessons.exercises.wide_deep import EXERCISES as WIDE_DEEP

EXERCISES = {exercise.id: exercise for exercise in (*NEAR_SQUARE, *TILE_ALIGNMENT, *WIDE_DEEP, *LOW_PRECISION)}

__all__ = ["EXERCISES", "Exercise"]
