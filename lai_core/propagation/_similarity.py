r"""From vectors to scalars: a layer's similarity, its operator on the last layer's gradients, its gain."""

from collections.abc import Sequence

from jaxtyping import Float

from lai_core._engine.namespace import Array
from lai_core._theory.prepared import (
    apply,
    check_shape,
    check_width,
    dot,
    numbered,
    prepared,
    transposed_product,
)
from lai_core.propagation._operators import backward_operator
from lai_core.propagation._perturbation import telescoping_perturbation


def layer_similarities(
    validation: Sequence[Array], training: Sequence[Array], /
) -> Float[Array, "layers ..."]:
    r"""Similarity of two samples' gradients in each layer.

    Implements :eq:`layer-gradients`: :math:`\beta^{(l)}_{zj} = g^{(l)\top}_z g^{(l)}_j`, with
    :math:`g^{(l)}` the gradient of the one loss in the pre-activations :math:`s^{(l)}`.

    Parameters
    ----------
    validation, training
        :math:`g^{(1)}, \dots, g^{(L)}` of z and of j, each `(..., d_l)`.

    Returns
    -------
    array
        `(L, ...)`; the last entry is the shared signal.

    Raises
    ------
    ValueError
        If the two do not have the same layers.
    TypeError
        If an argument is no array of real floats.
    """
    named = numbered("validation", validation) | numbered("training", training)
    xp, arrays = prepared(named)
    if len(training) != len(validation):
        msg = f"training: expected {len(validation)} layers as validation has, got {len(training)}"
        raise ValueError(msg)
    sides = list(zip(arrays[: len(validation)], arrays[len(validation) :], strict=True))
    for index, (theirs, ours) in enumerate(sides):
        check_width(f"training[{index}]", ours, theirs.shape[-1], f"validation[{index}]")
    return xp.stack([dot(xp, theirs, ours) for theirs, ours in sides])


def shared_signal(validation: Array, training: Array, /) -> Float[Array, "..."]:
    r"""Similarity of the last layer's gradients, :math:`\beta^\star = g^{(L)\top}_z g^{(L)}_j`.

    Implements :eq:`shared-signal` and :eq:`app-beta-L`: it is :math:`\beta^{(L)}` by definition. For
    noisy :math:`g^{(L)} = g^\star + \xi` it contains the noise of the output layer:
    :math:`E\beta^\star = g^\star_z \cdot g^\star_j + E[\xi_z \cdot \xi_j]`.

    Parameters
    ----------
    validation, training
        :math:`g^{(L)}` of z and of j, `(..., d_L)`.

    Returns
    -------
    array
        `(...)`.

    Raises
    ------
    ValueError
        If the widths differ.
    TypeError
        If an argument is no array of real floats.
    """
    xp, (validation, training) = prepared({"validation": validation, "training": training})
    check_width("training", training, validation.shape[-1], "validation")
    return dot(xp, validation, training)


def output_fluctuation(
    output_gradients: Array, probabilities: Array, /
) -> tuple[Float[Array, " d_L"], Float[Array, "outcomes d_L"]]:
    r"""Split a random output gradient into mean and fluctuation, :math:`g^{(L)} = g^\star + \xi`.

    Implements :eq:`output-fluctuation`; :math:`E\xi = 0` leaves no choice but
    :math:`g^\star = E[g^{(L)}]`.

    Parameters
    ----------
    output_gradients
        The outcomes, `(m, d_L)`.
    probabilities
        `(m,)`, summing to 1 (not looked at).

    Returns
    -------
    tuple of array
        :math:`g^\star`, `(d_L,)`, and :math:`\xi` of each outcome, `(m, d_L)`.

    Raises
    ------
    ValueError
        If the shapes do not fit.
    TypeError
        If an argument is no array of real floats.
    """
    named = {"output_gradients": output_gradients, "probabilities": probabilities}
    xp, (output_gradients, probabilities) = prepared(named)
    if output_gradients.ndim != 2:
        msg = f"output_gradients: expected shape (m, d_L), got {tuple(output_gradients.shape)}"
        raise ValueError(msg)
    check_shape("probabilities", probabilities, (output_gradients.shape[0],))
    mean = xp.sum(output_gradients * probabilities[:, None], axis=0)
    return mean, output_gradients - mean


