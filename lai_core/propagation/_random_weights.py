r"""Random weights, shared by both samples: how a layer's similarity spreads with depth and width."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lai_core._engine.checks import check_number
from lai_core._theory.arrays import Numbers, checked


@dataclass(frozen=True)
class RandomLayer:
    r"""One layer of independent normal weights, and how many of its units pass gradients.

    Parameters
    ----------
    variance
        Variance v of each weight between this layer and the one above.
    active_pairs
        :math:`E[n_z n_j]`, the units active for z times those active for j.
    both_active
        :math:`E[n_{zj}]`, the units active for both.
    both_active_squared
        :math:`E[n_{zj}^2]`.
    """

    variance: float
    active_pairs: float
    both_active: float
    both_active_squared: float

    @classmethod
    def linear(cls, *, width: int, variance: float) -> "RandomLayer":
        """Make a layer whose every unit passes gradients."""
        return cls(variance, width**2, width, width**2)

    @classmethod
    def gated(cls, *, width: int, variance: float, each: float, both: float) -> "RandomLayer":
        """Make a layer whose units are active independently of each other.

        Parameters
        ----------
        width
            Number of units.
        variance
            Variance of each weight.
        each
            Probability that a unit is active for one sample.
        both
            Probability that it is active for both.
        """
        check_number("each", each, at_least=0.0, at_most=1.0)
        check_number("both", both, at_least=0.0, at_most=each)
        others = width * (width - 1)
        return cls(variance, width * both + others * each**2, width * both, width * both + others * both**2)


@checked
def random_weights_moments(
    layers: Sequence[RandomLayer], norms: Numbers, squares: Numbers, /
) -> tuple[Numbers, Numbers]:
    r"""Carry :math:`P = E\|g_z\|^2\|g_j\|^2` and :math:`Q = E\beta^2` down through random layers.

    Implements :eq:`random-weights-variance`, its recursion:
    :math:`P' = v^2 (E[n_z n_j] P + 2 E[n_{zj}] Q)` and
    :math:`Q' = v^2 (E[n_{zj}] P + (E[n_{zj}] + E[n_{zj}^2]) Q)`, exact for normal weights that are
    independent of the gates and of what comes from above.

    Arguments: :mod:`lai_core.propagation`.

    Parameters
    ----------
    norms, squares
        P and Q of the last layer.
    """
    for layer in reversed(layers):
        v2, both = layer.variance**2, layer.both_active
        norms, squares = (
            v2 * (layer.active_pairs * norms + 2 * both * squares),
            v2 * (both * norms + (both + layer.both_active_squared) * squares),
        )
    return norms, squares


@checked
def random_weights_variance(layers: Sequence[RandomLayer], norms: Numbers, similarity: Numbers, /) -> Numbers:
    r"""Compute the variance of a layer's similarity over random weights, given the last layer's gradients.

    Implements :eq:`random-weights-variance`: :math:`Q_l - (\prod_t v_t E[n_{zj,t}])^2 \beta^{(L)2}`. In
    one layer with fixed gates, the variance relative to the squared mean is
    :math:`(1 + 1/\cos^2) / n_{zj}`.

    Arguments: :mod:`lai_core.propagation`.
    """
    _, squares = random_weights_moments(layers, norms, similarity * similarity)
    mean: Any = similarity
    for layer in layers:
        mean = mean * (layer.variance * layer.both_active)
    return squares - mean * mean


@checked
def linear_random_weights_variance(
    norms: Numbers, similarity: Numbers, /, *, width: int, depth: int
) -> Numbers:
    r"""Compute the same variance in a linear network of random weights of variance 1/width.

    Implements :eq:`random-weights-variance`, in closed form: :math:`\frac{P_0 + 2Q_0}{3}
    (1 + \frac2n)^k - \frac{P_0 - Q_0}{3} (1 - \frac1n)^k - Q_0 \approx \frac kn (P_0 + Q_0)`, with n
    the width, k the depth, :math:`P_0 = \|g_z\|^2\|g_j\|^2` and :math:`Q_0 = \beta^{(L)2}`.

    Arguments: :mod:`lai_core.propagation`.

    Parameters
    ----------
    width
        n.
    depth
        k, the number of layers between.
    """
    check_number("width", width, at_least=1)
    check_number("depth", depth, at_least=0)
    # The recursion's matrix [[1, 2/n], [1/n, 1 + 1/n]] multiplies P + 2 Q by 1 + 2/n and P - Q by 1 - 1/n,
    # and Q = (P + 2 Q) / 3 - (P - Q) / 3.
    squares = similarity * similarity
    growing, shrinking = (norms + 2.0 * squares) / 3.0, (norms - squares) / 3.0
    return growing * (1 + 2 / width) ** depth - shrinking * (1 - 1 / width) ** depth - squares
