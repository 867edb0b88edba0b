"""Hunting for violations: hypothesis is told how near a point comes, and climbs."""

from collections.abc import Callable

from hypothesis import HealthCheck, Phase, given, settings, target
from hypothesis import strategies as st


def largest_margin(points: st.SearchStrategy, margin: Callable[..., float], examples: int = 200) -> float:
    """Return the largest `margin` met while hypothesis drives it up; the same on every run."""
    met: list[float] = []

    @settings(
        max_examples=examples,
        database=None,
        derandomize=True,
        deadline=None,
        phases=(Phase.generate, Phase.target),
        suppress_health_check=list(HealthCheck),
    )
    @given(points)
    def hunt(point: object) -> None:
        value = float(margin(point))
        met.append(value)
        target(value)

    hunt()
    return max(met)
