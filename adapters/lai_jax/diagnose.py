"""Which row of a batch makes its gradient: exact norms, by trace, or by one gradient a sample."""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from lai_core.diagnosis import Diagnosis as Diagnosis
from lai_core.diagnosis.measure import NOTHING, Gradients, Part, measure, measure_by_rows, measure_trace
from lai_core.diagnosis.report import check_ids, check_usual, conclude
from lai_jax._program.errors import place
from lai_jax._program.evaluate import apply_equation, interpret
from lai_jax._program.leaves import find_floating, leaf_names, real_leaves
from lai_jax._program.losses import batch_size, check_targets, losses_of_leaves, take
from lai_jax._program.model import Model, read
from lai_jax._recording.plan import Plan, make_plan
from lai_jax._recording.recorders import record_trace

_TOGETHER = "a gradient, in this batch alone"
"""Where a row is not finite that by itself is."""


def diagnose(
    apply: Callable[..., Any],
    params: Any,
    loss: Callable[..., Any],
    inputs: Any,
    targets: Any,
    *,
    ids: Sequence[Any] | None = None,
    usual_norm: float | None = None,
) -> Diagnosis:
    """Find which row of a batch makes its gradient, in which parameter, at which positions.

    Norms and shares are exact: of one trace with all gradients where the model
    has one, else of two gradients a sample, so that no batch is refused that can be trained on. Where samples
    are coupled, a row's gradient is that of its own loss, through what other rows put into it, too; these
    add up to the batch's gradient.

    Rows with a loss or gradient that is not finite are named with the first operation whose result is not
    finite, and the numbers are of the others. Does not run inside `jax.jit`: what it says depends on values.

    Parameters
    ----------
    apply, params, loss
        As for `trace`; `loss(outputs, targets) -> (n,)`, weighted as it is trained.
    inputs, targets
        The batch.
    ids
        What to call the rows.
    usual_norm
        The usual norm of a batch's summed gradient, where a run knows it. Rows are then named until what is
        left is usual, also where a few long rows are.

    Returns
    -------
    Diagnosis
        `print` says in three lines which row, where, and how long the gradient is without it; `rows()` is a
        table, `to_svg()` a picture, `to_json()` what a log keeps.

    Raises
    ------
    ValueError
        If the loss is not one number per sample, or no parameter is a floating-point one.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import lai_jax
    >>> apply = lambda params, inputs: inputs @ params["w"]
    >>> loss = lambda outputs, targets: (outputs - targets) ** 2
    >>> inputs, targets = jnp.ones((8, 2)), jnp.zeros(8).at[3].set(400.0)
    >>> found = lai_jax.diagnose(apply, {"w": jnp.ones(2)}, loss, inputs, targets)
    >>> found.named, found.verdict
    ((3,), 'rows')
    """
    return diagnose_spike((apply, params, loss), (inputs, targets), ids=ids, usual_norm=usual_norm)


def diagnose_spike(
    function: tuple[Any, Any, Any], batch: tuple[Any, Any], *, ids: Sequence[Any] | None = None, **known: Any
) -> Diagnosis:
    """Diagnose a batch of which a run knows norms, as `conclude` takes them."""
    apply, params, loss = function
    check_targets(*batch)
    samples = batch_size(batch[0])
    check_ids(ids, samples)
    names = leaf_names(params)
    trained = [names[place] for place in find_floating(real_leaves(params)[0])]
    if not trained:
        msg = "params: expected at least one floating-point array, got none"
        raise ValueError(msg)
    check_usual(known.get("usual_norm"))
    moving, losses_at = losses_of_leaves(apply, loss, params)
    losses, kept, part = None, list(range(samples)), NOTHING

    def find(row: int) -> str:
        return _find_nonfinite(losses_at, moving, take(batch, jnp.full(samples, row)), row)

    while kept:
        found = losses_at(moving, _fill(batch, kept, samples))
        losses = found if losses is None else losses.at[jnp.asarray(kept)].set(found[jnp.asarray(kept)])
        # a row that is not finite can hide what the others are, or spoil them
        bad = [row for row in kept if not math.isfinite(found[row])]
        if len(bad) == len(kept):
            bad = [row for row in kept if find(row) != _TOGETHER]
        if not bad:
            part = _measure(function, batch, kept, trained)
            break
        kept = [row for row in kept if row not in bad]
    return conclude(
        measure([part]),
        losses,
        rows=part.rows,
        ids=ids,
        nonfinite={row: find(row) for row in range(samples) if row not in part.rows},
        parameters=trained,
        **known,
    )


