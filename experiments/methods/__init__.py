"""Ways to choose what a step trains on: each says what it sees, what it returns and what it costs."""

from experiments.methods import (
    curated,
    held_out,
    losses,
    redundant,
    references,
    remembered,
    static,
    steadier,
)
from experiments.methods.base import METHODS, Method, Outcome, Run, Task, train

__all__ = ["METHODS", "Method", "Outcome", "Run", "Task", "train"]
_ = curated, held_out, losses, references, remembered, static  # importing them enters their methods
_ = redundant, steadier
