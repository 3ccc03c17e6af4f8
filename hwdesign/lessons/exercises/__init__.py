"""The exercises of the chapters, one file a chapter; `practice` asks and checks them."""

from hwdesign.lessons.exercises.base import Exercise
from hwdesign.lessons.exercises.checklist import EXERCISES as CHECKLIST
from hwdesign.lessons.exercises.decoupled import EXERCISES as DECOUPLED
from hwdesign.lessons.exercises.expert_parallel import EXERCISES as EXPERT_PARALLEL
from hwdesign.lessons.exercises.landscape import EXERCISES as LANDSCAPE
from hwdesign.lessons.exercises.low_precision import EXERCISES as LOW_PRECISION
from hwdesign.lessons.exercises.near_square import EXERCISES as NEAR_SQUARE
from hwdesign.lessons.exercises.pipeline import EXERCISES as PIPELINE
from hwdesign.lessons.exercises.tile_alignment import EXERCISES as TILE_ALIGNMENT
from hwdesign.lessons.exercises.wide_deep import EXERCISES as WIDE_DEEP

CHAPTERS = (
    LANDSCAPE,
    NEAR_SQUARE,
    TILE_ALIGNMENT,
    WIDE_DEEP,
    LOW_PRECISION,
    EXPERT_PARALLEL,
    PIPELINE,
    DECOUPLED,
    CHECKLIST,
)
EXERCISES = {exercise.id: exercise for chapter in CHAPTERS for exercise in chapter}

__all__ = ["EXERCISES", "Exercise"]
