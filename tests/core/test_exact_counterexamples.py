"""A counterexample for each statement that fails under what the paper assumes, in integers and fractions.

`admit` shows that the example satisfies every hypothesis that the ledger names; then the statement fails.
Nothing of the library is used, and nothing is rounded.
"""

from fractions import Fraction
from itertools import pairwise, product

import pytest

from tests.support.stated import Chain, Fit, Law, Moments, Operator, admit

HALF, UNIT = Fraction(1, 2), ((Fraction(1), Fraction(0)), (Fraction(1), Fraction(0)))
FLIPPED = (
    (-1, 1),
    (1, 1),
)  # the validation sample's last gradient is a fair sign, the training sample's is 1


def extremal(rho, depth):
    """Take two equal samples: each layer keeps their input (0, 1) and shortens their gradient (1, 0)."""
    matrix = ((rho, 0), (0, 1))
    return Chain((matrix,) * depth, ((0, 1), (0, 1)), UNIT, rho=rho, bound=Fraction(1))


def embeddings_that_cancel():
    """Widths 2, 1, 1: the inputs' similarity is -1, that of the hidden units 1."""
    inputs = (Fraction(2), Fraction(1)), (Fraction(-1), Fraction(1))
    rho = Fraction(1, 10)
    return Chain((((0, 1),), ((rho,),)), inputs, ((1,), (1,)), rho=rho, bound=Fraction(3))


def products_of(number, chances, draws, alpha):
    """Take two layers whose Jacobians have mean 1 and, for both samples together, the product ``number``."""
    outcomes = [
        (HALF * chance, (draw,), (number / draw,), g, h)
        for chance, draw in zip(chances, draws, strict=True)
        for g, h in FLIPPED
    ]
    return Law(outcomes, alpha=alpha, means=(1,), signals=(0, 1))


def noise_along_the_signal():
    """Let the lower similarity be twice the last one, and subtract the last one twice."""
    return products_of(2, (Fraction(6, 7), Fraction(1, 7)), (Fraction(4, 3), Fraction(-1)), (1, -2))


def gap_and_lai(net):
    ghost = sum(a * b for a, b in zip(net.alpha, net.beta, strict=True))
    lai = sum(net.alpha) * net.beta[-1]
    return abs(ghost - lai), lai


def powers(net):
    return sum(net.rho ** (2 * k) for k in range(1, len(net.matrices)))


@pytest.mark.equation("app-abs-gap", "app-rel-gap")
@pytest.mark.parametrize("rho", [Fraction(1, 10), Fraction(1, 2), Fraction(7, 10)])
def test_exact_counterexample_to_both_geometric_bounds(rho):
    net = extremal(rho, 2)
    admit("app-abs-gap", net)
    admit("app-rel-gap", net)
    gap, lai = gap_and_lai(net)
    assert gap == 1 - rho**2
    assert gap > net.bound**2 * net.beta[-1] * powers(net)
    if 3 * rho**2 < 1:
        assert gap / lai > net.bound**2 / net.floor * powers(net)


@pytest.mark.equation("decays-with-depth")
def test_counterexample_relative_error_grows_with_depth():
    errors, printed = [], []
    for depth in (2, 3, 4, 8):
        net = extremal(HALF, depth)
        admit("decays-with-depth", net)
        gap, lai = gap_and_lai(net)
        errors.append(gap / lai)
        printed.append(powers(net))
    assert errors[:3] == [Fraction(3, 8), Fraction(9, 16), Fraction(171, 256)]
    assert all(below < above for row in (errors, printed) for below, above in pairwise(row))


@pytest.mark.equation("app-relative-conservative", "lai-lower-bound")
def test_counterexample_cancelling_embeddings_make_lai_zero():
    net = embeddings_that_cancel()
    admit("app-relative-conservative", net)
    admit("lai-lower-bound", net)
    gap, lai = gap_and_lai(net)
    assert (gap, lai) == (Fraction(99, 100), 0)  # the relative error is infinite, the printed bound is not
    assert net.floor * net.beta[-1] > 0


