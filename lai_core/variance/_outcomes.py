"""Ghost and LAI outcome by outcome, and moments of what takes finitely many values."""

from jaxtyping import Float

from lai_core._engine.namespace import Array, matmul, xp_of
from lai_core._theory.algebra import dot
from lai_core._theory.arrays import checked


@checked
def expectation(
    values: Float[Array, "... outcomes"], probabilities: Float[Array, " outcomes"], /
) -> Float[Array, "..."]:
    """Compute the mean of random variables with finitely many outcomes.

    Arguments: :mod:`lai_core.variance`.

    Parameters
    ----------
    values
        What each variable is in each outcome.
    """
    return dot(xp_of(values), values, probabilities)


@checked
def covariances(
    left: Float[Array, "p outcomes"],
    right: Float[Array, "q outcomes"],
    probabilities: Float[Array, " outcomes"],
    /,
) -> Float[Array, "p q"]:
    """Compute covariances of every variable of one list with every variable of another.

    Arguments: :mod:`lai_core.variance`.

    Parameters
    ----------
    left, right
        What each variable is in each outcome.
    """
    xp = xp_of(left)
    from_mean = [variables - dot(xp, variables, probabilities)[:, None] for variables in (left, right)]
    return matmul(xp, from_mean[0] * probabilities, xp.matrix_transpose(from_mean[1]))


@checked
def signal_and_noise(
    alpha: Float[Array, " L"], gains: Float[Array, " L"], similarities: Float[Array, "L outcomes"], /
) -> tuple[Float[Array, " outcomes"], Float[Array, " outcomes"]]:
    r"""Split Ghost's outcomes into signal X and noise Y.

    Implements :eq:`signal-and-noise`: :math:`X = (\sum_l \alpha^{(l)} c_l)\beta^\star` and
    :math:`Y = \sum_l \alpha^{(l)} (\beta^{(l)} - c_l \beta^\star)`.

    Assume: one validation sample; fixed :math:`\alpha`. Arguments: :mod:`lai_core.variance`.
    """
    xp, shared = xp_of(alpha), similarities[-1, ...]
    remainders = similarities - gains[:, None] * shared
    return dot(xp, alpha, gains) * shared, xp.sum(alpha[:, None] * remainders, axis=0)


@checked
def ghost_signal_noise(
    alpha: Float[Array, " L"],
    gains: Float[Array, " L"],
    shared: Float[Array, " outcomes"],
    remainders: Float[Array, "L outcomes"],
    /,
) -> Float[Array, " outcomes"]:
    r"""Compute Ghost's outcomes from signal and remainders, without the printed minus.

    Implements :eq:`ghost-signal-noise`: :math:`(\sum_l \alpha^{(l)} c_l)\beta^\star +
    \sum_l \alpha^{(l)} \varepsilon^{(l)}`, for one validation sample; printed with a minus and without
    the sum over validation samples.

    Assume: one validation sample. Arguments: :mod:`lai_core.variance`.
    """
    xp = xp_of(alpha)
    return dot(xp, alpha, gains) * shared + xp.sum(alpha[:, None] * remainders, axis=0)


@checked
def lai_signal(alpha: Float[Array, " L"], shared: Float[Array, " outcomes"], /) -> Float[Array, " outcomes"]:
    r"""Compute LAI's outcomes: the shared signal alone, without the printed minus.

    Implements :eq:`lai-signal`: :math:`(\sum_l \alpha^{(l)})\beta^\star`, for one validation sample.

    Assume: one validation sample. Arguments: :mod:`lai_core.variance`.
    """
    return xp_of(alpha).sum(alpha) * shared
