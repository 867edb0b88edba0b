"""What a caller may want to know of traces before scoring them."""

from lai_core._engine.checks import DEFAULT_MEMORY_BUDGET
from lai_core.estimators._arguments import POSITIONS, check_lai_trace, misfit
from lai_core.records.base import Trace, locate
from lai_core.records.compatible import check_trace


def fitting_positions(trace: Trace) -> tuple[str, ...]:
    """Return the meanings of `positions` that fit the layers of `trace`, the most exact first.

    Parameters
    ----------
    trace
        A trace with the output gradients of the last layer.

    Returns
    -------
    tuple of str
        Out of `tokens`, `mean`, `flatten`, in this order.
    """
    work = check_trace("trace", trace, "output", DEFAULT_MEMORY_BUDGET)
    check_lai_trace(trace, work, "mean", "trace")
    return tuple(choice for choice in POSITIONS if misfit(trace, work.xp, choice) is None)


def check_values(trace: Trace) -> None:
    """Raise if a trace holds what no model makes: an id outside its embedding table.

    Looks at values, so it is for eager use, outside compiled programs; there, and in every score, such a
    position counts for nothing.

    Parameters
    ----------
    trace
        Of any batch.

    Examples
    --------
    >>> import numpy as np
    >>> import lai_core as lai
    >>> table = lai.EmbeddingTrace(np.array([[0, 5]]), np.ones((1, 2, 3)), rows=5)
    >>> lai.check_values(lai.Trace([table]))
    Traceback (most recent call last):
    ValueError: trace.layers[0].ids: expected ids in [0, 5), got 0 to 5
    """
    work = check_trace("trace", trace, None, DEFAULT_MEMORY_BUDGET)
    for index, layer in enumerate(trace.layers):
        layer.check_values(locate("trace", index, layer), work.xp)
