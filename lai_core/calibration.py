r"""Layer weights: `sum_z beta^(L) sum_l w_l alpha^(l)` with w chosen so that LAI approximates Ghost.

LAI is w = 1, LLI is w = 0 below the last layer. What is returned here goes into `layer_weights` of
`lai_core.lai_scores`. Weights that are not negative keep LAI a positive semidefinite kernel;
`lai_core.bounds.decay_powers` are the largest for which the printed bound holds.
"""

from lai_core._engine.namespace import xp_of
from lai_core._theory.algebra import quotient
from lai_core._theory.arrays import Kernels, Layers, checked

__all__ = [
    "block_weights",
]


@checked
def block_weights(approximate: Kernels, exact: Kernels, /) -> Layers:
    r"""Fit each layer's weight by itself, from that layer's part of both kernels.

    Implements :eq:`calibrated-decoupled`: :math:`w_l = \sum X^{(l)} Y^{(l)} / \sum (X^{(l)})^2`, the minimum
    of :math:`\sum (Y^{(l)} - w X^{(l)})^2` over all pairs. With one vector per layer and sample the parts are
    :math:`X^{(l)} = \alpha^{(l)} \beta^{(L)}` and :math:`Y^{(l)} = \alpha^{(l)} \beta^{(l)}`; it asks nothing
    of the layers, so that it serves positions and convolutions, too. The last layer's weight is 1.

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
