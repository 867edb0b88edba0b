"""Scores along the step that an adaptive optimizer takes, instead of along the gradient."""

from lai_core.optimizers._adam import Adam
from lai_core.optimizers._scores import (
    adam_derivative_scores,
    adam_direction_scores,
    adam_step,
    preconditioned_ghost_kernel,
    preconditioned_ghost_scores,
)

__all__ = [
    "Adam",
    "adam_derivative_scores",
    "adam_direction_scores",
    "adam_step",
    "preconditioned_ghost_kernel",
    "preconditioned_ghost_scores",
]
