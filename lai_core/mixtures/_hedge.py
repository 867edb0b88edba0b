"""Hedge (multiplicative weights): its regret against the best source, and the step that bounds it."""

from math import log, sqrt

from jaxtyping import Float

from lai_core._engine.checks import check_count, check_number
from lai_core._engine.namespace import Array, xp_of
from lai_core._theory.arrays import checked


def hedge_step_size(count: int, horizon: float, /) -> float:
    r"""Compute the step size that minimises Hedge's bound over a horizon.

    Implements :eq:`hedge-step`: :math:`\eta = \sqrt{\ln K / H}` minimises :math:`\ln K / \eta + \eta H`,
    which is :math:`2 \sqrt{H \ln K}` there.

    :eq:`hedge-step`. Assume: :math:`K \ge 2`; :math:`H > 0`.

    Parameters
    ----------
    count
        K, the number of sources.
    horizon
        H, the number of updates over which one mixture may be taken as the best.

    Returns
    -------
    float
        The step size; 0 for one source.
    """
    check_number("horizon", horizon, above=0.0)
    return sqrt(log(check_count("count", count)) / horizon)


@checked
def hedge_regret_bound(
    gains: Float[Array, "T K"], weights: Float[Array, "T K"], /, *, step_size: float
) -> Float[Array, ""]:
    r"""Bound what the best fixed source gains more than multiplicative weights do.

    Implements :eq:`hedge-regret`: with :math:`w_{1k} = 1/K` and :math:`w_{t+1,k} \propto w_{tk} e^{\eta
    g_{tk}}`, the regret :math:`\max_k \sum_t g_{tk} - \sum_t \sum_k w_{tk} g_{tk}` is at most :math:`\ln K /
    \eta + \eta \sum_t \sum_k w_{tk} g_{tk}^2`: as :math:`e^x \le 1 + x + x^2` for :math:`x \le 1`, the sum of
    the unnormalised weights grows by no more than :math:`\exp(\eta \sum_k w_{tk} g_{tk} + \eta^2 \sum_k
    w_{tk} g_{tk}^2)` a step.

    :eq:`hedge-regret`. Assume: :math:`\eta > 0`; :math:`\eta g_{tk} \le 1`.

    Parameters
    ----------
    gains
        What each source gained at each update.
    weights
        The weights that were used at each update.
    step_size
        :math:`\eta`.

    Returns
    -------
    array
        The bound, in the gains' units.
    """
    check_number("step_size", step_size, above=0.0)
    xp = xp_of(gains)
    return log(gains.shape[1]) / step_size + step_size * xp.sum(weights * gains * gains)
