r"""Layer weights: `sum_z beta^(L) sum_l w_l alpha^(l)` with w chosen so that LAI approximates Ghost.

LAI is w = 1, LLI is w = 0 below the last layer. What is returned here goes into `layer_weights` of
`lai_core.lai_scores`. Weights that are not negative keep LAI a positive semidefinite kernel.
"""

from jaxtyping import Float

from lai_core._engine.checks import check_number
from lai_core._engine.namespace import Array
from lai_core._theory.layerwise import (
    Constant,
    J,
    Z,
    check_axes,
    check_constant,
    check_depth,
    check_layerwise,
    decay_powers,
    quotient,
)

__all__ = [
    "admissible_weights",
    "block_weights",
    "decoupled_weights",
    "least_squares_weights",
    "minimax_bound",
    "minimax_weights",
    "model_weights",
]


def admissible_weights(rho: Constant, depth: int) -> tuple[Constant, ...]:
    r"""Compute the largest layer weights for which the printed geometric bound holds.

    Implements :eq:`admissible-weights`: :math:`|b - w_l| \le \rho^{2(L-l)}` for every ratio b between 0
    and :math:`\rho^{2(L-l)}` if and only if :math:`0 \le w_l \le \rho^{2(L-l)}`. LLI (0) is inside, LAI
    (1) outside.

    Parameters
    ----------
    rho
        The rate of A1.
    depth
        The number of layers L.

    Returns
    -------
    tuple
        The upper ends for l = 1, ..., L, of the kind of `rho`, except the last, which is 1.0.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If `rho` is negative or `depth` not positive.
    """
    return tuple(decay_powers(check_constant("rho", rho), check_depth(depth)))


def minimax_weights(low: Float[Array, " L"], high: Float[Array, " L"]) -> Float[Array, " L"]:
    r"""Compute the layer weights whose worst error over all ratios between two bounds is smallest.

    Implements :eq:`minimax-weights`: :math:`w_l = (m^{(l)} + M^{(l)})/2`. Under A1, A3 and non-expansive
    alignment :math:`w_l = \rho^{2(L-l)}/2`, which halves the bound of LLI.

    Parameters
    ----------
    low, high
        Bounds on the ratios :math:`\beta^{(l)} / \beta^{(L)}`, `(L,)`; the last row is 1 in truth.

    Returns
    -------
    array
        `(L,)`.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape does not fit.
    """
    _, (low, high) = check_axes({"low": (low, ("L",)), "high": (high, ("L",))})
    return (low + high) * 0.5


def minimax_bound(
    alpha: Float[Array, "L n_val n_train"],
    beta_last: Float[Array, "n_val n_train"],
    low: Float[Array, " L"],
    high: Float[Array, " L"],
) -> Float[Array, " n_train"]:
    r"""Bound the gap between Ghost and LAI with the `minimax_weights`.

    Implements :eq:`minimax-weights`: :math:`\sum_z |\beta^{(L)}_{zj}| \sum_l |\alpha^{(l)}_{zj}|
    (M^{(l)} - m^{(l)})/2`, attained, and for one validation sample the smallest that any weights allow.

    Parameters
    ----------
    alpha
        Embedding similarities, `(L, n_val, n_train)`, of any sign.
    beta_last
        Gradient similarities of the last layer, `(n_val, n_train)`.
    low, high
        Bounds on the ratios, `(L,)`.

    Returns
    -------
    array
        `(n_train,)`: at least the absolute difference of the two scores.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape does not fit.
    """
    named = {
        "alpha": (alpha, ("L", Z, J)),
        "beta_last": (beta_last, (Z, J)),
        "low": (low, ("L",)),
        "high": (high, ("L",)),
    }
    xp, (alpha, beta, low, high) = check_axes(named)
    half = (high - low)[:, None, None] * 0.5
    return xp.sum(xp.sum(xp.abs(alpha) * half, axis=0) * xp.abs(beta), axis=0)


