"""A validation set as its summed gradients: its size no longer matters to what scoring costs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import prod
from operator import add
from typing import Any

from lai_core._engine.checks import DEFAULT_MEMORY_BUDGET, check_choice, make_budget_error
from lai_core._engine.factored import count_entries, factorize, fold, join_factors
from lai_core._engine.factors import number_of_positions
from lai_core._engine.namespace import Array, itemsize, namespace_of, xp_of
from lai_core.estimators import _parameters as estimators
from lai_core.estimators._arguments import POSITIONS, check_lai_trace
from lai_core.estimators.catalogue import CATALOGUE, Facts, find_estimator
from lai_core.records.base import Pytree, Trace
from lai_core.records.compatible import Layouts, check_equal_layouts, check_trace, layouts

Totals = tuple[tuple[Array, ...], ...]
"""Per parameter, the blocks of its summed gradient."""

SUMMARIZED = tuple(each for each in CATALOGUE if each.summary and not each.fits_weights)


@dataclass(frozen=True, eq=False)
class ValidationSummary(Pytree):
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
    factored
        Whether the first parameter's total is not summed yet: `totals[0]` then holds, for m validation
        samples or positions, rows `(m, d_L)`, blocks of columns `(m, d_(l-1))` and, for the biases, ones
        `(m,)`, whose product over m is the total. By shapes alone: while that is less than the sum.
    """

    estimator: str
    positions: str | None
    totals: Totals
    samples: Any
    layouts: Layouts
    factored: bool = False

    def __repr__(self) -> str:
        """Name the estimator, how positions are read, and how much was summed up."""
        read = "" if self.positions is None else f", positions={self.positions!r}"
        numbers = sum(prod(block.shape) for parameter in self.totals for block in parameter)
        return f"ValidationSummary({self.estimator!r}{read}, samples={self.samples}, numbers={numbers})"

    def __add__(self, other: object) -> "ValidationSummary":
        """Return the summary of both validation sets together."""
        if not isinstance(other, ValidationSummary):
            return NotImplemented
        return join_summaries([self, other])

    def summed(self, *, memory_budget: int | None = None) -> "ValidationSummary":
        """Return the summary with every total summed up, also where its factors are the smaller.

        Parameters
        ----------
        memory_budget
            Bytes that the sum may take. None: as many as it needs.

        Returns
        -------
        ValidationSummary
            Whose totals do not grow with the validation set; itself where they do not already.
        """
        if not self.factored:
            return self
        factors, *rest = self.totals
        xp = namespace_of({"rows": factors[0]})
        needed = count_entries(factors) * itemsize(xp, factors[0].dtype)
        if memory_budget is not None and needed > memory_budget:
            raise _make_size_error(needed, memory_budget, self.estimator)
        return replace(self, totals=(fold(factors, xp), *rest), factored=False)

    def __radd__(self, other: object) -> "ValidationSummary":
        """Let `sum` begin with its 0."""
        return self if isinstance(other, int) and other == 0 else NotImplemented


def join_summaries(parts: Sequence[ValidationSummary], memory_budget: int | None = None) -> ValidationSummary:
    """Return the summary of all validation sets together, of factors while they are less than their sum."""
    first, *others = parts
    for other in others:
        for what in ("estimator", "positions"):
            expected, got = getattr(first, what), getattr(other, what)
            if expected != got:
                msg = f"summary: expected {what} {expected!r} as in the first summary, got {got!r}"
                raise ValueError(msg)
        check_equal_layouts("the first summary", first.layouts, "summary", other.layouts)
        namespace_of({"first summary": first.totals[0][0], "summary": other.totals[0][0]})
    xp = xp_of(first.totals[0][0])
    samples = sum((other.samples for other in others), start=first.samples)
    whole = (
        join_factors([part.totals[0] for part in parts], xp) if all(part.factored for part in parts) else None
    )
    if whole is None:
        totals = _add_totals([part.summed(memory_budget=memory_budget).totals for part in parts])
    else:
        totals = (whole, *_add_totals([part.totals[1:] for part in parts]))
    return replace(first, totals=totals, samples=samples, factored=whole is not None)


def _add_totals(totals: Sequence[Totals]) -> Totals:
    return tuple(
        tuple(reduce(add, same) for same in zip(*parameter, strict=True))
        for parameter in zip(*totals, strict=True)
    )


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
        summary = one if summary is None else join_summaries([summary, one], memory_budget)
    if summary is None:
        msg = "validation: expected at least one trace, got an empty iterable"
        raise ValueError(msg)
    return summary


def _summarize(trace: Trace, estimator: Facts, positions: str, memory_budget: int) -> ValidationSummary:
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
    gradients = estimators.collect_gradients(estimator, trace, work, positions)
    if not gradients:
        raise estimators.make_unseen_error("validation")
    (key, uses), *_ = gradients.items()
    # One matrix used once sums up to G_V = sum_z g_z a_z^T, of d_L d numbers, or is kept as the g_z and a_z,
    # of n_val (d_L + d), while these are fewer: <G_V, g_j a_j^T> = sum_z (g_z . g_j) (a_z . a_j).
    apart = estimator.parameters in {"readouts", "last"} and len(uses) == 1
    factors = factorize(uses[0], work) if apart else None
    rest = gradients if factors is None else {name: one for name, one in gradients.items() if name != key}
    held = 0 if factors is None else sum(prod(part.shape) for part in factors)
    held += sum(uses[0].total_entries() for uses in rest.values())
    needed = held * itemsize(work.xp, work.dtype)
    if needed > work.memory_budget:
        raise _make_size_error(needed, work.memory_budget, estimator.name)
    summed = estimators.sum_uses(rest, work).values()
    return ValidationSummary(
        estimator.name,
        positions if estimator.positions else None,
        tuple(summed) if factors is None else (factors, *summed),
        trace.layers[0].samples(),
        layouts(trace, estimator.gradients),
        factored=factors is not None,
    )


def _make_size_error(needed: int, memory_budget: int, estimator: str) -> ValueError:
    smaller = "" if find_estimator(estimator).parameters == "last" else ", or summarize 'lli'"
    way_out = f"raise it, or score the raw trace, whose temporaries are cut{smaller}"
    return make_budget_error("the summary", needed, memory_budget, way_out)
