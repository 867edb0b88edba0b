r"""Scores along the step that an adaptive optimizer takes, instead of along the gradient.

Everything is flat: parameters, moments and gradients are vectors of `p` numbers, and each training
gradient is that of the sample's own, unnormalised loss. Scores are positive for samples that help, per
unit learning rate and per unit weight :math:`w_j` of the sample in the loss :math:`\sum_j w_j l_j`.
"""

from jaxtyping import Float

from lai_core._engine.checks import check_number
from lai_core._engine.namespace import Array
from lai_core._theory.shapes import conformed
from lai_core.optimizers._adam import Adam, clipped_backwards, moments, used_gradient


def adam_step(
    parameters: Array,
    gradient: Array,
    first_moment: Array,
    second_moment: Array,
    /,
    adam: Adam,
    *,
    step: int,
) -> tuple[Float[Array, " p"], Float[Array, " p"], Float[Array, " p"]]:
    r"""Take one step of Adam, the map that :eq:`adam-derivative` differentiates.

    Parameters
    ----------
    parameters, gradient
        `(p,)`; the gradient is the batch's, before clipping and decay.
    first_moment, second_moment
        `(p,)`, before the step: running means of the gradient and of its square.
    adam
        The settings.
    step
        Which step this is, from 1.

    Returns
    -------
    tuple of arrays
        Parameters, first moment and second moment after the step, `(p,)` each. Nothing is written to.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape or number is not as described.
    """
    check_number("step", step, at_least=1)
    xp, (theta, gradient, first, second) = conformed(
        {
            "parameters": (parameters, "p"),
            "gradient": (gradient, "p"),
            "first_moment": (first_moment, "p"),
            "second_moment": (second_moment, "p"),
        }
    )
    used = used_gradient(xp, theta, gradient, adam)
    first, second, mean, root = moments(xp, used, first, second, adam, step)
    decay = float(adam.weight_decay) if adam.decoupled else 0.0
    moved = theta - float(adam.learning_rate) * (mean / (root + float(adam.epsilon)) + decay * theta)
    return moved, first, second


def adam_derivative_scores(
    validation_gradient: Array,
    training_gradients: Array,
    parameters: Array,
    gradient: Array,
    first_moment: Array,
    second_moment: Array,
    /,
    adam: Adam,
    *,
    step: int,
) -> Float[Array, " n_train"]:
    r"""Differentiate the decrease that one Adam step brings in each sample's weight.

    Implements :eq:`adam-derivative`: :math:`\langle C^\top (Q \odot \nabla L_V(\theta')), g_j \rangle`
    with

    .. math:: Q = \frac{1 - \beta_1}{(1 - \beta_1^t)(\sqrt{\hat v} + \varepsilon)} -
        \frac{(1 - \beta_2)\, \bar g\, \hat m}{(1 - \beta_2^t) \sqrt{\hat v} (\sqrt{\hat v} + \varepsilon)^2}

    and C the derivative of clipping. Q is the same for every sample: batch statistics are enough, no
    sample has moments of its own. The second term, which holding :math:`\hat v` fixed would drop, is
    set to 0 where :math:`\hat v = 0`.

    Parameters
    ----------
    validation_gradient
        `(p,)`, gradient of the summed validation loss **after** the step.
    training_gradients
        `(n_train, p)`, of the samples' own losses before the step.
    parameters, gradient, first_moment, second_moment
        `(p,)` each, what `adam_step` was given.
    adam
        The settings.
    step
        Which step this is, from 1.

    Returns
    -------
    array
        `(n_train,)`. Positive helps: minus the derivative of the validation loss after the step with
        respect to the sample's weight, divided by the learning rate.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape or number is not as described.

    Notes
    -----
    This is the derivative, not the difference between weight 1 and weight 0.
    """
    check_number("step", step, at_least=1)
    xp, (direction, training, theta, gradient, first, second) = conformed(
        {
            "validation_gradient": (validation_gradient, "p"),
            "training_gradients": (training_gradients, "n_train p"),
            "parameters": (parameters, "p"),
            "gradient": (gradient, "p"),
            "first_moment": (first_moment, "p"),
            "second_moment": (second_moment, "p"),
        }
    )
    used = used_gradient(xp, theta, gradient, adam)
    _, _, mean, root = moments(xp, used, first, second, adam, step)
    divisor = root + float(adam.epsilon)
    frozen = (1.0 - adam.beta1) / ((1.0 - adam.beta1**step) * divisor)
    seen = root > 0.0
    curved = (1.0 - adam.beta2) / (1.0 - adam.beta2**step) * used * mean
    curved = curved / (xp.where(seen, root, xp.ones_like(root)) * divisor * divisor)
    sensitivity = frozen - xp.where(seen, curved, xp.zeros_like(curved))
    return xp.matmul(training, clipped_backwards(xp, sensitivity * direction, gradient, adam))


