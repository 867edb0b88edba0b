"""Samples whose gradients nearly cancel in the sum, or are one vector: no check refuses them for roundings.

And no check loses sight of a single sample among many.
"""

from types import SimpleNamespace
from unittest import mock

import lai_torch
import pytest
import torch
from lai_torch._curation.passes.synchronised import check_synchronised
from lai_torch._curation.processes.group import Alone
from lai_torch._model.sample_axis import SampleAxis
from lai_torch._recording.record import record
from torch import nn

from tests.lai_torch.selective_support import Selective
from tests.lai_torch.support import LOSS
from tests.support.torch_modules import held, holding

WIDTH = 24


def squares(outputs, targets):
    return (outputs - targets).square().sum(1)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, 33), nn.LayerNorm(33), nn.GELU(), nn.Linear(33, 5)).float()


def paired(model, samples):
    """Return a batch in which every two samples have gradients that add up to zero, but for roundings."""
    inputs = torch.randn(samples // 2, WIDTH).repeat(2, 1)
    away = torch.randn(samples // 2, 5)
    with torch.no_grad():
        return inputs, model(inputs) + torch.cat([away, -away])


@holding(
    lambda: held(
        left=nn.Parameter(torch.randn(8, 12)),
        heads=nn.Parameter(torch.randn(8, 2, 4)),
        attention=nn.MultiheadAttention(8, 2),
        norm=nn.GroupNorm(2, 8),
        head=nn.Linear(8, 4),
    )
)
def from_left(own, inputs):
    """Apply a product `W a`, an einsum, and attention of which time comes first."""
    steps = (own.left @ inputs).transpose(1, 2)
    mixed = torch.einsum("bti,ihk->bthk", torch.relu(steps), own.heads).flatten(2)
    found, _ = own.attention(*[mixed.transpose(0, 1)] * 3)
    return own.head(torch.relu(own.norm(found.permute(1, 2, 0))).mean(2))


def images(norm):
    return nn.Sequential(nn.Conv2d(3, 8, 3), norm, nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 4))


MODELS = {
    "batch norm": (lambda: images(nn.BatchNorm2d(8)), (3, 6, 6)),
    "group norm": (lambda: images(nn.GroupNorm(4, 8)), (3, 6, 6)),
    "instance norm": (lambda: images(nn.InstanceNorm2d(8, affine=True)), (3, 6, 6)),
    "layer norm": (
        lambda: nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 4)),
        (8,),
    ),
    "products": (from_left, (12, 5)),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_recorded_pass_has_the_values_of_the_plain_one(name):
    build, shape = MODELS[name]
    torch.manual_seed(0)
    model, inputs, targets = build().float(), torch.randn(64, *shape), torch.arange(64) % 4
    for parameter in model.parameters():
        parameter.data.add_(0.3 * torch.randn(parameter.shape))
    for _ in range(3):
        model(inputs)  # for running statistics
    recording = record(model.eval(), LOSS, inputs, targets, every_layer=True)
    assert not recording.per_sample
    assert torch.equal(recording.losses, LOSS(model(inputs), targets).detach())


@pytest.mark.parametrize("samples", [8, 64])
def test_copies_of_one_sample_are_no_error(samples):
    inputs, targets = (
        torch.randn(1, WIDTH).expand(samples, -1).clone(),
        torch.zeros(samples, dtype=torch.long),
    )
    assert lai_torch.trace(network(), LOSS, inputs, targets, gradients="all").layers


def test_a_selective_gradient_that_cancels_is_not_refused():
    model = network()
    inputs, targets = paired(model, 512)
    kept = torch.rand(256).repeat(2) < 0.5
    passed = Selective(model, squares)
    passed.forward(inputs, targets)
    passed.backward(kept / kept.sum())
    assert passed.taken.proved


def test_one_percent_of_one_row_in_a_selective_gradient_is_seen():
    model, inputs = network(), torch.randn(1, WIDTH) + 0.1 * torch.randn(512, WIDTH)  # all push one way
    targets = torch.full((512, 5), 3.0)
    passed, own = Selective(model, squares), SampleAxis.weighted
    passed.forward(inputs, targets)

    def wrong(self, value, weights):
        changed = weights.clone()
        changed[3] *= 1.01 if len(weights) < 512 else 1.0
        return own(self, value, changed)

    with (
        mock.patch.object(SampleAxis, "weighted", wrong),
        pytest.raises(ValueError, match="differs from the"),
    ):
        passed.backward((torch.arange(512) % 2 == 0) / 256)


def test_a_selfcheck_of_gradients_that_cancel_finds_roundings():
    model = network()
    found = lai_torch.selfcheck(model, squares, *paired(model, 32))
    assert max(found.exact, found.relative_error) < 1e-5


def test_a_selfcheck_of_a_backward_pass_that_cancels_finds_roundings():
    model = network()
    inputs, away = torch.randn(1, WIDTH).expand(64, -1), torch.randn(64)
    kept = torch.arange(0, 64, 2)  # one of the sets that are tried, sample j with weight (j + 1) / 64
    away[0] -= ((kept + 1) * away[kept]).sum()
    with torch.no_grad():
        targets = model(inputs) + away[:, None] * torch.randn(5)
    found = lai_torch.selfcheck(model, squares, inputs, targets, backward="selective")
    assert max(found.backward.values()) < 1e-5


class Two(Alone):
    """Two processes, seen from one of them."""

    size = 2


def synchronised(change):
    """Check a wrapper that leaves `change(one process's sum, both processes' sum)` of terms that cancel."""
    torch.manual_seed(0)
    terms = torch.randn(24, 100)
    terms -= (1 - 1e-3) * terms.mean(0)
    expected, size = terms.sum(0), float(terms.norm())
    model = nn.Linear(100, 1, bias=False)
    model.weight.grad = change(terms, expected).reshape(1, 100)
    engine = SimpleNamespace(model=model, group=Two(), proved=False, divides=True)
    check_synchronised(engine, "weight", expected.reshape(1, 100), size)
    return engine


def test_a_wrapper_that_sums_a_gradient_which_cancels_in_few_digits_is_not_refused():
    engine = synchronised(lambda terms, expected: terms.bfloat16().float().sum(0))
    assert not engine.proved  # the sum and its double are both within roundings


def test_a_wrapper_that_leaves_one_processs_sum_is_seen_where_both_cancel():
    with pytest.raises(ValueError, match="expected its wrapper to average"):
        synchronised(lambda terms, expected: terms[:12].sum(0))


@pytest.mark.parametrize("factor", [1, 2])
def test_a_wrapper_that_sums_is_told_from_one_that_averages(factor):
    torch.manual_seed(0)
    model, expected = nn.Linear(100, 1, bias=False), torch.randn(1, 100)
    model.weight.grad = factor * expected
    engine = SimpleNamespace(model=model, group=Two(), proved=False, divides=True)
    check_synchronised(engine, "weight", expected, float(expected.norm()))
    assert engine.proved
    assert engine.divides == (factor == 1)
    torch.testing.assert_close(model.weight.grad, expected)
