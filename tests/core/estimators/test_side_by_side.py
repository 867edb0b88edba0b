"""Blocks of columns that are multiplied as one give what block by block gives."""

import numpy as np
import pytest

import lai_core as lai
from lai_core._engine import outer, pairs
from tests.support.traces import Layout, trace

LAYOUT = Layout(((3, 2), (4, 3), (2, 5)), bias=(True, False, True))


def found(backend, weights):
    validation, training = (trace(LAYOUT.draw(n, n), backend) for n in (6, 4))
    options = {"layer_weights": weights}
    results = [score(validation, training, **options) for score in (lai.lai_kernel, lai.lai_scores)]
    results.append(lai.lai_scores(lai.summarize(validation, "lai"), training, **options))
    return [backend.numpy(each) for each in results]


@pytest.mark.parametrize("weights", [None, [0.5, -2.0, 1.0]])
def test_small_blocks_are_one_product(backend, monkeypatch, weights):
    products = []
    for module in (outer, pairs):
        own = module.matmul
        monkeypatch.setattr(module, "matmul", lambda *given, own=own: products.append(1) or own(*given))
    together = found(backend, weights)
    calls, products[:] = len(products), []
    monkeypatch.setattr(pairs, "FEW", 0)
    for one, other in zip(together, found(backend, weights), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-13 * np.abs(other).max())
    assert calls < len(products)