def adam_direction_scores(
    validation_gradients: Array, training_gradients: Array, second_moment: Array, /, *, epsilon: float = 1e-8
) -> Float[Array, " n_train"]:
    r"""Inner products in the metric of a diagonally preconditioned step, applied once.

    Implements :eq:`adam-direction`: :math:`\sum_z g_z^\top P g_j`, :math:`P = 1/(\sqrt{v} +
    \varepsilon)`. Scaling both sides by :math:`v^{-1/2}`, as printed, gives :math:`P^2` instead;
    scaling both by :math:`v^{-1/4}` gives this.

    Parameters
    ----------
    validation_gradients
        `(n_val, p)`.
    training_gradients
        `(n_train, p)`.
    second_moment
        `(p,)`, running mean of squared gradients, held fixed during the step.
    epsilon
        Added to its root, positive.

    Returns
    -------
    array
        `(n_train,)`. Positive helps: a step of unit learning rate along :math:`-P g_j` lowers the
        summed validation loss by the score, to first order.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape does not fit or `epsilon` is not positive.

    Examples
    --------
    >>> import numpy as np
    >>> from lai_core import optimizers
    >>> moment = np.array([1.0, 16.0])
    >>> score = optimizers.adam_direction_scores(np.array([[1.0, 1.0]]), np.array([[-1.0, 8.0]]), moment)
    >>> round(float(score[0]), 6)  # the printed scaling gives -0.5
    1.0
    """
    check_number("epsilon", epsilon, above=0.0)
    xp, (validation, training, moment) = conformed(
        {
            "validation_gradients": (validation_gradients, "n_val p"),
            "training_gradients": (training_gradients, "n_train p"),
            "second_moment": (second_moment, "p"),
        }
    )
    return xp.matmul(training, xp.sum(validation, axis=0) / (xp.sqrt(moment) + float(epsilon)))


def preconditioned_ghost_kernel(
    validation_activations: Array,
    validation_output_gradients: Array,
    training_activations: Array,
    training_output_gradients: Array,
    preconditioner: Array,
    /,
) -> Float[Array, "n_val n_train"]:
    r"""Inner products of one matrix's gradients under an entrywise preconditioner.

    Implements :eq:`preconditioned-ghost`: :math:`\langle G_z, P \odot G_j \rangle = (g_z \odot g_j)^\top
    P (a_z \odot a_j)`. It is a product of an alpha and a beta exactly if P has rank one,
    :math:`P = r c^\top`, and then both factors are rescaled: :math:`\langle a_z, c \odot a_j \rangle
    \langle g_z, r \odot g_j \rangle`.

    Parameters
    ----------
    validation_activations, training_activations
        `(n_val, d_in)` and `(n_train, d_in)`.
    validation_output_gradients, training_output_gradients
        `(n_val, d_out)` and `(n_train, d_out)`.
    preconditioner
        `(d_out, d_in)`, the factor of each entry of the matrix.

    Returns
    -------
    array
        `(n_val, n_train)`. Positive helps.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape does not fit.

    Notes
    -----
    Builds `n_val n_train (d_in + d_out)` numbers; `preconditioned_ghost_scores` does not.
    """
    xp, (a_z, g_z, a_j, g_j, scale) = conformed(
        {
            "validation_activations": (validation_activations, "n_val d_in"),
            "validation_output_gradients": (validation_output_gradients, "n_val d_out"),
            "training_activations": (training_activations, "n_train d_in"),
            "training_output_gradients": (training_output_gradients, "n_train d_out"),
            "preconditioner": (preconditioner, "d_out d_in"),
        }
    )
    feedback, embedding = g_z[:, None, :] * g_j[None, :, :], a_z[:, None, :] * a_j[None, :, :]
    return xp.sum(xp.matmul(feedback, scale) * embedding, axis=-1)


def preconditioned_ghost_scores(
    validation_activations: Array,
    validation_output_gradients: Array,
    training_activations: Array,
    training_output_gradients: Array,
    preconditioner: Array,
    /,
) -> Float[Array, " n_train"]:
    r"""Column sums of `preconditioned_ghost_kernel`, at the cost of the summed validation gradient.

    Implements :eq:`preconditioned-ghost`: :math:`g_j^\top (P \odot G_V) a_j`. With LAI's concatenated
    activations and last output gradients it is LAI under any preconditioner of its readouts.

    Parameters
    ----------
    validation_activations, validation_output_gradients, training_activations, training_output_gradients
        As in `preconditioned_ghost_kernel`.
    preconditioner
        `(d_out, d_in)`.

    Returns
    -------
    array
        `(n_train,)`. Positive helps.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape does not fit.
    """
    xp, (a_z, g_z, a_j, g_j, scale) = conformed(
        {
            "validation_activations": (validation_activations, "n_val d_in"),
            "validation_output_gradients": (validation_output_gradients, "n_val d_out"),
            "training_activations": (training_activations, "n_train d_in"),
            "training_output_gradients": (training_output_gradients, "n_train d_out"),
            "preconditioner": (preconditioner, "d_out d_in"),
        }
    )
    summed = xp.matmul(xp.matrix_transpose(g_z), a_z)
    return xp.sum(xp.matmul(g_j, scale * summed) * a_j, axis=-1)