@pytest.mark.equation("alignment-implies-decay")
def test_counterexample_opposed_gradients_need_not_decay():
    matrices = ((1,),), ((Fraction(1, 10),),)
    net = Chain(matrices, ((1,), (1,)), ((1,), (-1,)), rho=HALF, bound=Fraction(1))
    admit("alignment-implies-decay", net)
    assert net.beta == [Fraction(-1, 100), -1]
    assert net.beta[0] > net.rho**2 * net.beta[1]


@pytest.mark.equation("influence", "negative-is-discarded")
def test_counterexample_removal_rule_keeps_harmful_samples():
    """Fit the mean of 0 and 2 by squares; validate on 0."""
    points, target, by = (Fraction(0), Fraction(2)), Fraction(0), Fraction(1, 100)
    fit = Fit(
        points,
        target,
        minimiser=Fraction(1),
        hessian=Fraction(2),  # of the sum of (theta - x)^2 / 2
        by=by,
        shifted=[(2 - by * x) / (2 - by) for x in points],
        printed=[-HALF, HALF],
    )
    admit("influence", fit)
    admit("negative-is-discarded", fit)
    before = (fit.minimiser - target) ** 2 / 2
    slopes = [((theta - target) ** 2 / 2 - before) / by for theta in fit.shifted]
    assert slopes[0] > 0 > slopes[1]  # of the validation loss, as the weight falls: not the printed signs
    change = [
        (other - target) ** 2 / 2 - before for other in reversed(points)
    ]  # the other point alone is left
    assert change == [Fraction(3, 2), -HALF]  # discarding the sample of negative influence raises the loss


@pytest.mark.equation("order-of-magnitude")
@pytest.mark.parametrize("widths", [(1, 1), (784, 512, 512, 10), (1, 1000, 1), (1000, 1, 1000, 1)])
def test_counterexample_ghost_keeps_below_twice_lai(widths):
    """Ghost keeps inputs and gradients of every layer, LAI inputs and the last gradients."""
    admit("order-of-magnitude")
    inputs, outputs = sum(widths[:-1]), sum(widths[1:])
    assert inputs + outputs < 2 * (inputs + widths[-1])


@pytest.mark.equation("optimizer-preconditioning")
def test_counterexample_printed_scaling_turns_the_sign():
    """One layer with input 1: the printed score divides by D, Adam's step by its root."""
    history = (Fraction(7, 5), Fraction(4, 5)), (Fraction(1, 5), Fraction(28, 5))
    moments, roots = Moments((1, 16), history, decay=HALF), (1, 4)
    admit("optimizer-preconditioning", moments)
    assert [root**2 for root in roots] == list(moments.diagonal)
    products = [v * g for v, g in zip((1, 1), (Fraction(-1), Fraction(8)), strict=True)]
    assert sum(p / r for p, r in zip(products, roots, strict=True)) == 1  # along Adam's step
    assert sum(p / d for p, d in zip(products, moments.diagonal, strict=True)) == -HALF


@pytest.mark.equation("adam-needs-moments")
def test_counterexample_one_diagonal_serves_all_samples():
    """Leave bias correction and epsilon out: the slope of mean / root in a weight is g_j times one Q."""
    admit("adam-needs-moments")
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
def test_counterexample_both_samples_share_a_mask():
    """Keep the layer's only unit, doubled, or drop it, for both samples together: 13 where 9 is printed."""
    outcomes = [(Fraction(1, 4), (kept,), (kept,), g, h) for kept in (0, 2) for g, h in FLIPPED]
    law = Law(outcomes, alpha=(1, 1), means=(1,), signals=(0, 1))
    admit("app-ghost-var", law)
    signal = law.weighted([[c * b for b in law.beta[-1]] for c in law.gains])
    assert law.variance(law.weighted(law.beta)) == 13
    assert law.variance(signal) + law.variance(law.weighted(law.noise)) == 9  # without the cross term


