"""Fixtures that the tests of both adapters run under."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    """Draw from one seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
