"""What the tests of both adapters share: one seed and one policy."""

import functools
from collections.abc import Iterator

import pytest
import torch

import lai_core as lai

HALF = functools.partial(lai.keep_top, fraction=0.5)


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