def gradient_decomposition(
    means: Sequence[Array], deviations: Sequence[Array], clean: Array, fluctuation: Array, /
) -> tuple[Float[Array, "... d_l"], ...]:
    r"""Layer l's gradient in four parts: signal and noise, through mean and rest of the operator.

    Implements :eq:`app-g-l-decomp`: :math:`\bar A g^\star,\ \bar A \xi,\ \Delta A g^\star,\ \Delta A \xi`
    with the exact :math:`\Delta A` of `telescoping_perturbation`; they add up to
    :math:`A^{(l)} g^{(L)}`, which the printed first-order :math:`\Delta A` misses.

    Parameters
    ----------
    means, deviations
        :math:`\bar J^{(t)}` and :math:`\Delta J^{(t)}` for t = l+1, ..., L.
    clean, fluctuation
        :math:`g^\star` and :math:`\xi`, `(..., d_L)`.

    Returns
    -------
    tuple of array
        The four parts, each `(..., d_l)`.

    Raises
    ------
    ValueError
        If the shapes do not fit.
    TypeError
        If an argument is no array of real floats.
    """
    average, rest = backward_operator(means), telescoping_perturbation(means, deviations)
    named = {"means": average, "deviations": rest, "clean": clean, "fluctuation": fluctuation}
    xp, (average, rest, clean, fluctuation) = prepared(named)
    for name, vector in (("clean", clean), ("fluctuation", fluctuation)):
        check_width(name, vector, average.shape[-1], "the last Jacobian")
    return tuple(
        apply(xp, operator, vector) for operator in (average, rest) for vector in (clean, fluctuation)
    )


def similarity_operator(
    validation: Sequence[Array], training: Sequence[Array], /
) -> Float[Array, "... d_L d_L"]:
    r"""Turn layer l's similarity into a bilinear form of the last layer's gradients.

    Implements :eq:`app-M-def`: :math:`M^{(l)}_{zj} = A^{(l)\top}_z A^{(l)}_j`, so that
    :math:`\beta^{(l)}_{zj} = g^{(L)\top}_z M^{(l)}_{zj} g^{(L)}_j`.

    Parameters
    ----------
    validation, training
        :math:`J^{(l+1)}, \dots, J^{(L)}` of z and of j.

    Returns
    -------
    array
        `(..., d_L, d_L)`.

    Raises
    ------
    ValueError
        If the shapes do not chain, or the two end in different widths.
    TypeError
        If an argument is no array of real floats.
    """
    left, right = backward_operator(validation), backward_operator(training)
    xp, (left, right) = prepared({"validation": left, "training": right})
    check_shape("the operator of training", right, (*right.shape[:-2], *left.shape[-2:]))
    return transposed_product(xp, left, right)


def isotropic_gain(means: Sequence[Array], /) -> Float[Array, "..."]:
    r"""Layer l's gain with the printed dimension, :math:`\mathrm{tr}(\bar M^{(l)}) / d_l`.

    Implements :eq:`isotropic-gain`. :math:`\bar M^{(l)}` is :math:`d_L \times d_L`, so that this is
    :math:`d_L / d_l` times `trace_gain`, the multiple of the identity nearest to it.

    Parameters
    ----------
    means
        :math:`\bar J^{(l+1)}, \dots, \bar J^{(L)}`.

    Returns
    -------
    array
        `(...)`.

    Raises
    ------
    ValueError
        If the shapes do not chain.
    TypeError
        If an argument is no array of real floats.
    """
    operator = backward_operator(means)
    xp, (operator,) = prepared({"means": operator})
    return xp.sum(operator * operator, axis=(-2, -1)) / operator.shape[-2]


def trace_gain(means: Sequence[Array], /) -> Float[Array, "..."]:
    r"""Layer l's gain, :math:`c_l = \mathrm{tr}(\bar M^{(l)}) / d_L`.

    Implements :eq:`trace-gain`: of all c it minimises :math:`\|\bar M^{(l)} - cI\|_F`, leaves a
    traceless rest, and is 1 where :math:`\bar A^{(l)}` keeps lengths.

    Parameters
    ----------
    means
        :math:`\bar J^{(l+1)}, \dots, \bar J^{(L)}`.

    Returns
    -------
    array
        `(...)`.

    Raises
    ------
    ValueError
        If the shapes do not chain.
    TypeError
        If an argument is no array of real floats.
    """
    operator = backward_operator(means)
    xp, (operator,) = prepared({"means": operator})
    return xp.sum(operator * operator, axis=(-2, -1)) / operator.shape[-1]
