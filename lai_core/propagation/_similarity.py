"""From vectors to scalars: a layer's similarity, its operator, its gain, and the remainder."""

from collections.abc import Sequence

from jaxtyping import Float

from lai_core._engine.namespace import Array, xp_of
from lai_core._theory.algebra import apply, check_width, dot, multiply_transposed
from lai_core._theory.arrays import Numbers, Operator, Vector, checked
from lai_core.propagation._operators import Jacobian, chain_product, product_change


@checked
def layer_similarities(
    validation: Sequence[Float[Array, "... d_l"]], training: Sequence[Float[Array, "... d_l"]], /
) -> Float[Array, "L ..."]:
    r"""Compute the similarity of two samples' gradients in each layer.

    Implements :eq:`layer-gradients`: :math:`\beta^{(l)}_{zj} = g^{(l)\top}_z g^{(l)}_j`, with
    :math:`g^{(l)}` the gradient of the one loss in the pre-activations :math:`s^{(l)}`.

    Parameters
    ----------
    validation, training
        :math:`g^{(1)}, \dots, g^{(L)}` of z and of j.
    """
    if len(training) != len(validation):
        msg = f"training: expected {len(validation)} layers as validation has, got {len(training)}"
        raise ValueError(msg)
    pairs = list(zip(validation, training, strict=True))
    for index, (g_z, g_j) in enumerate(pairs):
        check_width(f"training[{index}]", g_j, g_z, f"validation[{index}]")
    xp = xp_of(validation[0])
    return xp.stack([dot(xp, g_z, g_j) for g_z, g_j in pairs])


@checked
def shared_signal(validation: Vector, training: Vector, /) -> Numbers:
    r"""Compute the similarity of the last layer's gradients, :math:`\beta^\star = g^{(L)\top}_z g^{(L)}_j`.

    Implements :eq:`shared-signal` and :eq:`app-beta-L`: it is :math:`\beta^{(L)}` by definition. For
    noisy :math:`g^{(L)} = g^\star + \xi` it contains the noise of the output layer:
    :math:`E\beta^\star = g^\star_z \cdot g^\star_j + E[\xi_z \cdot \xi_j]`.

    Arguments: :mod:`lai_core.propagation`.
    """
    return dot(xp_of(validation), validation, training)


@checked
def output_fluctuation(
    output_gradients: Float[Array, "outcomes d_L"], probabilities: Float[Array, " outcomes"], /
) -> tuple[Float[Array, " d_L"], Float[Array, "outcomes d_L"]]:
    r"""Split a random output gradient into mean and fluctuation, :math:`g^{(L)} = g^\star + \xi`.

    Implements :eq:`output-fluctuation`; :math:`E\xi = 0` leaves no choice but
    :math:`g^\star = E[g^{(L)}]`.

    Arguments: :mod:`lai_core.propagation`.
    """
    mean = xp_of(output_gradients).sum(output_gradients * probabilities[:, None], axis=0)
    return mean, output_gradients - mean


@checked
def gradient_decomposition(
    means: Sequence[Jacobian], deviations: Sequence[Jacobian], clean: Vector, fluctuation: Vector, /
) -> tuple[Float[Array, "... d_l"], ...]:
    r"""Split layer l's gradient in four: signal and noise, through mean and rest of the operator.

    Implements :eq:`app-g-l-decomp`: :math:`\bar A g^\star,\ \bar A \xi,\ \Delta A g^\star,\ \Delta A \xi`
    with the exact :math:`\Delta A` of `telescoping_perturbation`; they add up to
    :math:`A^{(l)} g^{(L)}`, which the printed first-order :math:`\Delta A` misses.

    Arguments: :mod:`lai_core.propagation`.
    """
    mean, rest = chain_product("means", means), product_change(means, deviations)
    check_width("clean", clean, mean, "the last Jacobian")
    xp = xp_of(mean)
    return tuple(apply(xp, operator, vector) for operator in (mean, rest) for vector in (clean, fluctuation))


@checked
def similarity_operator(
    validation: Sequence[Jacobian], training: Sequence[Jacobian], /
) -> Float[Array, "... d_L d_L"]:
    r"""Turn layer l's similarity into a bilinear form of the last layer's gradients.

    Implements :eq:`app-M-def`: :math:`M^{(l)}_{zj} = A^{(l)\top}_z A^{(l)}_j`, so that
    :math:`\beta^{(l)}_{zj} = g^{(L)\top}_z M^{(l)}_{zj} g^{(L)}_j`.

    Parameters
    ----------
    validation, training
        :math:`J^{(l+1)}, \dots, J^{(L)}` of z and of j.
    """
    return _product(chain_product("validation", validation), chain_product("training", training))