def _fill(batch: tuple[Any, Any], kept: Sequence[int], samples: int) -> tuple[Any, Any]:
    """Return a batch in which copies of a row that is kept stand for the others."""
    # as large as before: masks and the places of rows stay what they are
    if len(kept) == samples:
        return batch
    index = jnp.full(samples, kept[0]).at[jnp.asarray(kept)].set(jnp.asarray(kept))
    return take(batch, index)


def _measure(
    function: tuple[Any, Any, Any], batch: tuple[Any, Any], kept: list[int], trained: list[str]
) -> Part:
    """Return what is known of the rows with finite gradients."""
    apply, params, loss = function
    samples = batch_size(batch[0])
    try:
        model = read(apply, params, loss, *_fill(batch, kept, samples))
        plan = make_plan(model, None, everything=True)
        trace = record_trace(model, plan, everything=True)[1]
    except Exception:  # whatever the reader refuses, or trips over, autodiff differentiates
        return measure_by_rows(partial(_start, function, batch, trained), kept)
    keys = _name_keys(model, plan, trace.layers)
    return measure_trace(lambda: trace, [row in kept for row in range(samples)], keys.get)


def _name_keys(model: Model, plan: Plan, records: Sequence[Any]) -> Mapping[Hashable, str]:
    """Return the parameters of each key under which a trace's gradients are measured."""
    found: dict[Hashable, str] = {}
    # the order of records: those of uses, before the last one those of gradients that were built
    order: list[Any] = [*plan.records[:-1], *plan.materialised, *plan.records[-1:]]
    for index, (record, planned) in enumerate(zip(records, order, strict=False)):
        matrix = ("layer", index) if record.weight is None else ("weight", record.weight)
        if isinstance(planned, int):
            found[matrix, "weight"] = model.names[planned]
            continue
        found[matrix, "weight"] = _join_names(model, planned.use.operand.leaves)
        if planned.bias:
            found[matrix, "bias"] = _join_names(model, planned.bias.operand.leaves)
    return found


def _join_names(model: Model, leaves: Iterable[int]) -> str:
    return "+".join(model.names[leaf] for leaf in sorted(leaves))


def _start(
    function: tuple[Any, Any, Any], batch: tuple[Any, Any], trained: list[str], some: Sequence[int]
) -> Gradients:
    """Return what differentiates the losses of some rows, in one forward pass on these."""
    apply, params, loss = function
    moving, losses = losses_of_leaves(apply, loss, params)
    filled, index = _fill(batch, some, batch_size(batch[0])), jnp.asarray(list(some))

    def gradients(groups: Iterable[Sequence[int]]) -> Iterator[dict[str, jax.Array]]:
        values, vjp = jax.vjp(lambda own: losses(own, filled), moving)
        for group in groups:
            weights = jnp.zeros_like(values).at[index[jnp.asarray(list(group))]].set(1.0)
            yield dict(zip(trained, vjp(weights)[0], strict=True))

    return gradients


def _find_nonfinite(
    losses_at: Callable[..., jax.Array], moving: list[jax.Array], batch: Any, row: int
) -> str:
    """Return where a row, of which a batch has copies, first is not finite: given, a result, a gradient."""
    if not _check_finite(jax.tree.leaves(batch)):
        return "inputs or targets"
    if not _check_finite(moving):
        return "the parameters"
    found = _find_operation(lambda values: losses_at(values, batch), moving)
    if found is None:
        found = _find_operation(jax.grad(lambda values: losses_at(values, batch)[row]), moving)
        found = found and f"the gradient, at {found}"
    return found or _TOGETHER


class _NotFiniteError(Exception):
    """A result that is not finite, by the place of its operation."""


def _find_operation(function: Callable[[Any], Any], argument: Any) -> str | None:
    """Return the first operation of a program whose result is not finite; None if all are."""

    def apply(equation: Any, given: Sequence[Any]) -> list[Any]:
        if equation.primitive.name == "jit":
            return interpret(equation.params["jaxpr"], given, apply)
        results = apply_equation(equation, given)
        if not _check_finite(results):
            raise _NotFiniteError(place(equation))
        return results

    try:
        interpret(jax.make_jaxpr(function)(argument), jax.tree.leaves(argument), apply)
    except _NotFiniteError as found:
        return str(found)
    return None


def _check_finite(arrays: Iterable[Any]) -> bool:
    return all(
        bool(jnp.isfinite(one).all())
        for one in map(jnp.asarray, arrays)
        if jnp.issubdtype(one.dtype, jnp.inexact)
    )
