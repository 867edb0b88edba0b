"""What backward passes with powers of two as the weights of losses leave open, by torch alone."""

import itertools
import operator

import pytest
import torch


def hidden(samples, own, most=3):
    """List the gradients of the other losses that pass as sample `own`'s under weights 1, 2, 4, ..."""
    others = [i for i in range(samples) if i != own]
    grid = itertools.product(range(-most, most + 1), repeat=samples - 1)
    gaps = [2**i - 2**own for i in others]
    return [c for c in grid if any(c) and not sum(map(operator.mul, gaps, c))]


@pytest.mark.equation("sample-ownership")
def test_smallest_hidden_mixture():
    assert not hidden(2, 0)
    assert not hidden(2, 1)
    found = {(own, c) for own in range(3) for c in hidden(3, own)}
    smallest = min(sum(map(abs, c)) for _, c in found)
    assert {(own, c) for own, c in found if sum(map(abs, c)) == smallest} == {(1, (2, 1)), (1, (-2, -1))}


class Mixing(torch.autograd.Function):
    """The identity, whose backward pass adds to sample 1 what goes into losses 0 and 2."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        mixed = gradient.clone()
        mixed[1] += 2 * gradient[0] + gradient[2]
        return mixed


MIXED = torch.tensor([[1.0, 2.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 1.0]])


@pytest.mark.equation("sample-ownership")
@pytest.mark.parametrize(
    ("mix", "unchanged"),
    [(Mixing.apply, True), (lambda x: MIXED @ x, False)],
    ids=["backward", "forward too"],
)
def test_three_samples_pass_though_mixed(mix, unchanged):
    x = torch.tensor([0.5, -1.0, 3.0], requires_grad=True)
    losses = mix(x)

    def passes(*weights):
        sides = (torch.ones(3), torch.tensor(weights))
        plain, scaled = (torch.autograd.grad(losses, x, w, retain_graph=True)[0] for w in sides)
        return torch.equal(plain * sides[1], scaled)

    assert passes(1.0, 2.0, 4.0)
    assert not passes(1.0, 4.0, 2.0)  # another equation: both together leave nothing in the way
    with torch.no_grad():
        exchanged = mix(x[[0, 0, 2]])  # sample 1 replaced by a copy of sample 0; losses 0 and 2 stay
    # the exchange sees what the forward pass does, and nothing else
    assert torch.equal(exchanged[[0, 2]], losses[[0, 2]]) == unchanged
