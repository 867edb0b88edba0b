"""Warnings that the peers' ways of working raise, and that say nothing about this project's."""

import warnings
from collections.abc import Iterator

import pytest

# opacus and BackPACK hook every layer's backward pass. The first layer's input is data, which needs
# no gradient; torch warns that the hook then sees the output's gradient alone, the one they use.
FIRST_LAYER = "Full backward hook is firing when gradients are computed with respect to module outputs"

# kronfluence makes a gradient scaler, switched off, by the name that torch had for it.
SCALER = r"`torch.cuda.amp.GradScaler\(args...\)` is deprecated"


@pytest.fixture(autouse=True)
def _ways_of_the_peers() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=FIRST_LAYER, category=UserWarning)
        warnings.filterwarnings("ignore", message=SCALER, category=FutureWarning)
        yield
