"""What hypothesis draws for networks: shapes from ranges, entries with ties, zeros and ends, which shrink.

`GENERATORS` stands where a seed stood: `np.random.default_rng` hands a generator back as it is, so that
hypothesis draws what a test or a family of networks draws, entry by entry, and shrinks it to zeros and ends.
A seed plus a number is another seed; a generator plus a number is the same one, whose next draws are others.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.support.networks import Shape

LEVELS = np.array([0.0, *(sign * n / 4 for n in range(1, 17) for sign in (1, -1))])
"""What a normal entry may be: zero first, to which entries shrink."""


class Drawn(np.random.Generator):
    """A generator whose numbers hypothesis draws: a byte for each, so that ties and ends come up."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        super().__init__(np.random.PCG64(0))
        self._draw = draw
        self._seen: list[Any] = []

    def __getattribute__(self, name: str) -> Any:
        """Refuse what would draw from numpy's own bits, the same ones in each example."""
        if not name.startswith("_") and name not in vars(Drawn):
            msg = f"{name}: expected a method of {type(self).__name__}, got one that hypothesis does not draw"
            raise AttributeError(msg)
        return super().__getattribute__(name)

    def __add__(self, other: int) -> Drawn:
        return self

    def __repr__(self) -> str:
        return f"a generator of the bytes {[drawn.tolist() for drawn in self._seen]}"

    def _bytes(self, size: Any) -> Any:
        count = 1 if size is None else prod(np.atleast_1d(size).tolist())
        drawn = np.frombuffer(self._draw(st.binary(min_size=count, max_size=count)), dtype=np.uint8)
        self._seen.append(drawn)
        return int(drawn[0]) if size is None else drawn.astype(int).reshape(size)

    def standard_normal(self, size: Any = None) -> Any:
        return LEVELS[self._bytes(size) % len(LEVELS)]

    def normal(self, loc: float = 0.0, scale: float = 1.0, size: Any = None) -> Any:
        """Draw `loc` plus multiples of a quarter of `scale`."""
        return loc + scale * self.standard_normal(size)

    def uniform(self, low: float = 0.0, high: float = 1.0, size: Any = None) -> Any:
        """Draw from the low end to the high one, both included."""
        return low + (high - low) * (self._bytes(size) / 255)

    def random(self, size: Any = None) -> Any:
        """Draw from 0 up to 1, which is left out."""
        return self._bytes(size) / 256

    def integers(self, low: int, high: int | None = None, size: Any = None) -> Any:
        """Draw integers below the high end; short ranges alone."""
        low, high = (0, low) if high is None else (low, high)
        return low + self._bytes(size) % (high - low)

    def choice(self, options: Any, size: Any = None) -> Any:
        return np.asarray(options)[self._bytes(size) % len(options)]

    def permutation(self, count: int) -> Any:
        """Draw an order; the first one is unchanged."""
        return np.argsort(self._bytes(count), kind="stable")

    def dirichlet(self, alpha: Any) -> Any:
        """Draw shares that add up to 1, none of them 0; equal ones first."""
        sizes = 1.0 + self._bytes(len(alpha))
        return sizes / sizes.sum()


@st.composite
def generators(draw: Callable[[Any], Any]) -> Drawn:
    """Draw a generator; what it gives later belongs to the same example."""
    return Drawn(draw)


GENERATORS = generators()
SHAPES = st.builds(
    Shape,
    nets=st.just(1),
    depth=st.integers(1, 6),
    width=st.integers(1, 4),
    n_val=st.integers(1, 3),
    n_train=st.integers(1, 4),
)
"""One network of a few layers, with one sample or more on either side."""
