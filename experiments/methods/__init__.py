"""Ways to choose what a step trains on: each says what it sees, what it returns and what it costs."""

from experiments.methods import choices, curated
from experiments.methods.base import METHODS, Outcome, Run, Task, train

__all__ = ["METHODS", "Outcome", "Run", "Task", "train"]
_ = choices, curated  # importing them enters their methods
