r"""Layer weights: `sum_z beta^(L) sum_l w_l alpha^(l)` with w chosen so that LAI approximates Ghost.

LAI is w = 1, LLI is w = 0 below the last layer. What is returned here goes into `layer_weights` of
`lai_core.lai_scores`. Weights that are not negative keep LAI a positive semidefinite kernel;
`lai_core.bounds.decay_powers` are the largest for which the printed bound holds.

A `TypeError` names an argument of a wrong kind, a `ValueError` one whose shape or range does not fit.

Parameters
----------
alpha, beta
    Similarities of layer inputs and of output gradients, the bottom layer first, of any sign.
beta_last
    Gradient similarities of the last layer.
low, high
    Bounds on the ratios :math:`\beta^{(l)} / \beta^{(L)}`; the last one is 1 in truth.
"""

from jaxtyping import Float

from lai_core._engine.checks import check_number
from lai_core._engine.namespace import Array, matmul, xp_of
from lai_core._theory.algebra import quotient, solve
from lai_core._theory.arrays import Kernel, Kernels, Layers, Scores, checked

__all__ = [
    "block_weights",
    "decoupled_weights",
    "least_squares_weights",
    "minimax_bound",
    "minimax_weights",
    "model_weights",
]


@checked
def minimax_weights(low: Layers, high: Layers, /) -> Layers:
    r"""Compute the layer weights whose worst error over all ratios between two bounds is smallest.

    Implements :eq:`minimax-weights`: :math:`w_l = (m^{(l)} + M^{(l)})/2`. Under A1, A3 and non-expansive
    alignment :math:`w_l = \rho^{2(L-l)}/2`, which halves the bound of LLI.

    Assume: :math:`m_l \le M_l`. Arguments: :mod:`lai_core.calibration`.

    Returns
    -------
    array
        The weights, the middles of the bounds.
    """
    return (low + high) * 0.5


@checked
def minimax_bound(alpha: Kernels, beta_last: Kernel, low: Layers, high: Layers, /) -> Scores:
    r"""Bound the gap between Ghost and LAI with the `minimax_weights`.

    Implements :eq:`minimax-weights`: :math:`\sum_z |\beta^{(L)}_{zj}| \sum_l |\alpha^{(l)}_{zj}|
    (M^{(l)} - m^{(l)})/2`, attained, and the smallest that any weights allow.

    Assume: :math:`m_l \le M_l`. Arguments: :mod:`lai_core.calibration`.

    Returns
    -------
    array
        At least the absolute difference of the two scores.
    """
    xp, half = xp_of(alpha), (high - low)[:, None, None] * 0.5
    return xp.sum(xp.sum(xp.abs(alpha) * half, axis=0) * xp.abs(beta_last), axis=0)


@checked
def least_squares_weights(alpha: Kernels, beta: Kernels, /, *, ridge: float = 0.0) -> Layers:
    r"""Fit layer weights to Ghost's kernel by least squares over all pairs.

    Implements :eq:`calibrated-least-squares`, the solution of :math:`\sum_k \langle\alpha^{(l)}\beta^{(L)},
    \alpha^{(k)}\beta^{(L)}\rangle w_k = \langle\alpha^{(l)}\beta^{(L)}, \sum_k \alpha^{(k)} \beta^{(k)}
    \rangle` with inner products over pairs. If every :math:`\beta^{(l)} = r_l \beta^{(L)}`, then w = r.

    Assume: second moments over pairs exist. Arguments: :mod:`lai_core.calibration`.

    Parameters
    ----------
    ridge
        Pull towards LAI, all weights 1, in units of the mean squared column: embeddings of different
        layers are alike, and without it weights may be large and of both signs.

    Returns
    -------
    array
        The weights, of either sign.

    Examples
    --------
    >>> import numpy as np
    >>> from lai_core.calibration import least_squares_weights
    >>> alpha = np.array([[[1.0, 2.0]], [[1.0, 1.0]]])
    >>> beta = np.array([[[0.5, 1.0]], [[1.0, 2.0]]])
    >>> least_squares_weights(alpha, beta).round(6)
    array([0.5, 1. ])
    """
    check_number("ridge", ridge, at_least=0.0)
    xp, depth = xp_of(alpha), int(alpha.shape[0])
    # |X'w - y|^2 + pull |w - 1|^2 is smallest where (X X' + pull I) w = X y + pull 1,
    # with one row of X and one entry of w for each layer, and one column for each pair.
    X = xp.reshape(alpha * beta[-1:, ...], (depth, -1))
    y = xp.reshape(xp.sum(alpha * beta, axis=0), (-1, 1))
    gram = matmul(xp, X, xp.matrix_transpose(X))
    pull = (float(ridge) / depth) * xp.sum(X * X)
    identity = xp.tril(xp.triu(xp.ones_like(gram)))  # eye would ask a traced array for its device
    message = "alpha: expected layers with independent parts of LAI, got dependent ones; take a ridge above 0"
    return solve(xp, gram + pull * identity, matmul(xp, X, y) + pull, message)[:, 0]


@checked
def decoupled_weights(alpha: Kernels, beta: Kernels, /) -> Layers:
    r"""Fit each layer's weight by itself: well conditioned, and 1 for the last layer.

    Implements :eq:`calibrated-decoupled`: :math:`w_l = \sum (\alpha^{(l)})^2 \beta^{(l)} \beta^{(L)} /
    \sum (\alpha^{(l)} \beta^{(L)})^2` over all pairs, the minimum of
    :math:`\sum (\alpha^{(l)} \beta^{(l)} - w \alpha^{(l)} \beta^{(L)})^2`.

    Assume: the denominator is not zero. Arguments: :mod:`lai_core.calibration`.

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

    Assume: the denominator is not zero.

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


@checked
def model_weights(
    mean_products: Float[Array, "L d_L d_L"],
    validation_moment: Float[Array, "d_L d_L"],
    training_moment: Float[Array, "d_L d_L"],
    /,
) -> Layers:
    r"""Compute the layer weights that a model of the backward pass implies.

    Implements :eq:`calibrated-model`: :math:`w_l = \mathrm{tr}(M^{(l)} S_j S_z) / \mathrm{tr}(S_j S_z)`,
    the least-squares slope of :math:`g_z^\top M^{(l)} g_j` on :math:`g_z^\top g_j` for independent
    gradients of second moments S; :math:`\mathrm{tr}\,M^{(l)} / d_L` where one of them is isotropic.

    Assume: :math:`g_z` and :math:`g_j` are independent; :math:`M^{(l)}` is fixed; :math:`\tr(S_j S_z) \ne 0`;
    the regression goes through the origin.

    Parameters
    ----------
    mean_products
        :math:`M^{(l)} = A^{(l)\top} A^{(l)}` of the backward operators from the last layer; the last one is
        the identity.
    validation_moment, training_moment
        Second moments of the last layer's output gradients, symmetric.

    Returns
    -------
    array
        The weights.
    """
    xp = xp_of(mean_products)
    # tr(M S_j S_z) = sum of M * (S_z S_j), as S_j and S_z are symmetric
    both = matmul(xp, validation_moment, training_moment)
    return xp.sum(mean_products * both, axis=(1, 2)) / xp.sum(validation_moment * training_moment)
