r"""Ghost and LAI outcome by outcome, and moments of what takes finitely many values."""

from jaxtyping import Float

from lai_core._engine.namespace import Array
from lai_core._theory.prepared import check_shape, check_width, dot, prepared


def expectation(values: Array, probabilities: Array, /) -> Float[Array, "..."]:
    """Mean of a random variable with finitely many outcomes.

    Parameters
    ----------
    values
        `(..., m)`.
    probabilities
        `(m,)`, summing to 1 (not looked at).

    Returns
    -------
    array
        `(...)`.

    Raises
    ------
    ValueError
        If the numbers of outcomes differ.
    TypeError
        If an argument is no array of real floats.
    """
    xp, (values, probabilities) = prepared({"values": values, "probabilities": probabilities})
    check_shape("probabilities", probabilities, (values.shape[-1],))
    return dot(xp, values, probabilities)


def covariances(left: Array, right: Array, probabilities: Array, /) -> Float[Array, "rows columns"]:
    """Covariances of every variable of one list with every variable of another.

    Parameters
    ----------
    left, right
        `(p, m)` and `(q, m)`.
    probabilities
        `(m,)`, summing to 1 (not looked at).

    Returns
    -------
    array
        `(p, q)`.

    Raises
    ------
    ValueError
        If the shapes do not fit.
    TypeError
        If an argument is no array of real floats.
    """
    named = {"left": left, "right": right, "probabilities": probabilities}
    xp, (left, right, probabilities) = prepared(named)
    for name, variables in (("left", left), ("right", right)):
        if variables.ndim != 2:
            msg = f"{name}: expected shape (p, m), got {tuple(variables.shape)}"
            raise ValueError(msg)
        check_width(name, variables, probabilities.shape[-1], "probabilities")
    centred = [variables - dot(xp, variables, probabilities)[:, None] for variables in (left, right)]
    return xp.matmul(centred[0] * probabilities, xp.matrix_transpose(centred[1]))


def signal_and_noise(
    alpha: Array, gains: Array, similarities: Array, /
) -> tuple[Float[Array, " outcomes"], Float[Array, " outcomes"]]:
    r"""Split Ghost's outcomes into signal X and noise Y.

    Implements :eq:`signal-and-noise`: :math:`X = (\sum_l \alpha^{(l)} c_l)\beta^\star` and
    :math:`Y = \sum_l \alpha^{(l)} (\beta^{(l)} - c_l \beta^\star)`.

    Parameters
    ----------
    alpha, gains
        :math:`\alpha^{(l)}` and :math:`c_l`, `(L,)`.
    similarities
        :math:`\beta^{(l)}` in each outcome, `(L, m)`; the last row is :math:`\beta^\star`.

    Returns
    -------
    tuple of array
        X and Y, each `(m,)`.

    Raises
    ------
    ValueError
        If the shapes do not fit.
    TypeError
        If an argument is no array of real floats.
    """
    named = {"alpha": alpha, "gains": gains, "similarities": similarities}
    xp, (alpha, gains, similarities) = prepared(named)
    if similarities.ndim != 2:
        msg = f"similarities: expected shape (L, m), got {tuple(similarities.shape)}"
        raise ValueError(msg)
    layers = similarities.shape[0]
    for name, array in (("alpha", alpha), ("gains", gains)):
        check_shape(name, array, (layers,))
    shared = similarities[layers - 1, ...]
    signal = dot(xp, alpha, gains) * shared
    remainders = similarities - gains[:, None] * shared
    return signal, xp.sum(alpha[:, None] * remainders, axis=0)


def ghost_signal_noise(
    alpha: Array, gains: Array, shared: Array, remainders: Array, /
) -> Float[Array, " outcomes"]:
    r"""Ghost's outcomes from signal and remainders, without the printed minus.

    Implements :eq:`ghost-signal-noise`: :math:`(\sum_l \alpha^{(l)} c_l)\beta^\star +
    \sum_l \alpha^{(l)} \varepsilon^{(l)}`, for one validation sample; printed with a minus and without
    the sum over validation samples.

    Parameters
    ----------
    alpha, gains
        `(L,)`.
    shared
        :math:`\beta^\star` in each outcome, `(m,)`.
    remainders
        :math:`\varepsilon^{(l)}` in each outcome, `(L, m)`.

    Returns
    -------
    array
        `(m,)`; positive helps.

    Raises
    ------
    ValueError
        If the shapes do not fit.
    TypeError
        If an argument is no array of real floats.
    """
    named = {"alpha": alpha, "gains": gains, "shared": shared, "remainders": remainders}
    xp, (alpha, gains, shared, remainders) = prepared(named)
    check_shape("gains", gains, tuple(alpha.shape))
    check_shape("remainders", remainders, (alpha.shape[0], shared.shape[0]))
    return dot(xp, alpha, gains) * shared + xp.sum(alpha[:, None] * remainders, axis=0)


def lai_signal(alpha: Array, shared: Array, /) -> Float[Array, " outcomes"]:
    r"""LAI's outcomes: the shared signal alone, without the printed minus.

    Implements :eq:`lai-signal`: :math:`(\sum_l \alpha^{(l)})\beta^\star`, for one validation sample.

    Parameters
    ----------
    alpha
        `(L,)`.
    shared
        :math:`\beta^\star` in each outcome, `(m,)`.

    Returns
    -------
    array
        `(m,)`; positive helps.

    Raises
    ------
    ValueError
        If an array is empty.
    TypeError
        If an argument is no array of real floats.
    """
    xp, (alpha, shared) = prepared({"alpha": alpha, "shared": shared})
    return xp.sum(alpha) * shared
