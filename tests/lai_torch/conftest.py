"""Every test of the torch adapter draws from one seed, and finds accelerate as if it were the first."""

import sys
from collections.abc import Iterator

import pytest

from tests.support.fixtures import seeded

__all__ = ["forgetting", "seeded"]


@pytest.fixture(autouse=True)
def forgetting() -> Iterator[None]:
    """Let accelerate forget the settings of the first `Accelerator`, which hold for all later ones."""
    yield
    if state := sys.modules.get("accelerate.state"):
        state.AcceleratorState._reset_state(reset_partial_state=True)
        state.GradientState._reset_state()
