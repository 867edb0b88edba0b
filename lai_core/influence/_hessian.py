r"""Influence from explicit gradients: Eq. 1 with its Hessian, Eq. 2 without.

Gradients are flat, one row of `p` numbers a sample, each of that sample's own, unnormalised loss.
All scores are positive for samples that help, except `printed_influence`, which is Eq. 1 as printed.
"""

from collections.abc import Callable

from jaxtyping import Float

from lai_core._engine.checks import check_number
from lai_core._engine.namespace import Array, Namespace
from lai_core._theory.shapes import conformed


def removal_influence(
    validation_gradients: Array, training_gradients: Array, hessian: Array, /, *, damping: float = 0.0
) -> Float[Array, " n_train"]:
    r"""First-order change of the summed validation loss when a training sample is removed.

    Implements :eq:`removal-influence`: :math:`+\sum_z g_z^\top (H + \delta I)^{-1} g_j`.

    Parameters
    ----------
    validation_gradients
        `(n_val, p)`, at the minimiser of the summed training loss.
    training_gradients
        `(n_train, p)`, at the same parameters.
    hessian
        `(p, p)`, of the training loss summed (not averaged) over samples, which is the scale on which
        removing a sample subtracts one of its losses.
    damping
        Multiple of the identity added to the Hessian: a ridge penalty, and the way out where the
        Hessian alone is singular.

    Returns
    -------
    array
        `(n_train,)`, units of the loss. Positive helps: without the sample the validation loss rises.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape does not fit or `damping` is negative.

    Examples
    --------
    >>> import numpy as np
    >>> from lai_core import influence
    >>> points, minimiser = np.array([[0.0], [2.0]]), 1.0  # of the losses (theta - x)^2 / 2
    >>> influence.removal_influence(minimiser - points[:1], minimiser - points, 2 * np.eye(1))
    array([ 0.5, -0.5])
    """
    xp, (validation, training, curvature) = conformed(
        {
            "validation_gradients": (validation_gradients, "n_val p"),
            "training_gradients": (training_gradients, "n_train p"),
            "hessian": (hessian, "p p"),
        }
    )
    preconditioned = xp.linalg.solve(_damped(xp, curvature, damping), xp.sum(validation, axis=0))
    return xp.matmul(training, preconditioned)


def printed_influence(
    validation_gradients: Array, training_gradients: Array, hessian: Array, /, *, damping: float = 0.0
) -> Float[Array, " n_train"]:
    r"""Eq. 1 as printed, whose sign is that of a sample's presence, not of its removal.

    Implements :eq:`influence`: :math:`-\sum_z g_z^\top H^{-1} g_j`.

    Parameters
    ----------
    validation_gradients, training_gradients, hessian, damping
        As in `removal_influence`.

    Returns
    -------
    array
        `(n_train,)`. **Negative helps**: this is the first-order change of the summed validation loss
        when the sample is counted once more.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape does not fit or `damping` is negative.
    """
    return -removal_influence(validation_gradients, training_gradients, hessian, damping=damping)


def leave_one_out(
    training_gradients: Array, training_hessians: Array, /, *, damping: float = 0.0
) -> Float[Array, "n_train p"]:
    r"""How far the minimiser of a sum of quadratics moves when one of them is removed, exactly.

    Implements :eq:`leave-one-out`: :math:`\theta_{-j} - \theta = (H + \delta I - H_j)^{-1} g_j`.

    Parameters
    ----------
    training_gradients
        `(n_train, p)`, at the minimiser of the sum of the losses and the ridge penalty
        :math:`\delta |\theta|^2 / 2`.
    training_hessians
        `(n_train, p, p)`, of each sample's own loss.
    damping
        The ridge penalty's :math:`\delta`.

    Returns
    -------
    array
        `(n_train, p)`, displacements of the parameters. `removal_influence` replaces the Hessian of the
        remaining samples by that of all.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape does not fit or `damping` is negative.

    Examples
    --------
    >>> import numpy as np
    >>> from lai_core import influence
    >>> influence.leave_one_out(np.array([[1.0], [-1.0]]), np.ones((2, 1, 1)))
    array([[ 1.],
           [-1.]])
    """
    xp, (gradients, hessians) = conformed(
        {
            "training_gradients": (training_gradients, "n_train p"),
            "training_hessians": (training_hessians, "n_train p p"),
        }
    )
    remaining = _damped(xp, xp.sum(hessians, axis=0), damping)[None, ...] - hessians
    return xp.linalg.solve(remaining, gradients[..., None])[..., 0]


def inner_product_scores(
    validation_gradients: Array, training_gradients: Array, /
) -> Float[Array, " n_train"]:
    r"""Inner product of each training gradient with the summed validation gradient.

    Implements :eq:`IP`, without the printed minus. It is Eq. 1 with the identity for the Hessian.

    Parameters
    ----------
    validation_gradients
        `(n_val, p)`.
    training_gradients
        `(n_train, p)`.

    Returns
    -------
    array
        `(n_train,)`. Positive helps: one SGD step of unit learning rate on sample j lowers the summed
        validation loss by the score, to first order; :func:`lai_core.influence.descent_remainder` bounds
        the rest.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape does not fit.

    Examples
    --------
    >>> import numpy as np
    >>> from lai_core import influence
    >>> influence.inner_product_scores(np.array([[1.0, 2.0]]), np.array([[3.0, 0.0], [0.0, -1.0]]))
    array([ 3., -2.])
    """
    xp, (validation, training) = conformed(
        {
            "validation_gradients": (validation_gradients, "n_val p"),
            "training_gradients": (training_gradients, "n_train p"),
        }
    )
    return xp.matmul(training, xp.sum(validation, axis=0))


def directional_scores(
    losses: Callable[[Array], Array], parameters: Array, direction: Array, /, *, step: float = 1e-3
) -> Float[Array, " n_train"]:
    r"""Inner products with the validation gradient from two forward passes.

    Implements :eq:`directional-derivative`:
    :math:`v_j = \frac{d}{d\epsilon} l_j(\theta + \epsilon\, \nabla L_V)|_{\epsilon = 0}`, by central
    differences, which are exact for quadratics. It holds for every parameter of every architecture:
    biases, shared matrices, embeddings and normalisation gains included.

    Parameters
    ----------
    losses
        From parameters `(p,)` to the training samples' own losses `(n_train,)`.
    parameters
        `(p,)`.
    direction
        `(p,)`, the gradient of the summed validation loss.
    step
        Half the distance between the two passes, in multiples of `direction`.

    Returns
    -------
    array
        `(n_train,)`. Positive helps, as in `inner_product_scores`; the error is of order `step` squared.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape does not fit or `step` is not positive.
    """
    check_number("step", step, above=0.0)
    _, (theta, towards) = conformed({"parameters": (parameters, "p"), "direction": (direction, "p")})
    ahead, behind = losses(theta + towards * float(step)), losses(theta - towards * float(step))
    return (ahead - behind) / (2.0 * float(step))


def _damped(xp: Namespace, hessian: Float[Array, "p p"], damping: float) -> Float[Array, "p p"]:
    check_number("damping", damping, at_least=0.0)
    identity = xp.triu(xp.tril(xp.ones_like(hessian)))
    return hessian + identity * float(damping)
