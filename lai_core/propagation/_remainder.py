"""A layer's similarity as gain times signal plus remainder."""

from collections.abc import Sequence

from jaxtyping import Float

from lai_core._engine.namespace import Array, xp_of
from lai_core._theory.algebra import apply, dot
from lai_core._theory.arrays import checked
from lai_core.propagation._operators import Jacobian, backward_operator
from lai_core.propagation._perturbation import telescoping_perturbation

Operator = Float[Array, "... d_l d_L"]


@checked
def similarity_decomposition(
    operator: Float[Array, "... d_L d_L"],
    gain: Float[Array, "..."],
    validation: Float[Array, "... d_L"],
    training: Float[Array, "... d_L"],
    /,
) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    r"""Split :math:`\beta^{(l)} = c_l \beta^\star + \varepsilon^{(l)}` into its two terms.

    Implements :eq:`app-beta-decomp`. True of every number c, since
    :math:`\varepsilon^{(l)} = g^{(L)\top}_z (M^{(l)} - cI) g^{(L)}_j` is whatever remains: it says
    something only once c is fixed (`trace_gain`, or :func:`lai_core.variance.regression_gain`).

    No assumption. Arguments: :mod:`lai_core.propagation`.
    """
    xp = xp_of(operator)
    signal = gain * dot(xp, validation, training)
    return signal, dot(xp, validation, apply(xp, operator, training) - gain[..., None] * training)


@checked
def remainder_terms(
    means: Sequence[Jacobian],
    validation_deviations: Sequence[Jacobian],
    training_deviations: Sequence[Jacobian],
    gain: Float[Array, "..."],
    validation: Float[Array, "... d_L"],
    training: Float[Array, "... d_L"],
    /,
) -> Float[Array, "4 ..."]:
    r"""Write the remainder :math:`\varepsilon^{(l)}` out: anisotropy of the mean, and the rests' three terms.

    Implements :eq:`remainder`: :math:`g_z^\top \bar E g_j,\ g_z^\top \bar A^\top \Delta A_j g_j,\
    g_z^\top \Delta A_z^\top \bar A g_j,\ g_z^\top \Delta A_z^\top \Delta A_j g_j` with
    :math:`\bar E = \bar M - c I` and g the last layer's gradients, noise included. They add up to
    :math:`\varepsilon^{(l)}`; nothing in :math:`\xi` is left to add.

    No assumption. Arguments: :mod:`lai_core.propagation`.
    """
    operators = _operators(means, validation_deviations, training_deviations)
    return _four_terms(*operators, gain, validation, training)


@checked
def printed_remainder(
    means: Sequence[Jacobian],
    validation_deviations: Sequence[Jacobian],
    training_deviations: Sequence[Jacobian],
    gain: Float[Array, "..."],
    validation_parts: tuple[Float[Array, "... d_L"], Float[Array, "... d_L"]],
    training_parts: tuple[Float[Array, "... d_L"], Float[Array, "... d_L"]],
    /,
) -> Float[Array, "..."]:
    r"""Compute the printed remainder: the four terms, and then the terms in :math:`\xi` once more.

    Implements :eq:`app-eps-explicit`. The four terms contain :math:`\xi` already, since they are
    written with the noisy :math:`g^{(L)}`; the terms "involving :math:`\xi`" of the product of the two
    decompositions, :math:`g_z^\top M g_j - g^{\star\top}_z M g^\star_j`, are counted twice.

    The text assumes: the terms that involve :math:`\xi` are not written.
    Arguments: :mod:`lai_core.propagation`.

    Parameters
    ----------
    validation_parts, training_parts
        :math:`(g^\star, \xi)` of z and of j.
    """
    operators = _operators(means, validation_deviations, training_deviations)
    clean, noisy = zip(*((star, star + xi) for star, xi in (validation_parts, training_parts)), strict=True)
    nothing = gain * 0.0  # without a gain the four terms are the whole form g_z' M g_j
    remainder = _four_terms(*operators, gain, *noisy)
    twice = _four_terms(*operators, nothing, *noisy) - _four_terms(*operators, nothing, *clean)
    return xp_of(remainder).sum(remainder + twice, axis=0)


def _operators(
    means: Sequence[Array], validation_deviations: Sequence[Array], training_deviations: Sequence[Array]
) -> tuple[Array, Array, Array]:
    """Return the mean operator, and the rests of z and of j."""
    rests = (telescoping_perturbation(means, rests) for rests in (validation_deviations, training_deviations))
    return backward_operator(means), *rests


@checked
def _four_terms(
    mean: Operator,
    validation_rest: Operator,
    training_rest: Operator,
    gain: Float[Array, "..."],
    validation: Float[Array, "... d_L"],
    training: Float[Array, "... d_L"],
    /,
) -> Float[Array, "4 ..."]:
    xp = xp_of(mean)
    # beta^(l) = (A g_z + D_z g_z)' (A g_j + D_j g_j) with A the mean operator and D the rest:
    mean_z, mean_j = apply(xp, mean, validation), apply(xp, mean, training)
    noise_z, noise_j = apply(xp, validation_rest, validation), apply(xp, training_rest, training)
    terms = [
        dot(xp, mean_z, mean_j) - gain * dot(xp, validation, training),  # g_z' (A'A - cI) g_j
        dot(xp, mean_z, noise_j),  # g_z' A' D_j g_j
        dot(xp, noise_z, mean_j),  # g_z' D_z' A g_j
        dot(xp, noise_z, noise_j),  # g_z' D_z' D_j g_j
    ]
    return xp.stack(list(xp.broadcast_arrays(*terms)))
