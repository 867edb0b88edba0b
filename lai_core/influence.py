r"""Section 3: what a training sample does to the validation loss, and what the sign of a score decides.

Gradients are flat: one row of `p` numbers for each sample, of the sample's own, unnormalised loss. Scores are
positive for samples that help. Arguments are the same everywhere, where a function says nothing else:

Parameters
----------
validation_gradients, training_gradients
    Gradients of the samples' own losses at the same parameters.
hessian, damping
    As in `removal_influence`.
learning_rate
    :math:`\eta`, positive.
smoothness
    :math:`\lambda`, a Lipschitz constant of the gradient of the summed validation loss.
"""

from jaxtyping import Float

from lai_core._engine.checks import check_number
from lai_core._engine.namespace import Array, matmul, xp_of
from lai_core._theory.algebra import solve
from lai_core._theory.arrays import checked

__all__ = [
    "certified_learning_rate",
    "descent_remainder",
    "inner_product_scores",
    "ownership_residuals",
    "pre_activation_gradients",
    "printed_influence",
    "removal_influence",
    "self_votes",
]


# Influence from explicit gradients, Eq. 1 and Eq. 2, and what the sign of a score decides about one step.


@checked
def removal_influence(
    validation_gradients: Float[Array, "n_val p"],
    training_gradients: Float[Array, "n_train p"],
    hessian: Float[Array, "p p"],
    /,
    *,
    damping: float = 0.0,
) -> Float[Array, " n_train"]:
    r"""Return the first-order change of the summed validation loss when a training sample is removed.

    Implements :eq:`removal-influence`: :math:`+\sum_z g_z^\top (H + \delta I)^{-1} g_j`. Removing the sample
    moves the minimiser by :math:`+H^{-1} g_j`, to first order.

    Parameters
    ----------
    validation_gradients
        Gradients of the validation losses at the minimiser of the summed training loss.
    training_gradients
        Gradients of the training losses at the same parameters.
    hessian
        Hessian of the training loss summed (not averaged) over samples, the scale on which removing a
        sample subtracts one of its losses.
    damping
        :math:`\delta`, the multiple of the identity that is added to the Hessian: a ridge penalty, and the
        way out where the Hessian alone is singular.

    Returns
    -------
    array
        For each training sample, in units of the loss. Positive helps: without the sample the validation
        loss rises.

    Examples
    --------
    >>> import numpy as np
    >>> from lai_core import influence
    >>> points, minimiser = np.array([[0.0], [2.0]]), 1.0  # of the losses (theta - x)^2 / 2
    >>> influence.removal_influence(minimiser - points[:1], minimiser - points, 2 * np.eye(1))
    array([ 0.5, -0.5])
    """
    check_number("damping", damping, at_least=0.0)
    xp = xp_of(hessian)
    summed = xp.sum(validation_gradients, axis=0)
    message = "hessian: expected an invertible matrix, damped, got a singular one; raise the damping"
    identity = xp.triu(xp.tril(xp.ones_like(hessian)))  # eye would ask a traced array for its device
    preconditioned = solve(xp, hessian + identity * float(damping), summed, message)
    return matmul(xp, training_gradients, preconditioned)


def printed_influence(
    validation_gradients: Float[Array, "n_val p"],
    training_gradients: Float[Array, "n_train p"],
    hessian: Float[Array, "p p"],
    /,
    *,
    damping: float = 0.0,
) -> Float[Array, " n_train"]:
    r"""Return Eq. 1 as printed, whose sign is that of a sample's presence, not of its removal.

    Implements :eq:`influence`: :math:`-\sum_z g_z^\top H^{-1} g_j`.

    Returns
    -------
    array
        **Negative helps**: the first-order change of the summed validation loss when the sample is counted
        once more.
    """
    return -removal_influence(validation_gradients, training_gradients, hessian, damping=damping)


@checked
def inner_product_scores(
    validation_gradients: Float[Array, "n_val p"], training_gradients: Float[Array, "n_train p"], /
) -> Float[Array, " n_train"]:
    r"""Return the inner product of each training gradient with the summed validation gradient.

    Implements :eq:`IP` and :eq:`directional-derivative`, without the printed minus: it is the derivative of
    each sample's loss along the validation gradient, :math:`\frac{d}{d\epsilon} l_j(\theta + \epsilon\,
    \nabla L_V)`, which takes one forward-mode pass, and Eq. 1 with the identity for the Hessian.

    In place of the influence it keeps the ranking of arbitrary samples only where :math:`g_V` is an
    eigenvector of :math:`H`.

    Returns
    -------
    array
        Positive helps: one SGD step of unit learning rate on sample j lowers the summed validation loss by
        the score, to first order; :func:`lai_core.influence.descent_remainder` bounds the rest.
    """
    xp = xp_of(validation_gradients)
    return matmul(xp, training_gradients, xp.sum(validation_gradients, axis=0))


