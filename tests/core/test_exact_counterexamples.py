"""A counterexample for each statement that is false as printed, in integers and fractions alone.

Each test first shows that the example satisfies what the paper assumes there, then that the statement fails.
Nothing of the library is used, and nothing is rounded.
"""

from fractions import Fraction
from itertools import pairwise, product

import pytest


def extremal(rho, depth):
    """Give alphas, similarities and norms of the linear network of width two with matrices diag(rho, 1).

    The input is (0, 1), which every layer keeps: all alphas are 1. The last gradient is (1, 0), which every
    layer shortens by rho.
    """
    activations, gradients = [(0, 1)], [(1, 0)]
    for _ in range(depth - 1):
        activations.append((rho * activations[-1][0], activations[-1][1]))
        gradients.insert(0, (rho * gradients[0][0], gradients[0][1]))
    squares = [[x * x + y * y for x, y in side] for side in (activations, gradients)]
    return *squares, [abs(x) for x, _ in gradients]


def holds_a1_to_a3(alpha, beta, norms, rho, bound):
    """A1: norms decay; A2: alphas are bounded; A3 and its variant: similarities agree and do not expand."""
    top = len(alpha) - 1
    decays = all(norms[layer] <= rho ** (top - layer) * norms[top] for layer in range(top + 1))
    bounded = all(abs(a) <= bound**2 for a in alpha)
    aligned = all(0 <= b <= beta[top] for b in beta)
    return decays and bounded and aligned


def gap_and_lai(alpha, beta):
    ghost = sum(a * b for a, b in zip(alpha, beta, strict=True))
    lai = sum(alpha) * beta[-1]
    return abs(ghost - lai), lai


@pytest.mark.equation("app-abs-gap", "app-rel-gap")
@pytest.mark.parametrize("rho", [Fraction(1, 10), Fraction(1, 2), Fraction(7, 10)])
def test_exact_counterexample_to_both_geometric_bounds(rho):
    alpha, beta, norms = extremal(rho, 2)
    assert holds_a1_to_a3(alpha, beta, norms, rho, 1)
    gap, lai = gap_and_lai(alpha, beta)
    assert gap == 1 - rho**2 > rho**2 * beta[-1]
    if 3 * rho**2 < 1:  # alpha-bar is 1
        assert gap / lai > rho**2


@pytest.mark.equation("decays-with-depth")
def test_exact_counterexample_the_relative_error_grows_with_depth():
    rho, errors, printed = Fraction(1, 2), [], []
    for depth in (2, 3, 4, 8):
        alpha, beta, norms = extremal(rho, depth)
        assert holds_a1_to_a3(alpha, beta, norms, rho, 1)
        gap, lai = gap_and_lai(alpha, beta)
        errors.append(gap / lai)
        printed.append(sum(rho ** (2 * k) for k in range(1, depth)))
    assert errors[:3] == [Fraction(3, 8), Fraction(9, 16), Fraction(171, 256)]
    assert all(below < above for row in (errors, printed) for below, above in pairwise(row))


@pytest.mark.equation("influence", "negative-is-discarded")
def test_exact_counterexample_removal_has_the_other_sign_and_the_rule_keeps_what_hurts():
    """Fit the mean of 0 and 2 by squares; validate on 0."""
    points, target = [Fraction(0), Fraction(2)], Fraction(0)
    minimiser = sum(points) / 2
    hessian = Fraction(2)  # of the sum of (theta - x)^2 / 2
    gradients = [minimiser - x for x in points]
    assert sum(gradients) == 0  # stationary
    assert hessian != 0  # invertible
    printed = [-(minimiser - target) / hessian * g for g in gradients]
    before = (minimiser - target) ** 2 / 2
    change = [
        (other - target) ** 2 / 2 - before for other in reversed(points)
    ]  # the other point alone is left
    assert printed == [Fraction(-1, 2), Fraction(1, 2)]
    assert change == [
        Fraction(3, 2),
        Fraction(-1, 2),
    ]  # negative influence: yet discarding that sample raises the loss


@pytest.mark.equation("order-of-magnitude")
@pytest.mark.parametrize("widths", [(1, 1), (784, 512, 512, 10), (1, 1000, 1), (1000, 1, 1000, 1)])
def test_exact_counterexample_ghost_keeps_less_than_twice_what_lai_keeps(widths):
    """Ghost keeps inputs and gradients of every layer, LAI inputs and the last gradients."""
    inputs, outputs = sum(widths[:-1]), sum(widths[1:])
    assert inputs + outputs < 2 * (inputs + widths[-1])


