"""Sketches of gradients, which a proof compares in place of whole ones."""

import pytest
import torch
from lai_torch._graph.prove import SMALL, Sketch


@pytest.mark.parametrize("shape", [(200, 300), (20, 40, 30), (3, 5)])
def test_sketches_keep_distances(shape):
    torch.manual_seed(1)
    gradient = torch.randn(shape, dtype=torch.float64)
    small, column = gradient.clone(), gradient.clone()
    small.view(-1)[-1] += 1e-6
    column[..., 0] *= 1.001
    own = Sketch.project_gradient(gradient)
    assert own.values.numel() <= max(SMALL, gradient.numel() // 20)
    assert own.distance(Sketch.project_gradient(gradient.clone())) == 0.0
    assert own.size() == pytest.approx(float(gradient.norm()), rel=0.35)
    for other in (small, column):
        apart = float((gradient - other).norm())
        assert own.distance(Sketch.project_gradient(other)) == pytest.approx(apart, rel=0.5)
        assert own.compare(other, "weight") == pytest.approx(apart, rel=0.5)
    if len(shape) == 2:  # a record of the transposed matrix
        assert own.compare(gradient.mT, "weight") < 1e-10
    if len(shape) == 3:  # a record of one of the matrices
        assert own.compare(gradient[2].mT, "weight[2]") < 1e-10
        assert own.compare(gradient[2], "weight[1]") > 1.0
    assert own.distance(Sketch()) == own.size()  # nothing arrives at the parameter
