"""Scores are in full precision, wherever they are asked for; a model that computes in few digits is named."""

import copy
import itertools
import re
import warnings

import lai_torch
import pytest
import torch
from accelerate import Accelerator
from torch import nn

import lai_core as lai
from tests.lai_torch.exact_support import by_autograd
from tests.lai_torch.support import LOSS

ESTIMATORS = (
    "ghost",
    "lai",
    "lli",
    "preconditioned_lai",
    "calibrated_lai",
    "gate_lai",
    "exact",
    "midpoint",
    lai_torch.LAI(sketch=4),
)


def network():
    widths = (32, 64, 48, 10)
    layers = [nn.Linear(*pair) for pair in itertools.pairwise(widths)]
    return nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])


def batch(n):
    return torch.randn(n, 32), torch.arange(n) % 10


def bfloat16():
    return torch.autocast("cpu", torch.bfloat16)


@pytest.mark.parametrize("source", ["set", "batch+self"])
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=str)
def test_a_curator_scores_under_autocast_as_outside(estimator, source):
    if source != "set" and estimator == "calibrated_lai":
        source = "set"  # it is fitted on one
    model, validation, training = network(), batch(20), batch(16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def scores():
        curator = lai_torch.Curator(
            model,
            LOSS,
            optimizer,
            validation if source == "set" else source,
            estimator=estimator,
            generator=torch.Generator().manual_seed(0),
        )
        return curator.score(*training)[1].scores

    expected = scores()
    with bfloat16():
        got = scores()
    assert got.dtype == expected.dtype
    assert torch.equal(got, expected)


def test_scores_by_hand_and_the_selfcheck_are_under_autocast_as_outside():
    model, training = network(), batch(6)
    trace = lai_torch.trace(model, LOSS, *training, gradients="all")
    expected = lai.ghost_scores(trace, trace), lai.lai_kernel(trace, trace)
    with bfloat16():
        found = lai.ghost_scores(trace, trace), lai.lai_kernel(trace, trace)
        assert lai_torch.selfcheck(model, LOSS, *training).relative_error < 1e-5
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("estimator", ["ghost", "exact"])
def test_a_model_of_mixed_precision_is_named_and_scored_as_the_function_that_trains(estimator):
    plain, validation, training = network(), batch(20), batch(16)
    model = Accelerator(mixed_precision="bf16", cpu=True).prepare(copy.deepcopy(plain))
    curator = lai_torch.Curator(model, LOSS, None, validation, estimator=estimator)
    with pytest.warns(UserWarning, match=re.escape("this one switches on autocast (bfloat16) by itself")):
        scores = curator.score(*training)[1].scores.double()
    own, other = (by_autograd(each, validation, training).double() for each in (model, plain))
    error, apart = (float((scores - each).abs().max() / each.abs().max()) for each in (own, other))
    assert error < 0.01  # the oracle's own products are in bfloat16
    assert error < 0.3 * apart


def test_a_model_in_its_own_precision_is_not_named():
    model, validation, training = network(), batch(20), batch(16)
    with bfloat16(), warnings.catch_warnings():
        warnings.simplefilter("error")
        for estimator in ("ghost", "exact", "lai"):
            lai_torch.Curator(model, LOSS, None, validation, estimator=estimator).score(*training)
