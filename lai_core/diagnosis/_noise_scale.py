"""The gradient noise scale: how many rows a step needs before their noise no longer hides the gradient."""

from dataclasses import dataclass
from math import inf, isfinite

from jaxtyping import Float

from lai_core._engine.axes import check_array
from lai_core._engine.namespace import Array, move_to_host, xp_of
from lai_core._theory.algebra import quotient
from lai_core._theory.arrays import Constant, PerSample, Scalar, checked
from lai_core._theory.student import upper_quantile


@checked
def gradient_noise(norms: PerSample, mean_norm: Constant, /) -> tuple[Scalar, Scalar]:
    r"""Estimate how far the rows' gradients spread, and how long their expectation is, from one batch.

    Implements :eq:`gradient-noise`: with :math:`q = \sum_j \lVert g_j \rVert^2` and :math:`S = \sum_j g_j`,

    .. math:: \frac{q - \lVert S \rVert^2 / n}{n - 1} \quad\text{and}\quad
        \frac{\lVert S \rVert^2 - q}{n (n - 1)}

    have the expectations :math:`\operatorname{tr} \Sigma` and :math:`\lVert G \rVert^2`.

    Parameters
    ----------
    norms
        Of each row's gradient.
    mean_norm
        :math:`\lVert S \rVert / n`, the norm of the rows' mean gradient, before it is clipped.

    Returns
    -------
    tuple
        The noise and the signal; by chance the signal may be negative.

    Raises
    ------
    ValueError
        If there is one row: its distance from the expectation cannot be seen.

    Examples
    --------
    >>> import numpy as np
    >>> from lai_core.diagnosis import gradient_noise
    >>> noise, signal = gradient_noise(np.array([3.0, 4.0]), 2.5)  # gradients (3, 0) and (0, 4)
    >>> float(noise), float(signal)
    (12.5, 0.0)
    """
    n = int(norms.shape[0])
    if n < 2:
        msg = f"norms: expected those of 2 rows or more, got {n}"
        raise ValueError(msg)
    xp = xp_of(norms)
    square = xp.mean(norms * norms)
    noise = (square - mean_norm * mean_norm) * (n / (n - 1))
    return noise, square - noise


@checked
def fieller_interval(
    numerators: Float[Array, " steps"], denominators: Float[Array, " steps"], /, *, confidence: float = 0.95
) -> tuple[Scalar, Scalar]:
    r"""Compute a confidence interval of a ratio of two expectations that is not negative, from pairs.

    Implements :eq:`fieller-interval`: the :math:`\rho \ge 0` for which the mean of :math:`x_i - \rho y_i` is
    within :math:`t` of its standard errors from 0, and all that lies between them. Of independent normal
    pairs with one law it holds the ratio with the probability `confidence` or more, however noisy the
    denominators are; then it has no upper end, for a ratio to what is not told from 0 may be anything large.

    Parameters
    ----------
    numerators, denominators
        The pairs, at least two of them.
    confidence
        In (0, 1).

    Returns
    -------
    tuple
        Both ends: the second is infinite where the denominators do not bound the ratio, the first too where
        they are negative beyond doubt.

    Raises
    ------
    ValueError
        If there are fewer than two pairs.

    Examples
    --------
    >>> import numpy as np
    >>> from lai_core.diagnosis import fieller_interval
    >>> low, high = fieller_interval(np.array([9.0, 10.0, 11.0]), np.array([1.9, 2.0, 2.1]))
    >>> print(f"{float(low):.2f} to {float(high):.2f}")
    4.29 to 5.55
    >>> low, high = fieller_interval(np.array([9.0, 10.0, 11.0]), np.array([-0.5, 0.1, 0.9]))
    >>> print(f"{float(low):.2f} to {float(high):.2f}")
    6.53 to inf
    """
    if not 0.0 < confidence < 1.0:
        msg = f"confidence: expected a number in (0, 1), got {confidence!r}"
        raise ValueError(msg)
    x, y, steps = numerators, denominators, int(numerators.shape[0])
    if steps < 2:
        msg = f"numerators: expected those of 2 pairs or more, got {steps}"
        raise ValueError(msg)
    xp = xp_of(x)
    unit_x, unit_y = xp.max(xp.abs(x)), xp.max(xp.abs(y))  # products of four of these would underflow
    x, y = quotient(xp, x, unit_x, 0.0), quotient(xp, y, unit_y, 0.0)
    freedom = xp.zeros_like(unit_x) + (steps - 1)
    factor = upper_quantile(xp, (1.0 - confidence) / 2.0, freedom) ** 2 / (steps * (steps - 1))
    mean_x, mean_y = xp.mean(x), xp.mean(y)
    dx, dy = x - mean_x, y - mean_y
    # a rho^2 - 2 b rho + c is the squared mean of x - rho y minus t^2 times its squared standard error
    a = mean_y * mean_y - factor * xp.sum(dy * dy)
    b = mean_x * mean_y - factor * xp.sum(dx * dy)
    c = mean_x * mean_x - factor * xp.sum(dx * dx)
    zero = 0.0 * b + 0.0  # not -0; no number where a pair is none
    top = zero + inf
    square = b * b - a * c
    refuted = (c > 0.0) & (square >= 0.0)  # of 0, and so of the ratios up to the first root
    root = xp.sqrt(xp.where(square > 0.0, square, zero))
    # The roots are q / a and c / q, q being b and the square's root of one sign, so that nothing cancels.
    rises = b >= 0.0
    q = xp.where(rises, b + root, b - root)
    one, other = quotient(xp, q * unit_x, a * unit_y, inf), quotient(xp, c * unit_x, q * unit_y, inf)
    low, high = xp.where(rises, other, one), xp.where(rises, one, other)
    above = xp.where(rises, q > 0.0, a * c < 0.0)  # whether b + root is above 0
    bounded = (a > 0.0) & (above | ~refuted)
    return xp.where(refuted, xp.where(above, low, top), zero), xp.where(bounded, high, top)


