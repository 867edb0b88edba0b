"""A validation set as its summed gradients: its size no longer matters to what scoring costs."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

from lai_core._engine.checks import DEFAULT_MEMORY_BUDGET, check_choice, over_budget
from lai_core._engine.gradients import Workspace
from lai_core._engine.namespace import Array, itemsize, namespace_of
from lai_core._engine.positions import number_of_positions
from lai_core.estimators import _parameters as estimators
from lai_core.estimators._arguments import check_lai_trace
from lai_core.estimators._positions import POSITIONS
from lai_core.estimators.catalogue import CATALOGUE, Estimator, find_estimator
from lai_core.records.base import Trace
from lai_core.records.compatible import Layouts, check_equal_layouts, check_trace, layouts

SUMMARIZED = tuple(each for each in CATALOGUE if each.summary and not each.fits_weights)


@dataclass(frozen=True, eq=False)
class ValidationSummary:
    r"""The summed validation gradient of every parameter an estimator sees.

    Implements :eq:`aggregation`: :math:`\sum_z (\sum_l \alpha^{(l)}_{zj}) \beta^{(L)}_{zj} =
    g_j^\top G_V c_j`. Made by `summarize`; `+` joins the summaries of parts of a validation set
    exactly, in any order, and `sum` a list of them.

    Parameters
    ----------
    estimator
        `ghost`, `lai` or `lli`: what the summary can score. `lai` serves preconditioned LAI too.
    positions
        What LAI's product means on layers with positions; None for the exact estimators.
    totals
        Per parameter, its summed gradient: for LAI one block :math:`G_V^l` of shape `(d_L, d_(l-1))`
        per layer, then `(d_L,)` for the readout biases.
    samples
        How many validation samples went in.
    layouts
        The layers' widths, flags and weight keys, which a training trace must share.
    """

    estimator: str
    positions: str | None
    totals: tuple[tuple[Array, ...], ...]
    samples: Any
    layouts: Layouts

    def __repr__(self) -> str:
        """Name the estimator, how positions are read, and how much was summed up."""
        read = "" if self.positions is None else f", positions={self.positions!r}"
        numbers = sum(prod(block.shape) for parameter in self.totals for block in parameter)
        return f"ValidationSummary({self.estimator!r}{read}, samples={self.samples}, numbers={numbers})"

    def __add__(self, other: object) -> "ValidationSummary":
        """Return the summary of both validation sets together.

        Returns
        -------
        ValidationSummary
            Whose totals are the sums of both.

        Raises
        ------
        ValueError
            If the summaries are of different estimators, positions or models.
        """
        if not isinstance(other, ValidationSummary):
            return NotImplemented
        for what in ("estimator", "positions"):
            expected, got = getattr(self, what), getattr(other, what)
            if expected != got:
                msg = f"summary: expected {what} {expected!r} as in the first summary, got {got!r}"
                raise ValueError(msg)
        check_equal_layouts("the first summary", self.layouts, "summary", other.layouts)
        namespace_of({"first summary": self.totals[0][0], "summary": other.totals[0][0]})
        totals = tuple(
            tuple(left + right for left, right in zip(*parameter, strict=True))
            for parameter in zip(self.totals, other.totals, strict=True)
        )
        samples = self.samples + other.samples
        return ValidationSummary(self.estimator, self.positions, totals, samples, self.layouts)

    def __radd__(self, other: object) -> "ValidationSummary":
        """Let `sum` begin with its 0."""
        return self if isinstance(other, int) and other == 0 else NotImplemented


def summarize(
    validation: Trace | Iterable[Trace],
    estimator: str,
    *,
    positions: str = "tokens",
    memory_budget: int = DEFAULT_MEMORY_BUDGET,
) -> ValidationSummary:
    r"""Sum the validation samples' gradients, so that scoring a batch no longer depends on their number.

    Implements :eq:`aggregation`. Per-sample products are summed, means are never multiplied, so the
    scores from a summary are those from the whole set.

    Parameters
    ----------
    validation
        A trace, or an iterable of traces of parts of the validation set, which is streamed: one
        part at a time is alive.
    estimator
        `ghost`, `lai`, `lli` or `preconditioned_lai` (whose summary is LAI's).
    positions
        What LAI's product means on layers with positions: `tokens`, `mean` or `flatten`.
    memory_budget
        Bytes that the summary may take.

    Returns
    -------
    ValidationSummary
        Of `sum_l d_L d_(l-1)` numbers for LAI, as many as the matrices have for Ghost and LLI.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a trace is unsound or two do not fit; if `positions` is `flatten` and the last layer has
        positions (that product has no sum of this form); if the summary would exceed the budget.

    Notes
    -----
    Building costs `n_val t d_L sum_l d_(l-1)` multiply-adds for LAI.

    Examples
    --------
    >>> import numpy as np
    >>> import lai_core as lai
    >>> parts = [lai.Trace([lai.LayerTrace(np.ones((n, 3)), np.ones((n, 2)))]) for n in (4, 6)]
    >>> lai.summarize(parts, "lai")
    ValidationSummary('lai', positions='tokens', samples=10, numbers=6)
    """
    asked = find_estimator(estimator, among=SUMMARIZED)
    check_choice("positions", positions, POSITIONS)
    kept = find_estimator(asked.summary)
    parts: Any = (validation,) if isinstance(validation, Trace) else validation
    if not isinstance(parts, Iterable):
        msg = f"validation: expected a Trace or an iterable of traces, got {type(validation).__name__}"
        raise TypeError(msg)
    summary: Any = None
    for part in parts:
        one = _summarize(part, kept, positions, memory_budget)
        summary = one if summary is None else summary + one
    if summary is None:
        msg = "validation: expected at least one trace, got an empty iterable"
        raise ValueError(msg)
    return summary


def _summarize(trace: Trace, estimator: Estimator, positions: str, memory_budget: int) -> ValidationSummary:
    work = check_trace("validation", trace, estimator.gradients, memory_budget)
    if estimator.positions:
        has_positions = number_of_positions(trace.layers[-1].output_gradients) > 1
        among = ("tokens", "mean") if has_positions else POSITIONS
        check_lai_trace(trace, work, positions, "validation", among)
        if positions == "flatten" and has_positions:
            msg = (
                "positions: 'flatten' has no summary when the last layer has positions; "
                "score the raw trace, or use 'tokens' or 'mean'"
            )
            raise ValueError(msg)
    gradients = estimators.seen_gradients(estimator, trace, work, positions)
    if not gradients:
        raise estimators.nothing_seen("validation")
    _check_size(gradients, work, estimator)
    return ValidationSummary(
        estimator.name,
        positions if estimator.positions else None,
        estimators.totals(gradients, work),
        trace.layers[0].samples(),
        layouts(trace, estimator.gradients),
    )


def _check_size(gradients: estimators.Gradients, work: Workspace, estimator: Estimator) -> None:
    entries: dict[Hashable, int] = {key: uses[0].total_entries() for key, uses in gradients.items()}
    needed = sum(entries.values()) * itemsize(work.xp, work.dtype)
    if needed > work.memory_budget:
        smaller = "" if estimator.parameters == "last" else ", or summarize 'lli'"
        way_out = f"raise it, or score the raw trace, whose temporaries are cut{smaller}"
        raise over_budget("the summary", needed, work.memory_budget, way_out)