@pytest.mark.equation("app-var-corr-lb", "noise-only-bound", "lai-lower-variance")
def test_counterexample_correlated_noise_and_mixed_signs():
    law = noise_along_the_signal()
    for slug in ("app-var-corr-lb", "noise-only-bound", "lai-lower-variance"):
        admit(slug, law)
    noise = law.variance(law.weighted(law.noise))
    assert law.variance(law.weighted(law.beta)) == 0 < noise == 1  # Ghost, and the noise alone
    assert law.variance([sum(law.alpha) * b for b in law.beta[-1]]) == 1  # LAI


@pytest.mark.equation("noise-energy-floor")
def test_counterexample_energetic_noise_can_cancel():
    """Let the two similarities oppose each other in every outcome: Ghost does not vary at all."""
    law = products_of(-1, (Fraction(3, 7), Fraction(4, 7)), (Fraction(-1, 3), Fraction(2)), (1000, 1000))
    admit("noise-energy-floor", law)
    energy = sum(a**2 * law.variance(row) for a, row in zip(law.alpha, law.noise, strict=True))
    assert law.variance(law.weighted(law.beta)) == 0
    assert energy == 4 * 1000**2


@pytest.mark.equation("variance-depth-growth")
def test_counterexample_variance_growth_slows_with_depth():
    """Layers of width one, J = 0 or 1 with equal chances; z and j draw their own; last gradients 1."""
    variances = []
    for below in (0, 1, 2):
        masks = list(product((0, 1), repeat=below))
        outcomes = [(Fraction(1, len(masks) ** 2), m, n, 1, 1) for m in masks for n in masks]
        law = Law(outcomes, alpha=(1,) * (below + 1), means=(HALF,) * below, signals=(1, 1))
        admit("variance-depth-growth", law)
        variances.append(law.variance(law.weighted(law.noise)))
    assert variances == [0, Fraction(3, 16), Fraction(87, 256)]
    assert variances[2] - variances[1] < variances[1] - variances[0]


@pytest.mark.equation("unit-gain")
def test_counterexample_kept_lengths_have_half_gain():
    """Of two units one is gated off: the gradient of the other is the same at every layer."""
    operator = Operator([[1, 0], [0, 0]], gradient=(1, 0))
    admit("unit-gain", operator)
    trace = sum(Fraction(x) ** 2 for row in operator.rows for x in row)
    assert trace / len(operator.rows) == HALF  # the printed gain, and with equal widths the right one


@pytest.mark.parametrize(
    ("slug", "example"),
    [
        ("app-abs-gap", Chain((((2,),), ((2,),)), ((1,), (1,)), ((1,), (1,)), rho=HALF, bound=Fraction(1))),
        (
            "app-abs-gap",
            Chain((((1,),), ((HALF,),)), ((1,), (1,)), ((1,), (-1,)), rho=HALF, bound=Fraction(1)),
        ),
        (
            "app-rel-gap",
            Chain((((1,),), ((HALF,),)), ((1,), (1,)), ((1,), (1,)), HALF, Fraction(1), Fraction(2)),
        ),
        ("app-ghost-var", Law([(HALF, (0,), (0,), g, h) for g, h in FLIPPED], (1, 1), (1,), (0, 1))),
        (
            "lai-lower-variance",
            products_of(2, (Fraction(6, 7), Fraction(1, 7)), (Fraction(4, 3), -1), (-1, 2)),
        ),
        ("unit-gain", Operator([[1, 0], [0, 0]], gradient=(1, 1))),
        ("optimizer-preconditioning", Moments((1, 2), [(1, 1)], decay=HALF)),
        ("noise-energy-floor", extremal(HALF, 2)),
    ],
)
def test_hypothesis_violations_are_not_admitted(slug, example):
    with pytest.raises(AssertionError, match=r"violates|is about"):
        admit(slug, example)