@checked
def descent_remainder(
    training_gradients: Float[Array, "n_train p"], /, *, learning_rate: float, smoothness: float
) -> Float[Array, " n_train"]:
    r"""Bound how far the change of the validation loss is from its first-order prediction.

    Implements :eq:`descent-meaning`:
    :math:`|L_V(\theta - \eta g_j) - L_V(\theta) + \eta v_j| \le \lambda \eta^2 |g_j|^2 / 2`, the remainder
    of a function whose gradient is :math:`\lambda`-Lipschitz, over a step of length :math:`\eta |g_j|`.

    Returns
    -------
    array
        The bound for each sample, in units of the loss; attained by quadratics of curvature
        :math:`\lambda`.
    """
    check_number("learning_rate", learning_rate, above=0.0)
    check_number("smoothness", smoothness, at_least=0.0)
    squared = xp_of(training_gradients).sum(training_gradients * training_gradients, axis=-1)
    return squared * (float(smoothness) * float(learning_rate) ** 2 / 2.0)


@checked
def certified_learning_rate(
    scores: Float[Array, " n_train"], training_gradients: Float[Array, "n_train p"], /, *, smoothness: float
) -> Float[Array, " n_train"]:
    r"""Find the learning rate below which the sign of a score is the sign of the true decrease.

    Implements :eq:`descent-meaning`: :math:`\eta < 2 |v_j| / (\lambda |g_j|^2)`, where the first-order
    decrease :math:`\eta |v_j|` exceeds its remainder.

    Parameters
    ----------
    scores
        The scores of :func:`lai_core.influence.inner_product_scores`.

    Returns
    -------
    array
        For each sample; zero where a score is zero, which decides nothing.
    """
    check_number("smoothness", smoothness, above=0.0)
    xp = xp_of(scores)
    squared = xp.sum(training_gradients * training_gradients, axis=-1)
    moves = squared > 0.0
    divisor = xp.where(moves, squared, xp.ones_like(squared)) * float(smoothness)
    return xp.where(moves, 2.0 * xp.abs(scores) / divisor, xp.zeros_like(scores))


# Exact identities about the factors of Ghost and LAI, and whose loss a row of a batch reaches.


@checked
def pre_activation_gradients(
    activation_gradients: Float[Array, "n d_out"], slopes: Float[Array, "n d_out"], /
) -> Float[Array, "n d_out"]:
    r"""Compute gradients with respect to a layer's pre-activations from those of its activations.

    Implements :eq:`ghost-pre-activation`: :math:`g = \phi'(s) \odot \partial \ell / \partial \phi(s)`, the
    gradients for which Eq. 3 is an identity; without the factor :math:`\phi'` it is not.

    Parameters
    ----------
    activation_gradients
        Gradient of each sample's loss with respect to the layer's output after its activation function.
    slopes
        The activation function's derivative at the pre-activations.

    Returns
    -------
    array
        The output gradients of a `LayerTrace`.
    """
    return activation_gradients * slopes


@checked
def self_votes(kernel: Float[Array, "n n"], /) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    r"""Split each score into the sample's vote for itself and the others' votes, on one batch.

    Implements :eq:`self-exclusion`: the score is their sum, and a sample's own vote :math:`|g_j|^2` is
    never negative, so that a sample is dropped exactly if :math:`\sum_{z \ne j} \langle g_z, g_j \rangle <
    -|g_j|^2`.

    Parameters
    ----------
    kernel
        Of a batch with itself, as its own validation set.

    Returns
    -------
    tuple of arrays
        The sample's own vote, the kernel's diagonal; and the others', which is the score with
        `exclude_self=True`. Positive helps.
    """
    xp = xp_of(kernel)
    own = xp.sum(xp.triu(xp.tril(kernel)), axis=0)
    others = xp.sum(xp.triu(kernel, k=1) + xp.tril(kernel, k=-1), axis=0)
    return own, others


@checked
def ownership_residuals(
    gradient: Float[Array, "n ..."], weighted: Float[Array, "n ..."], weights: Float[Array, " n"], /
) -> Float[Array, " n"]:
    r"""Measure how far each row of a tensor is from reaching the loss of its own sample alone.

    Implements :eq:`sample-ownership`: with the gradients :math:`r` of :math:`\sum_k \ell_k` and
    :math:`r^w` of :math:`\sum_k w_k \ell_k` at a tensor of one row a sample, :math:`r^w_i - w_i r_i =
    \sum_{k \ne i} (w_k - w_i)\, \partial \ell_k / \partial x_i`. It is 0 where no other sample's loss
    depends on row i, and for almost all weights nowhere else.

    Parameters
    ----------
    gradient
        Gradient of the sum of all samples' losses, sample by sample.
    weighted
        Gradient of the weighted sum.
    weights
        The weights: all different, and drawn without looking at the model.

    Returns
    -------
    array
        The largest absolute entry of each row of :math:`r^w_i - w_i r_i`, in the gradients' units. What
        is left of rounding is of the size of the weights times the gradients.
    """
    xp, shape = xp_of(gradient), tuple(gradient.shape)
    if tuple(weighted.shape) != shape:
        msg = f"weighted: expected the shape of gradient, (n, ...) = {shape}, got {tuple(weighted.shape)}"
        raise ValueError(msg)
    once, second = (xp.reshape(side, (shape[0], -1)) for side in (gradient, weighted))
    left = second - once * xp.expand_dims(weights, axis=1)
    return xp.max(xp.abs(left), axis=1)
