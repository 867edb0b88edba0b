"""Ghost and LAI outcome by outcome, and their variances from moments: identities, and a printed one."""

from jaxtyping import Float

from lai_core._engine.namespace import Array, matmul, xp_of
from lai_core._theory.algebra import apply, dot
from lai_core._theory.arrays import Layers, Outcomes, Scalar, checked


@checked
def expectation(values: Float[Array, "... outcomes"], probabilities: Outcomes, /) -> Float[Array, "..."]:
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
    left: Float[Array, "p outcomes"], right: Float[Array, "q outcomes"], probabilities: Outcomes, /
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
    alpha: Layers, gains: Layers, similarities: Float[Array, "L outcomes"], /
) -> tuple[Outcomes, Outcomes]:
    r"""Split Ghost's outcomes into signal X and noise Y.

    Implements :eq:`signal-and-noise`: :math:`X = (\sum_l \alpha^{(l)} c_l)\beta^\star` and
    :math:`Y = \sum_l \alpha^{(l)} (\beta^{(l)} - c_l \beta^\star)`.

    Arguments: :mod:`lai_core.variance`.
    """
    xp, shared = xp_of(alpha), similarities[-1, ...]
    remainders = similarities - gains[:, None] * shared
    return dot(xp, alpha, gains) * shared, xp.sum(alpha[:, None] * remainders, axis=0)


@checked
def ghost_signal_noise(
    alpha: Layers, gains: Layers, shared: Outcomes, remainders: Float[Array, "L outcomes"], /
) -> Outcomes:
    r"""Compute Ghost's outcomes from signal and remainders, without the printed minus.

    Implements :eq:`ghost-signal-noise`: :math:`(\sum_l \alpha^{(l)} c_l)\beta^\star +
    \sum_l \alpha^{(l)} \varepsilon^{(l)}`, for one validation sample; printed with a minus and without
    the sum over validation samples.

    Arguments: :mod:`lai_core.variance`.
    """
    xp = xp_of(alpha)
    return dot(xp, alpha, gains) * shared + xp.sum(alpha[:, None] * remainders, axis=0)


@checked
def lai_signal(alpha: Layers, shared: Outcomes, /) -> Outcomes:
    r"""Compute LAI's outcomes: the shared signal alone, without the printed minus.

    Implements :eq:`lai-signal`: :math:`(\sum_l \alpha^{(l)})\beta^\star`, for one validation sample.

    Arguments: :mod:`lai_core.variance`.
    """
    return xp_of(alpha).sum(alpha) * shared


@checked
def noise_variance(alpha: Layers, noise_covariance: Float[Array, "L L"], /) -> Scalar:
    r"""Compute the variance of the noise Y, covariances between layers included.

    Implements :eq:`app-var-eps`: :math:`\sum_{l,k} \alpha^{(l)} \alpha^{(k)}
    \mathrm{Cov}(\varepsilon^{(l)}, \varepsilon^{(k)})`, for numbers :math:`\alpha^{(l)}` and one
    validation sample; `random_weight_sum` does without either.

    Arguments: :mod:`lai_core.variance`.
    """
    xp = xp_of(alpha)
    return dot(xp, alpha, apply(xp, noise_covariance, alpha))


@checked
def ghost_variance(
    alpha: Layers,
    gains: Layers,
    signal_variance: Scalar,
    signal_covariance: Layers,
    noise_covariance: Float[Array, "L L"],
    /,
) -> Scalar:
    r"""Compute the variance of Ghost for one validation sample, with every covariance.

    Implements :eq:`app-var-exact`: :math:`(\sum_l \alpha^{(l)} c_l)^2\, \mathrm{Var}\,\beta^\star +
    \mathrm{Var}\,Y + 2 (\sum_l \alpha^{(l)} c_l)\, \mathrm{Cov}(\beta^\star, Y)`. It needs numbers
    :math:`\alpha^{(l)}` and one validation sample; `random_weight_sum` does without either.

    Arguments: :mod:`lai_core.variance`.
    """
    signal, noise, cross = ghost_parts(alpha, gains, signal_variance, signal_covariance, noise_covariance)
    return signal + noise + cross


@checked
def printed_ghost_variance(
    alpha: Layers, gains: Layers, signal_variance: Scalar, noise_covariance: Float[Array, "L L"], /
) -> Scalar:
    r"""Compute the variance of Ghost as it is printed, without the covariance of signal and noise.

    Implements :eq:`app-ghost-var` and :eq:`app-var-corr-lb`: :math:`(\sum_l \alpha^{(l)} c_l)^2\,
    \mathrm{Var}\,\beta^\star + \mathrm{Var}\,Y`. Appendix A prints it as the variance; it is short of
    :math:`2 (\sum_l \alpha^{(l)} c_l)\, \mathrm{Cov}(\beta^\star, Y)`, which vanishes for the gains of
    `regression_gain`. Appendix C prints it as a lower bound for :math:`\mathrm{Cov}(\beta^\star, Y) \ge 0`;
    what it needs is :math:`(\sum_l \alpha^{(l)} c_l)\, \mathrm{Cov}(\beta^\star, Y) \ge 0`, and the signs
    of the remainders' covariances play no part. `signed_covariance_bound` holds always.

    Arguments: :mod:`lai_core.variance`.
    """
    signal = dot(xp_of(alpha), alpha, gains) ** 2 * signal_variance
    return signal + noise_variance(alpha, noise_covariance)


@checked
def lai_variance(alpha: Layers, signal_variance: Scalar, /) -> Scalar:
    r"""Compute the variance of LAI for one validation sample.

    Implements :eq:`app-var-lai`: :math:`(\sum_l \alpha^{(l)})^2\, \mathrm{Var}\,\beta^\star`. It needs
    numbers :math:`\alpha^{(l)}` and one validation sample; `random_weight_sum` does without either.

    Arguments: :mod:`lai_core.variance`.
    """
    return xp_of(alpha).sum(alpha) ** 2 * signal_variance


@checked
def random_weight_sum(
    alpha_mean: Float[Array, " p"],
    alpha_second_moment: Float[Array, "p p"],
    beta_mean: Float[Array, " p"],
    beta_second_moment: Float[Array, "p p"],
    /,
) -> Scalar:
    r"""Compute the variance of :math:`\sum_i \alpha_i \beta_i` with random alphas independent of the betas.

    Implements :eq:`random-weight-sum`: :math:`\sum_{i,k} E[\alpha_i \alpha_k] E[\beta_i \beta_k] -
    (\sum_i E\alpha_i\, E\beta_i)^2`. The index i runs over layers, or over layers and validation
    samples; for LAI every layer's :math:`\beta_i` is :math:`\beta^\star`.

    Parameters
    ----------
    alpha_mean, beta_mean
        :math:`E\alpha_i` and :math:`E\beta_i`.
    alpha_second_moment, beta_second_moment
        :math:`E[\alpha_i \alpha_k]` and :math:`E[\beta_i \beta_k]`.
    """
    xp = xp_of(alpha_mean)
    return xp.sum(alpha_second_moment * beta_second_moment) - dot(xp, alpha_mean, beta_mean) ** 2


def ghost_parts(
    alpha: Array, gains: Array, signal_variance: Array, signal_covariance: Array, noise_covariance: Array
) -> tuple[Array, Array, Array]:
    """Return Var X, Var Y and 2 Cov(X, Y)."""
    xp = xp_of(alpha)
    scale = dot(xp, alpha, gains)
    noise = noise_variance(alpha, noise_covariance)
    return scale**2 * signal_variance, noise, 2.0 * scale * dot(xp, alpha, signal_covariance)
