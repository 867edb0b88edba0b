"""Operations of a training run, counted in some of its steps: products and convolutions, scoring included."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.workloads.counts import Counts

EVERY = 23
"""Which steps are watched: watching slows a step down. Prime, so that it meets no period of a method's."""


class Meter:
    """Counts the operations of every 23rd step and times the others; each set stands for all on average."""

    def __init__(self) -> None:
        self.steps = self.watched = self.counted = self.apart = 0
        self.timed = 0.0

    @contextmanager
    def step(self) -> Iterator[None]:
        """Count the operations of one step, or its seconds."""
        self.steps += 1
        if (self.steps - 1) % EVERY:
            start = time.perf_counter()
            yield
            self.timed += time.perf_counter() - start
            return
        with Counts() as seen:
            yield
        self.watched += 1
        self.counted += seen.flops

    @contextmanager
    def all(self) -> Iterator[None]:
        """Count everything, for what is done once: a guide's training, a pass over the whole set."""
        with Counts() as seen:
            yield
        self.apart += seen.flops

    @property
    def total(self) -> float:
        return self.apart + (self.counted * self.steps / self.watched if self.watched else 0.0)

    @property
    def seconds(self) -> float:
        return self.timed * self.steps / max(1, self.steps - self.watched)
