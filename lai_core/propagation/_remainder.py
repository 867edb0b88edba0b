r"""A layer's similarity as gain times signal plus remainder."""

from collections.abc import Sequence

from jaxtyping import Float

from lai_core._engine.namespace import Array
from lai_core._theory.prepared import apply, check_shape, check_width, dot, prepared
from lai_core.propagation._operators import backward_operator
from lai_core.propagation._perturbation import telescoping_perturbation


def similarity_decomposition(
    operator: Array, gain: Array, validation: Array, training: Array, /
) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    r"""Split :math:`\beta^{(l)} = c_l \beta^\star + \varepsilon^{(l)}` into its two terms.

    Implements :eq:`app-beta-decomp`. True of every number c, since
    :math:`\varepsilon^{(l)} = g^{(L)\top}_z (M^{(l)} - cI) g^{(L)}_j` is whatever remains: it says
    something only once c is fixed (`trace_gain`, or :func:`lai_core.variance.regression_gain`).

    Parameters
    ----------
    operator
        :math:`M^{(l)}_{zj}`, `(..., d_L, d_L)`.
    gain
        c, `(...)`.
    validation, training
        :math:`g^{(L)}` of z and of j, `(..., d_L)`.

    Returns
    -------
    tuple of array
        :math:`c\,\beta^\star` and :math:`\varepsilon^{(l)}`, each `(...)`.

    Raises
    ------
    ValueError
        If the shapes do not fit.
    TypeError
        If an argument is no array of real floats.
    """
    named = {"operator": operator, "gain": gain, "validation": validation, "training": training}
    xp, (operator, gain, validation, training) = prepared(named)
    for name, vector in (("validation", validation), ("training", training)):
        check_width(name, vector, operator.shape[-1], "operator")
    signal = gain * dot(xp, validation, training)
    return signal, dot(xp, validation, apply(xp, operator, training) - gain[..., None] * training)


def remainder_terms(
    means: Sequence[Array],
    validation_deviations: Sequence[Array],
    training_deviations: Sequence[Array],
    gain: Array,
    validation: Array,
    training: Array,
    /,
) -> Float[Array, "4 ..."]:
    r"""Write the remainder :math:`\varepsilon^{(l)}` out: anisotropy of the mean, and the rests' three terms.

    Implements :eq:`remainder`: :math:`g_z^\top \bar E g_j,\ g_z^\top \bar A^\top \Delta A_j g_j,\
    g_z^\top \Delta A_z^\top \bar A g_j,\ g_z^\top \Delta A_z^\top \Delta A_j g_j` with
    :math:`\bar E = \bar M - c I` and g the last layer's gradients, noise included. They add up to
    :math:`\varepsilon^{(l)}`; nothing in :math:`\xi` is left to add.

    Parameters
    ----------
    means
        :math:`\bar J^{(l+1)}, \dots, \bar J^{(L)}`.
    validation_deviations, training_deviations
        :math:`\Delta J^{(t)}` of z and of j, t = l+1, ..., L.
    gain
        c, `(...)`.
    validation, training
        :math:`g^{(L)}` of z and of j, `(..., d_L)`.

    Returns
    -------
    array
        The four terms, `(4, ...)`.

    Raises
    ------
    ValueError
        If the shapes do not fit.
    TypeError
        If an argument is no array of real floats.
    """
    named = {
        "means": backward_operator(means),
        "validation_deviations": telescoping_perturbation(means, validation_deviations),
        "training_deviations": telescoping_perturbation(means, training_deviations),
        "gain": gain,
        "validation": validation,
        "training": training,
    }
    xp, (average, rest_z, rest_j, gain, validation, training) = prepared(named)
    for name, vector in (("validation", validation), ("training", training)):
        check_width(name, vector, average.shape[-1], "the last Jacobian")
    mean_z, mean_j = apply(xp, average, validation), apply(xp, average, training)
    noise_z, noise_j = apply(xp, rest_z, validation), apply(xp, rest_j, training)
    terms = [
        dot(xp, mean_z, mean_j) - gain * dot(xp, validation, training),
        dot(xp, mean_z, noise_j),
        dot(xp, noise_z, mean_j),
        dot(xp, noise_z, noise_j),
    ]
    return xp.stack(list(xp.broadcast_arrays(*terms)))


def printed_remainder(
    means: Sequence[Array],
    validation_deviations: Sequence[Array],
    training_deviations: Sequence[Array],
    gain: Array,
    validation_parts: tuple[Array, Array],
    training_parts: tuple[Array, Array],
    /,
) -> Float[Array, "..."]:
    r"""Compute the printed remainder: the four terms, and then the terms in :math:`\xi` once more.

    Implements :eq:`app-eps-explicit`. The four terms contain :math:`\xi` already, since they are
    written with the noisy :math:`g^{(L)}`; the terms "involving :math:`\xi`" of the product of the two
    decompositions, :math:`g_z^\top M g_j - g^{\star\top}_z M g^\star_j`, are counted twice.

    Parameters
    ----------
    means, validation_deviations, training_deviations, gain
        As in `remainder_terms`.
    validation_parts, training_parts
        :math:`(g^\star, \xi)` of z and of j, each `(..., d_L)`.

    Returns
    -------
    array
        `(...)`; the remainder plus what is counted twice.

    Raises
    ------
    ValueError
        If the shapes do not fit.
    TypeError
        If an argument is no array of real floats.
    """
    (clean_z, noise_z), (clean_j, noise_j) = validation_parts, training_parts
    named = {"clean_z": clean_z, "noise_z": noise_z, "clean_j": clean_j, "noise_j": noise_j}
    xp, (clean_z, noise_z, clean_j, noise_j) = prepared(named)
    check_shape("validation_parts[1]", noise_z, tuple(clean_z.shape))
    check_shape("training_parts[1]", noise_j, tuple(clean_j.shape))
    deviations = (validation_deviations, training_deviations)
    noisy = remainder_terms(means, *deviations, gain, clean_z + noise_z, clean_j + noise_j)
    nothing = gain * 0.0  # without a gain the four terms are the whole bilinear form
    whole = remainder_terms(means, *deviations, nothing, clean_z + noise_z, clean_j + noise_j)
    clean = remainder_terms(means, *deviations, nothing, clean_z, clean_j)
    return xp.sum(noisy + whole - clean, axis=0)
