"""Warnings that the peers' ways of working raise, and that say nothing about ours."""

import warnings
from collections.abc import Iterator

import pytest

# opacus and BackPACK hook every layer's backward pass. The first layer's input is data, which needs
# no gradient; torch warns that the hook then sees the output's gradient alone, the one they use.
FIRST_LAYER = "Full backward hook is firing when gradients are computed with respect to module outputs"


@pytest.fixture(autouse=True)
def _hooks_on_the_first_layer() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=FIRST_LAYER, category=UserWarning)
        yield