@dataclass(frozen=True)
class NoiseScaleEstimate:
    """The gradient noise scale of some steps, in rows.

    Attributes
    ----------
    scale
        `noise / signal`: of a batch of so many rows the mean gradient's variance is as large as the squared
        length of what it estimates. Infinite where the signal's estimate is not positive.
    low, high
        Fieller's interval. `high` is infinite where the signal is not told from 0.
    noise, signal
        Means over the steps of what `gradient_noise` estimates.
    steps
        How many.
    confidence
        The interval's.
    """

    scale: float
    low: float
    high: float
    noise: float
    signal: float
    steps: int
    confidence: float

    def __str__(self) -> str:
        sure = f"{100.0 * self.confidence:.6g}% of {self.steps} steps"
        if self.low == inf:
            return f"gradient noise scale: not told ({sure}), the signal's estimate is below 0"
        if self.high == inf:
            return (
                f"gradient noise scale: more than {self.low:.3g} rows ({sure}), the signal is not told from 0"
            )
        return f"gradient noise scale: {self.scale:.3g} rows ({self.low:.3g} to {self.high:.3g}, {sure})"


def estimate_noise_scale(
    noise: Float[Array, " steps"], signal: Float[Array, " steps"], /, *, confidence: float = 0.95
) -> NoiseScaleEstimate:
    """Estimate the gradient noise scale from what `gradient_noise` found in the last steps of a run.

    The simple noise scale of McCandlish, Kaplan and Amodei (arXiv:1812.06162): a ratio of means over steps,
    not a mean of ratios. Over the steps the gradient should change little; one or two hundred are usual.

    Parameters
    ----------
    noise, signal
        Of each step. Steps that are not finite are left out.
    confidence
        Of the interval, in (0, 1).

    Returns
    -------
    NoiseScaleEstimate
        Python numbers; `print` says them in a line.

    Raises
    ------
    ValueError
        If fewer than two steps are finite, or the noise is negative, as of sums of gradients.

    Examples
    --------
    >>> import numpy as np
    >>> from lai_core.diagnosis import estimate_noise_scale, gradient_noise
    >>> rng, found = np.random.default_rng(0), []
    >>> for step in range(50):
    ...     gradients = 1.0 + 3.0 * rng.normal(size=(16, 10))  # tr Sigma = 90, |G|^2 = 10
    ...     found.append(gradient_noise(np.linalg.norm(gradients, axis=1), np.linalg.norm(gradients.mean(0))))
    >>> noise, signal = np.array(found).T
    >>> print(estimate_noise_scale(noise, signal))
    gradient noise scale: 9.39 rows (8.16 to 11, 95% of 50 steps)
    """
    xp = check_array("noise", noise, "steps")
    check_array("signal", signal, str(noise.shape[0]))
    pairs = [(move_to_host(noise)[step], move_to_host(signal)[step]) for step in range(noise.shape[0])]
    pairs = [pair for pair in pairs if all(isfinite(float(one)) for one in pair)]
    if len(pairs) < 2:
        msg = f"noise: expected 2 steps or more that are finite, got {len(pairs)}"
        raise ValueError(msg)
    noise, signal = (xp.stack(column) for column in zip(*pairs, strict=True))
    low, high = fieller_interval(noise, signal, confidence=confidence)
    spread, length = float(xp.mean(noise)), float(xp.mean(signal))
    if spread < -0.1 * abs(length):  # by rounding it may be a little below 0
        msg = (
            f"noise: expected a mean that is not negative, got {spread:.3g}: the mean gradient was longer "
            "than the rows'; pass as mean_norm that of their mean, not of their sum, and without a loss scale"
        )
        raise ValueError(msg)
    scale = spread / length if length > 0.0 else inf
    return NoiseScaleEstimate(scale, float(low), float(high), spread, length, len(pairs), confidence)