@checked
def _product(validation: Operator, training: Operator, /) -> Float[Array, "... d_L d_L"]:
    return multiply_transposed(xp_of(validation), validation, training)


@checked
def isotropic_gain(means: Sequence[Jacobian], /) -> Numbers:
    r"""Compute layer l's gain with the printed dimension, :math:`\mathrm{tr}(\bar M^{(l)}) / d_l`.

    Implements :eq:`isotropic-gain`. :math:`\bar M^{(l)}` is :math:`d_L \times d_L`, so that this is
    :math:`d_L / d_l` times `trace_gain`, the multiple of the identity nearest to it.

    Arguments: :mod:`lai_core.propagation`.
    """
    operator = chain_product("means", means)
    return _trace(operator) / operator.shape[-2]


@checked
def trace_gain(means: Sequence[Jacobian], /) -> Numbers:
    r"""Compute layer l's gain, :math:`c_l = \mathrm{tr}(\bar M^{(l)}) / d_L`.

    Implements :eq:`trace-gain`: of all c it minimises :math:`\|\bar M^{(l)} - cI\|_F`, leaves a
    traceless rest, and is 1 where :math:`\bar A^{(l)}` keeps lengths.

    Arguments: :mod:`lai_core.propagation`.
    """
    operator = chain_product("means", means)
    return _trace(operator) / operator.shape[-1]


def _trace(operator: Array) -> Array:
    """Return the trace of A'A, the sum of the squares of A."""
    return xp_of(operator).sum(operator * operator, axis=(-2, -1))


@checked
def similarity_decomposition(
    operator: Float[Array, "... d_L d_L"], gain: Numbers, validation: Vector, training: Vector, /
) -> tuple[Numbers, Numbers]:
    r"""Split :math:`\beta^{(l)} = c_l \beta^\star + \varepsilon^{(l)}` into its two terms.

    Implements :eq:`app-beta-decomp`. True of every number c, since
    :math:`\varepsilon^{(l)} = g^{(L)\top}_z (M^{(l)} - cI) g^{(L)}_j` is whatever remains: it says
    something only once c is fixed (`trace_gain`, or :func:`lai_core.variance.regression_gain`).

    Arguments: :mod:`lai_core.propagation`.
    """
    xp = xp_of(operator)
    signal = gain * dot(xp, validation, training)
    return signal, dot(xp, validation, apply(xp, operator, training) - gain[..., None] * training)


@checked
def remainder_terms(
    means: Sequence[Jacobian],
    validation_deviations: Sequence[Jacobian],
    training_deviations: Sequence[Jacobian],
    gain: Numbers,
    validation: Vector,
    training: Vector,
    /,
) -> Float[Array, "4 ..."]:
    r"""Write the remainder :math:`\varepsilon^{(l)}` out: anisotropy of the mean, and the rests' three terms.

    Implements :eq:`remainder`: :math:`g_z^\top \bar E g_j,\ g_z^\top \bar A^\top \Delta A_j g_j,\
    g_z^\top \Delta A_z^\top \bar A g_j,\ g_z^\top \Delta A_z^\top \Delta A_j g_j` with
    :math:`\bar E = \bar M - c I` and g the last layer's gradients, noise included. They add up to
    :math:`\varepsilon^{(l)}`; nothing in :math:`\xi` is left to add.

    Arguments: :mod:`lai_core.propagation`.
    """
    operators = _operators(means, validation_deviations, training_deviations)
    return _four_terms(*operators, gain, validation, training)


@checked
def printed_remainder(
    means: Sequence[Jacobian],
    validation_deviations: Sequence[Jacobian],
    training_deviations: Sequence[Jacobian],
    gain: Numbers,
    validation_parts: tuple[Vector, Vector],
    training_parts: tuple[Vector, Vector],
    /,
) -> Numbers:
    r"""Compute the printed remainder: the four terms, and then the terms in :math:`\xi` once more.

    Implements :eq:`app-eps-explicit`. The four terms contain :math:`\xi` already, since they are
    written with the noisy :math:`g^{(L)}`; the terms "involving :math:`\xi`" of the product of the two
    decompositions, :math:`g_z^\top M g_j - g^{\star\top}_z M g^\star_j`, are counted twice.

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
    sides = {"validation": validation_deviations, "training": training_deviations}
    mean = chain_product("means", means)
    return mean, *(product_change(means, rests, f"{side}_deviations") for side, rests in sides.items())


@checked
def _four_terms(
    mean: Operator,
    validation_rest: Operator,
    training_rest: Operator,
    gain: Numbers,
    validation: Vector,
    training: Vector,
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
