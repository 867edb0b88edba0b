"""Scores: the kernels' sums over validation samples, without the kernels."""

from typing import Any

from jaxtyping import Float

from lai_core._engine.checks import DEFAULT_MEMORY_BUDGET
from lai_core._engine.namespace import Array
from lai_core.estimators import _parameters as estimators
from lai_core.estimators._sides import exact_sides, lai_sides
from lai_core.estimators.catalogue import PAIRWISE, find_estimator
from lai_core.estimators.summaries import ValidationSummary
from lai_core.records.base import Trace
from lai_core.records.compatible import check_trace

SUMMED = tuple(each.name for each in PAIRWISE)


def ghost_scores(
    validation: Trace | ValidationSummary,
    training: Trace,
    *,
    exclude_self: bool = False,
    memory_budget: int = DEFAULT_MEMORY_BUDGET,
) -> Float[Array, " n_train"]:
    r"""Inner product of each sample's exact gradient with the summed validation gradient.

    Implements :eq:`gradient1`, summed over validation samples, without the printed minus.

    Parameters
    ----------
    validation
        A trace with the output gradients of every layer, or a `ghost` summary.
    training
        A trace with the output gradients of every layer.
    exclude_self
        Leave sample j out of its own score: both traces are of the same batch, in the same order,
        and the kernel's diagonal is subtracted. Of a row whose gradient is `k` times the others', the digits
        of its own score are lost from `k` near `1 / eps` on (1e7 in float32).
    memory_budget
        Bytes that temporaries may take.

    Returns
    -------
    array
        `(n_train,)`. Positive helps: one SGD step of unit learning rate on sample j lowers the summed
        validation loss by the score, to first order. At least float32.

    Notes
    -----
    Per matrix, in multiply-adds, the cheaper of pairs, `n_val n (d_in + d_out)`, and of the summed
    gradient, `(n_val + n) d_in d_out`; with t positions on each side, `n_val n t t' (d_in + d_out)`
    and `(n_val t + n t') d_in d_out`. Without positions the two cross where
    `1/n_val + 1/n = 1/d_in + 1/d_out`: the summed gradient is cheaper for larger batches. From a
    summary scoring costs `n t' d_in d_out`, whatever n_val was.
    """
    sides = exact_sides("ghost", validation, training, exclude_self, memory_budget)
    return sides.scores(exclude_self=exclude_self)


def lli_scores(
    validation: Trace | ValidationSummary,
    training: Trace,
    *,
    exclude_self: bool = False,
    memory_budget: int = DEFAULT_MEMORY_BUDGET,
) -> Float[Array, " n_train"]:
    r"""Inner product of each sample's last-layer gradient with the summed validation gradient.

    Implements :eq:`lli`, summed over validation samples; of which use of a weight, `lli_kernel` says.

    Parameters
    ----------
    validation, training
        Traces with the output gradients of the last layer; for validation an `lli` summary will do.
    exclude_self, memory_budget
        As in `ghost_scores`.

    Returns
    -------
    array
        `(n_train,)`. Positive helps: one SGD step of unit learning rate on sample j, moving the last
        layer alone, lowers the summed validation loss by the score, to first order.
    """
    sides = exact_sides("lli", validation, training, exclude_self, memory_budget)
    return sides.scores(exclude_self=exclude_self)


def lai_scores(
    validation: Trace | ValidationSummary,
    training: Trace,
    *,
    layer_weights: Any = None,
    positions: str | None = None,
    exclude_self: bool = False,
    memory_budget: int = DEFAULT_MEMORY_BUDGET,
) -> Float[Array, " n_train"]:
    r"""Layer-aware influence of each training sample on the whole validation set.

    Implements :eq:`gradient2`, summed over validation samples, without the printed minus.

    Parameters
    ----------
    validation, training
        Traces with the output gradients of the last layer; for validation an `lai` summary will do.
    layer_weights
        `(L,)`, factors of each layer's alpha, as in `lai_kernel`. None: all 1.
    positions
        `tokens`, `mean` or `flatten`. None: what the summary was made with, `tokens` for a trace.
    exclude_self, memory_budget
        As in `ghost_scores`.

    Returns
    -------
    array
        `(n_train,)`. Positive helps: one SGD step of unit learning rate on sample j, moving the
        virtual readouts alone, lowers the summed validation loss by the score, to first order.

    Notes
    -----
    With `D = sum_l d_(l-1)`, in multiply-adds, the cheaper of pairs, `n_val n (D + d_L)`, and of the
    summed readout gradient, `(n_val + n) d_L D`; with t positions on each side,
    `n_val n t t' (D + d_L)` and `(n_val t + n t') d_L D`. The two cross where
    `1/n_val + 1/n = 1/D + 1/d_L`. From a summary scoring costs `n t' d_L D`, whatever n_val was.

    Examples
    --------
    >>> import numpy as np
    >>> import lai_core as lai
    >>> trace = lai.Trace([lai.LayerTrace(np.ones((2, 3)), np.array([[1.0], [-1.0]]))])
    >>> lai.lai_scores(trace, trace, exclude_self=True)  # each opposes the other
    array([-3., -3.])
    """
    sides = lai_sides(validation, training, layer_weights, positions, exclude_self, memory_budget)
    return sides.scores(exclude_self=exclude_self)


def self_influence(
    trace: Trace,
    estimator: str,
    *,
    positions: str = "tokens",
    memory_budget: int = DEFAULT_MEMORY_BUDGET,
) -> Float[Array, " n"]:
    r"""Inner product of each sample's gradient with itself: the squared norm of what the estimator sees.

    The diagonal of the estimator's kernel of a batch with itself, without the kernel; :math:`\|g_j\|^2` for
    Ghost. By Cauchy and Schwarz no score of sample j is larger than its root times the norm of the summed
    validation gradient.

    Parameters
    ----------
    trace
        With the output gradients of every layer for `ghost`, of the last one for `lai` and `lli`.
    estimator
        `ghost`, `lai` or `lli`.
    positions, memory_budget
        As in `lai_kernel`.

    Returns
    -------
    array
        `(n,)`, 0 or more, in the losses' units squared over the parameters'.

    Examples
    --------
    >>> import numpy as np
    >>> import lai_core as lai
    >>> trace = lai.Trace([lai.LayerTrace(np.array([[1.0, 2.0]]), np.array([[3.0]]))])
    >>> lai.self_influence(trace, "ghost")
    array([45.])
    """
    asked = find_estimator(estimator, among=PAIRWISE)
    check_trace("trace", trace, asked.gradients, memory_budget)
    if asked.positions:
        sides = lai_sides(trace, trace, None, positions, False, memory_budget)
    else:
        sides = exact_sides(asked.name, trace, trace, False, memory_budget)
    found = estimators.diagonal(sides.validation, sides.training, sides.work)
    return sides.work.xp.where(found < 0, sides.work.xp.zeros_like(found), found)  # of reads that cancel
