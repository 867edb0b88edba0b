"""Ways to choose what a step trains on: each says what it sees, what it returns and what it costs."""

from collections.abc import Callable

from experiments.methods import choices, curated, redundant, static
from experiments.methods.base import METHODS, Outcome, Run, Step, Task, train

__all__ = ["BACKENDS", "METHODS", "Outcome", "Run", "Task", "start_of", "train"]
_ = choices, curated, redundant, static  # importing them enters their methods
BACKENDS = ("torch", "jax")


def start_of(name: str, backend: str) -> Callable[[Run], Step]:
    """Return the start of a method's run in a framework, which is imported only now."""
    if backend == "torch":
        return METHODS[name]
    from experiments.methods import in_jax

    return in_jax.start(name)
