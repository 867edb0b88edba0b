"""Samples that meet in the backward pass alone are refused by every estimator, when they begin to."""

import lai_torch
import pytest
import torch
from lai_torch._recording.proving.backward import FOLD, _folded
from torch import nn

from tests.lai_torch.support import LOSS
from tests.support.torch_modules import Part

N = 6
COUPLED = r"coupled|add up|its own"
ESTIMATORS = pytest.mark.parametrize("estimator", ["lai", "lli", "ghost", "exact"])


class Centred(torch.autograd.Function):
    """Its gradient is centred over the batch."""

    @staticmethod
    def forward(ctx, values):
        return values.clone()

    @staticmethod
    def backward(ctx, gradients):
        return gradients - gradients.mean(0)


class Own(torch.autograd.Function):
    """Its gradient is another one than that of its values, sample by sample."""

    @staticmethod
    def forward(ctx, values):
        return values.round()

    @staticmethod
    def backward(ctx, gradients):
        return -gradients


def net(function=torch.tanh):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(4, 7), nn.Tanh(), Part(lambda _, values: function(values)), nn.Linear(7, 3)
    ).double()


def batch(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(N, 4, generator=generator, dtype=torch.float64), torch.arange(N) % 3


def curator(model, estimator):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return lai_torch.Curator(model, LOSS, optimizer, batch(9), estimator=estimator)


def test_what_is_mixed_on_its_way_to_a_large_matrix_is_refused():
    model = nn.Sequential(
        nn.Linear(4, 1100, bias=False),
        nn.Tanh(),
        Part(lambda _, values: Centred.apply(values)),
        nn.Linear(1100, 3),
    )
    assert model[0].weight.numel() > FOLD
    with pytest.raises(ValueError, match=r"what some samples give to the gradient of '0\.weight'"):
        curator(model.double(), "lai").step(*batch())


def test_a_folded_gradient_has_the_norm_of_its_entries():
    torch.manual_seed(0)
    for rank in (1, 300):
        gradient = torch.randn(300, rank, dtype=torch.float64) @ torch.randn(rank, 301, dtype=torch.float64)
        assert float(_folded(gradient).norm() / gradient.norm()) == pytest.approx(1.0, abs=0.05)
    small = torch.randn(5, 7)
    assert torch.equal(_folded(small), small.flatten())


@ESTIMATORS
def test_an_embedding_that_divides_by_the_batch_s_counts_is_refused(estimator):
    table = nn.Embedding(5, 7, scale_grad_by_freq=True)
    model = nn.Sequential(table, nn.Flatten(), nn.Linear(14, 3)).double()
    ids = torch.tensor([[0, 1], [0, 2], [3, 0], [4, 4], [1, 0], [2, 3]])
    taken = lai_torch.Curator(model, LOSS, None, (ids, batch()[1]), estimator=estimator)
    with pytest.raises(ValueError, match=COUPLED):
        taken.score(ids, batch()[1])


@ESTIMATORS
def test_a_module_s_hook_that_mixes_is_refused_when_it_comes(estimator):
    model = net()
    taken = curator(model, estimator)
    taken.step(*batch())
    hook = model[1].register_full_backward_hook(lambda module, given, got: (given[0] - given[0].mean(0),))
    with pytest.raises(ValueError, match=COUPLED):
        taken.step(*batch(1))
    hook.remove()
    taken.step(*batch(1))


@pytest.mark.parametrize("estimator", ["ghost", "exact"])
def test_a_hook_on_a_parameter_that_comes_later_is_seen(estimator):
    model = net()
    taken = curator(model, estimator)
    taken.step(*batch())
    model[0].weight.register_hook(lambda gradient: gradient.clamp(-1e-3, 1e-3))
    with pytest.raises(ValueError, match="hook"):
        taken.step(*batch(1))


@ESTIMATORS
def test_a_backward_pass_of_each_sample_s_own_is_scored(estimator):
    model = net(Own.apply)
    if estimator in {"lai", "lli"}:
        model[1].register_full_backward_hook(lambda module, given, got: (given[0] * 2,))
    assert curator(model, estimator).step(*batch()).kept