def least_squares_weights(
    alpha: Float[Array, "L n_val n_train"], beta: Float[Array, "L n_val n_train"], *, ridge: float = 0.0
) -> Float[Array, " L"]:
    r"""Fit layer weights to Ghost's kernel by least squares over all pairs.

    Implements :eq:`calibrated-least-squares`, the solution of :math:`\sum_k \langle\alpha^{(l)}\beta^{(L)},
    \alpha^{(k)}\beta^{(L)}\rangle w_k = \langle\alpha^{(l)}\beta^{(L)}, \sum_k \alpha^{(k)} \beta^{(k)}
    \rangle` with inner products over pairs. If every :math:`\beta^{(l)} = r_l \beta^{(L)}`, then w = r.

    Parameters
    ----------
    alpha, beta
        Similarities of layer inputs and of output gradients, `(L, n_val, n_train)`.
    ridge
        Pull towards LAI, all weights 1, in units of the mean squared column: embeddings of different
        layers are alike, and without it weights may be large and of both signs.

    Returns
    -------
    array
        `(L,)`.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape does not fit or `ridge` is negative.

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
    xp, (alpha, beta) = check_layerwise({"alpha": alpha, "beta": beta})
    depth = int(alpha.shape[0])
    columns = xp.reshape(alpha * beta[-1:, ...], (depth, -1))
    target = xp.reshape(xp.sum(alpha * beta, axis=0), (-1, 1))
    gram = xp.matmul(columns, xp.matrix_transpose(columns))
    moments = xp.matmul(columns, target)
    pull = (float(ridge) / depth) * xp.sum(columns * columns)
    identity = xp.tril(xp.triu(xp.ones_like(gram)))  # eye would ask a traced array for its device
    return xp.linalg.solve(gram + pull * identity, moments + pull)[:, 0]


def decoupled_weights(
    alpha: Float[Array, "L n_val n_train"], beta: Float[Array, "L n_val n_train"]
) -> Float[Array, " L"]:
    r"""Fit each layer's weight by itself: well conditioned, and 1 for the last layer.

    Implements :eq:`calibrated-decoupled`: :math:`w_l = \sum (\alpha^{(l)})^2 \beta^{(l)} \beta^{(L)} /
    \sum (\alpha^{(l)} \beta^{(L)})^2` over all pairs, the minimum of
    :math:`\sum (\alpha^{(l)} \beta^{(l)} - w \alpha^{(l)} \beta^{(L)})^2`.

    Parameters
    ----------
    alpha, beta
        Similarities of layer inputs and of output gradients, `(L, n_val, n_train)`.

    Returns
    -------
    array
        `(L,)`; 0 for a layer that contributes to no pair of LAI.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape does not fit.
    """
    _, (alpha, beta) = check_layerwise({"alpha": alpha, "beta": beta})
    return block_weights(alpha * beta[-1:, ...], alpha * beta)


def block_weights(
    approximate: Float[Array, "L n_val n_train"], exact: Float[Array, "L n_val n_train"]
) -> Float[Array, " L"]:
    r"""Fit each layer's weight by itself, from that layer's part of both kernels.

    Implements :eq:`calibrated-decoupled` for parts of any form: the minimum of :math:`\sum (Y^{(l)} - w
    X^{(l)})^2` over all pairs. It asks nothing of the layers, so that it serves positions and
    convolutions, where no single pair of similarities makes a layer's part; with
    :math:`X^{(l)} = \alpha^{(l)} \beta^{(L)}` and :math:`Y^{(l)} = \alpha^{(l)} \beta^{(l)}` it is
    `decoupled_weights`.

    Parameters
    ----------
    approximate
        :math:`X^{(l)}`, each layer's part of LAI's kernel, `(L, n_val, n_train)`.
    exact
        :math:`Y^{(l)}`, each layer's part of Ghost's kernel, of the same shape.

    Returns
    -------
    array
        `(L,)`; 0 for a layer that contributes to no pair of LAI.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape does not fit.
    """
    xp, (ours, theirs) = check_layerwise({"approximate": approximate, "exact": exact})
    fit = xp.sum(ours * theirs, axis=(1, 2))
    return quotient(xp, fit, xp.sum(ours * ours, axis=(1, 2)), 0.0)


def model_weights(
    mean_products: Float[Array, "L d_L d_L"],
    validation_moment: Float[Array, "d_L d_L"],
    training_moment: Float[Array, "d_L d_L"],
) -> Float[Array, " L"]:
    r"""Compute the layer weights that a model of the backward pass implies.

    Implements :eq:`calibrated-model`: :math:`w_l = \mathrm{tr}(M^{(l)} S_j S_z) / \mathrm{tr}(S_j S_z)`,
    the least-squares slope of :math:`g_z^\top M^{(l)} g_j` on :math:`g_z^\top g_j` for independent
    gradients of second moments S; :math:`\mathrm{tr}\,M^{(l)} / d_L` where one of them is isotropic.

    Parameters
    ----------
    mean_products
        :math:`M^{(l)} = A^{(l)\top} A^{(l)}` of the backward operators from the last layer,
        `(L, d_L, d_L)`; the last one is the identity.
    validation_moment, training_moment
        Second moments of the last layer's output gradients, `(d_L, d_L)`, symmetric.

    Returns
    -------
    array
        `(L,)`.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape does not fit.
    """
    square = ("d_L", "d_L")
    named = {
        "mean_products": (mean_products, ("L", *square)),
        "validation_moment": (validation_moment, square),
        "training_moment": (training_moment, square),
    }
    xp, (products, of_z, of_j) = check_axes(named)
    both = xp.matmul(of_z, of_j)  # tr(M S_j S_z) = sum of M * (S_z S_j), as S_j and S_z are symmetric
    return xp.sum(products * both, axis=(1, 2)) / xp.sum(of_z * of_j)
