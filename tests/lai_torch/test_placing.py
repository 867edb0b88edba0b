"""What backward passes with powers of two as the weights of losses leave open, by torch alone."""

import itertools
import operator
from fractions import Fraction

import pytest
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st


def test_counterexample_of_a_coupled_batch_in_which_every_entry_is_of_one_loss():
    """An entry that passes as loss j's goes into loss j; whose data it is made of it does not say."""
    x = torch.tensor([[3.0, 1.0], [1.0, 3.0]], requires_grad=True)
    losses = (x - x.mean(0)).relu().sum(1)
    sides = torch.ones(2), torch.tensor([1.0, 2.0])
    plain, scaled = (torch.autograd.grad(losses, x, w, retain_graph=True)[0] for w in sides)
    assert torch.equal(scaled, plain * sides[1])  # column j by weight j, in the rows of both samples


def hidden(samples, own, most=3):
    """List the gradients of the other losses that pass as sample `own`'s under weights 1, 2, 4, ..."""
    others = [i for i in range(samples) if i != own]
    grid = itertools.product(range(-most, most + 1), repeat=samples - 1)
    gaps = [2**i - 2**own for i in others]
    return [c for c in grid if any(c) and not sum(map(operator.mul, gaps, c))]


@pytest.mark.equation("sample-ownership")
def test_counterexample_of_three_samples_is_the_smallest():
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
def test_counterexample_of_three_samples_passes_though_it_mixes(mix, unchanged):
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


@pytest.mark.parametrize(
    ("gradient", "factors"),
    [(2.0**70, [1.0]), (1.0, [2.0**60, 1.1 * 2.0**-80, 2.0**-60]), (1.0, [2.0**-80, 2.0**-80])],
    ids=["overflow", "an intermediate result of few digits", "underflow to zero"],
)
def test_counterexample_outside_of_the_normal_range_is_one_samples_own_and_is_not_scaled(gradient, factors):
    x = torch.tensor(gradient, requires_grad=True)
    loss = x
    for factor in factors:
        loss = loss * factor
    plain, scaled = (
        torch.autograd.grad(loss, x, torch.tensor(w) * gradient, retain_graph=True)[0] for w in (1, 2.0**63)
    )
    assert float(scaled) / 2.0**63 != float(plain)


UNIT = Fraction(1, 2**24)


@given(
    own=st.floats(1, 2, width=32),
    others=st.lists(st.floats(-(2.0**-20), 2.0**-20, width=32), min_size=1, max_size=3),
    exponents=st.permutations(range(4)),
)
@example(own=1.0, others=[1.4375 * 2.0**-24], exponents=[0, 1, 2, 3])
def test_what_passes_in_spite_of_mixing_is_of_the_size_of_the_roundings(own, others, exponents):
    """The bound of the guide: gamma (sum_i (w_i + w_j) A_i), sample j first."""
    terms, weights = [own, *others], [2.0**k for k in exponents[: 1 + len(others)]]
    assume(all(term == 0 or abs(term) > 2.0**-100 for term in terms))
    plain, scaled = torch.tensor(0.0), torch.tensor(0.0)
    for term, weight in zip(terms, weights, strict=True):
        plain, scaled = plain + term, scaled + torch.tensor(term) * weight
    foreign = sum(
        (Fraction(w) - Fraction(weights[0])) * Fraction(c) for w, c in zip(weights, terms, strict=True)
    )
    gamma = len(others) * UNIT / (1 - len(others) * UNIT)
    sizes = (Fraction(w + weights[0]) * abs(Fraction(c)) for w, c in zip(weights, terms, strict=True))
    if plain * weights[0] == scaled:
        assert abs(foreign) <= gamma * sum(sizes)
        if len(others) == 1:
            assert abs(Fraction(others[0])) <= gamma * (3 * abs(Fraction(others[0])) + 4 * Fraction(own))