@pytest.mark.equation("optimizer-preconditioning")
def test_exact_counterexample_the_printed_scaling_turns_the_sign():
    """One layer with input 1: the printed score divides by D, Adam's step by its root."""
    validation, training, second = (
        [Fraction(4), Fraction(8)],
        [Fraction(8), Fraction(-3)],
        [Fraction(16), Fraction(16) ** 2],
    )
    roots = [4, 16]
    assert [root**2 for root in roots] == second
    along_adam = sum(v * g / r for v, g, r in zip(validation, training, roots, strict=True))
    printed = sum(v * g / d for v, g, d in zip(validation, training, second, strict=True))
    plain = sum(v * g for v, g in zip(validation, training, strict=True))
    assert (along_adam, printed, plain) == (Fraction(13, 2), Fraction(61, 32), 8)
    other = [Fraction(1), Fraction(-3)]
    along_adam = sum(v * g / r for v, g, r in zip(validation, other, roots, strict=True))
    printed = sum(v * g / d for v, g, d in zip(validation, other, second, strict=True))
    assert (along_adam, printed) == (Fraction(-1, 2), Fraction(5, 32))


@pytest.mark.equation("adam-needs-moments")
def test_exact_counterexample_one_diagonal_serves_every_sample():
    """Leave bias correction and epsilon out: the slope of mean / root in a weight is g_j times one Q."""
    first, second = Fraction(9, 10), Fraction(3, 4)
    mean_before, gradients = Fraction(1), (Fraction(3), Fraction(-1))
    gradient = sum(gradients) / 2  # weights 1/2
    mean = first * mean_before + (1 - first) * gradient
    square = Fraction(4)  # after the step: what was before is chosen so
    root = Fraction(2)
    assert square - (1 - second) * gradient**2 >= 0
    # d(mean / sqrt(square)) / dw_j, by the quotient rule on that sample's own part of the gradient
    slopes = [(1 - first) * g / root - mean * (1 - second) * gradient * g / root**3 for g in gradients]
    diagonal = (1 - first) / root - mean * (1 - second) * gradient / root**3  # of the batch alone
    assert slopes == [diagonal * g for g in gradients]


@pytest.mark.equation("app-ghost-var")
def test_exact_counterexample_a_dead_layer_varies_by_one_and_is_printed_as_five():
    """A law with beta_1 = 0, beta* = +-1 with equal chances, alpha = c = (1, 1)."""
    outcomes = [(Fraction(0), Fraction(1)), (Fraction(0), Fraction(-1))]
    ghost = [sum(betas) for betas in outcomes]
    shared = [betas[1] for betas in outcomes]
    noise = [betas[0] - betas[1] for betas in outcomes]  # epsilon_1 with gain 1; epsilon_2 is 0

    def variance(values):
        mean = sum(values) / len(values)
        return sum((value - mean) ** 2 for value in values) / len(values)

    assert variance(ghost) == 1
    assert 4 * variance(shared) + variance(noise) == 5  # the printed sum, without the cross term


@pytest.mark.equation("noise-energy-floor")
def test_exact_counterexample_noise_of_any_energy_can_cancel():
    shared = [Fraction(1000), Fraction(-1000)]
    noise = [-value for value in shared]
    assert [x + y for x, y in zip(shared, noise, strict=True)] == [0, 0]
    assert sum(y**2 for y in noise) / 2 == 10**6


@pytest.mark.equation("variance-depth-growth")
def test_exact_counterexample_the_variance_grows_ever_more_slowly():
    """Layers of width one, J = 0 or 1 with equal chances; z and j draw their own; last gradients 1."""
    variances = []
    for layers in (1, 2, 3):
        draws = list(product((0, 1), repeat=2 * (layers - 1)))
        scores, rows = [], []
        for draw in draws:
            betas, beta = [Fraction(1)], Fraction(1)
            for left, right in zip(draw[::2], draw[1::2], strict=True):
                beta *= left * right
                betas.append(beta)
            rows.append(betas)
            scores.append(sum(betas))
        count = len(draws)
        means = [sum(column) / count for column in zip(*rows, strict=True)]
        covariance = [
            [sum((row[i] - means[i]) * (row[k] - means[k]) for row in rows) / count for k in range(layers)]
            for i in range(layers)
        ]
        assert all(entry >= 0 for line in covariance for entry in line)  # what the paper assumes
        variances.append(sum(map(sum, covariance)))
    assert variances == [0, Fraction(3, 16), Fraction(87, 256)]
    assert variances[2] - variances[1] < variances[1] - variances[0]


@pytest.mark.equation("unit-gain")
def test_exact_counterexample_kept_lengths_and_a_printed_gain_of_a_half():
    """From one output to two units by the column (3/5, 4/5): every gradient keeps its length."""
    column = (Fraction(3, 5), Fraction(4, 5))
    square = sum(entry**2 for entry in column)
    assert square == 1  # neither explodes nor vanishes
    assert square / 2 == Fraction(1, 2)  # the printed gain, over d_l = 2
