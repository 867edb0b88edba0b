r"""Layer weights: `sum_z beta^(L) sum_l w_l alpha^(l)` with w chosen so that LAI approximates Ghost.

LAI is w = 1, LLI is w = 0 below the last layer. What is returned here goes into `layer_weights` of
`lai_core.lai_scores`. Weights that are not negative keep LAI a positive semidefinite kernel;
`lai_core.bounds.decay_powers` are the largest for which the printed bound holds.

A `TypeError` names an argument of a wrong kind, a `ValueError` one whose shape or range does not fit.

Parameters
----------
alpha, beta
    Similarities of layer inputs and of output gradients, the bottom layer first, of any sign.
"""

from lai_core._engine.namespace import xp_of
from lai_core._theory.algebra import quotient
from lai_core._theory.arrays import Kernels, Layers, checked

__all__ = [
    "block_weights",
    "decoupled_weights",
]


@checked
def decoupled_weights(alpha: Kernels, beta: Kernels, /) -> Layers:
    r"""Fit each layer's weight by itself: well conditioned, and 1 for the last layer.

    Implements :eq:`calibrated-decoupled`: :math:`w_l = \sum (\alpha^{(l)})^2 \beta^{(l)} \beta^{(L)} /
    \sum (\alpha^{(l)} \beta^{(L)})^2` over all pairs, the minimum of
    :math:`\sum (\alpha^{(l)} \beta^{(l)} - w \alpha^{(l)} \beta^{(L)})^2`.

    Arguments: :mod:`lai_core.calibration`.

    Returns
    -------
    array
        The weights; 0 for a layer that contributes to no pair of LAI.
    """
    return block_weights(alpha * beta[-1:, ...], alpha * beta)


@checked
def block_weights(approximate: Kernels, exact: Kernels, /) -> Layers:
    r"""Fit each layer's weight by itself, from that layer's part of both kernels.

    Implements :eq:`calibrated-decoupled` for parts of any form: the minimum of :math:`\sum (Y^{(l)} - w
    X^{(l)})^2` over all pairs. It asks nothing of the layers, so that it serves positions and
    convolutions, where no single pair of similarities makes a layer's part; with
    :math:`X^{(l)} = \alpha^{(l)} \beta^{(L)}` and :math:`Y^{(l)} = \alpha^{(l)} \beta^{(l)}` it is
    `decoupled_weights`.

    Parameters
    ----------
    approximate
        :math:`X^{(l)}`, each layer's part of LAI's kernel.
    exact
        :math:`Y^{(l)}`, each layer's part of Ghost's kernel.

    Returns
    -------
    array
        The weights; 0 for a layer that contributes to no pair of LAI.
    """
    xp = xp_of(exact)
    fit = xp.sum(approximate * exact, axis=(1, 2))
    return quotient(xp, fit, xp.sum(approximate * approximate, axis=(1, 2)), 0.0)
