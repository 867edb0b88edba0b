"""What backward passes with powers of two as the losses' weights tell about a gradient, by torch alone.

The oracle is one backward pass for each loss: its gradient at every tensor inside the network.
"""

import itertools
import operator
from fractions import Fraction

import pytest
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st
from torch import nn
from torch.autograd.graph import get_gradient_edge

from tests.support.inequalities import SEEDS

POSITIONS, WIDTH = 2, 3
DTYPES = st.sampled_from([torch.float32, torch.float64])
EXPONENTS = st.lists(st.integers(0, 63), min_size=2, max_size=5, unique=True)


def attend(x, w):
    attended = (x @ w @ x.mT).softmax(-1)
    return attended, attended @ x


def merge(x, w):
    rows = x.reshape(-1, WIDTH)
    product = rows @ w
    return rows, product, product.reshape(x.shape)


def permute(x, w):
    moved = x.permute(1, 2, 0)
    product = w @ moved
    return moved, product, product.permute(2, 0, 1)


def interleave(x, w):
    rows = x.transpose(0, 1).reshape(-1, WIDTH)
    product = rows @ w
    return rows, product, product.reshape(POSITIONS, -1, WIDTH).transpose(0, 1)


def join(x, w):
    joined = torch.cat([x, x * x], -1)
    return joined, joined @ torch.cat([w, w.T])


OPERATIONS = {
    "matmul": lambda x, w: (x @ w,),
    "tanh": lambda x, w: (x.tanh(),),
    "relu": lambda x, w: (x.relu(),),
    "softmax": lambda x, w: (x.softmax(-1),),
    "layer norm": lambda x, w: (nn.functional.layer_norm(x, (WIDTH,)),),
    "attention": attend,
    "positions merged with samples": merge,
    "samples last": permute,
    "samples inside positions": interleave,
    "cat": join,
}
NETWORKS = st.lists(st.sampled_from(sorted(OPERATIONS)), min_size=1, max_size=5)


def gradients(operations, samples, seed, dtype, *, before=lambda x: x):
    """Return the function from weights of the losses to the gradients at all tensors inside a network."""
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=draw, dtype=torch.float64).to(dtype)

    x = normal(samples, POSITIONS, WIDTH).requires_grad_()
    inside = [x, before(x)]
    for name in operations:
        inside += OPERATIONS[name](inside[-1], normal(WIDTH, WIDTH).requires_grad_())
    losses = (inside[-1] * normal(*inside[-1].shape)).sum((1, 2))
    edges = [get_gradient_edge(tensor) for tensor in inside]
    return lambda weights: torch.autograd.grad(losses, edges, weights.to(dtype), retain_graph=True)


def powers(exponents):
    return torch.tensor([2.0**k for k in exponents], dtype=torch.float64)


@given(operations=NETWORKS, exponents=EXPONENTS, seed=SEEDS, dtype=DTYPES)
def test_every_entry_is_scaled_by_its_own_samples_power_bit_for_bit(operations, exponents, seed, dtype):
    samples = len(exponents)
    backward = gradients(operations, samples, seed, dtype)
    plain, scaled = backward(torch.ones(samples)), backward(powers(exponents))
    alone = [backward(one) for one in torch.eye(samples)]
    for first, second, *own in zip(plain, scaled, *alone, strict=True):
        sizes = first[first != 0].abs()
        assume(not sizes.numel() or (sizes.min() > 2.0**-100 and sizes.max() < 2.0**60))
        reached = torch.stack(own) != 0
        assert bool((reached.sum(0) <= 1).all())
        weights = (reached * powers(exponents).view(-1, *[1] * first.ndim)).sum(0).to(dtype)
        assert torch.equal(second, first * weights)


@given(operations=NETWORKS, exponents=EXPONENTS, seed=SEEDS, dtype=DTYPES)
def test_a_statistic_of_the_batch_is_seen(operations, exponents, seed, dtype):
    backward = gradients(operations, len(exponents), seed, dtype, before=lambda x: x - x.mean(0))
    plain, scaled = backward(torch.ones(len(exponents)))[0], backward(powers(exponents))[0]
    assume(bool(plain.abs().max() > 1e-3))
    assert not torch.equal(plain * powers(exponents).to(dtype).view(-1, 1, 1), scaled)


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
