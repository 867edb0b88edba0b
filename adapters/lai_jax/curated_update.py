"""A training step that scores its batch, selects and updates: one jitted program."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

import lai_core as lai
from lai_core.estimators.gates import GateTrace
from lai_jax._curation.options import check_update
from lai_jax._curation.scores import opened, scored
from lai_jax._curation.update import Forward, best, count_of, recomputed, stepped
from lai_jax._exact.validation_gradient import scored_exactly
from lai_jax._program.losses import batch_size, take
from lai_jax._program.model import Model, read
from lai_jax._recording.assemble import Measured, measure, records_of
from lai_jax._recording.chain import links_of
from lai_jax._recording.gates import gated, measure_chain
from lai_jax._recording.plan import Plan, make_plan


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["scores", "weights", "losses", "loss", "kept", "skipped", "second_moment"],
    meta_fields=[],
)
@dataclass(frozen=True)
class Report:
    """What one step did; a pytree.

    Attributes
    ----------
    scores
        `(n,)`; positive helps: the first-order decrease of the summed validation loss per unit
        learning rate, on the parameters the estimator sees.
    weights
        `(n,)`: the update minimised `sum_j weights_j loss_j`.
    losses
        `(n,)`: each sample's loss before the step.
    loss
        `sum_j weights_j loss_j`.
    kept
        How many samples have a positive weight.
    skipped
        Whether there was no update: no sample kept, or a gradient that is not finite.
    second_moment
        For preconditioned LAI, what to pass to the next step; None otherwise.
    """

    scores: jax.Array
    weights: jax.Array
    losses: jax.Array
    loss: jax.Array
    kept: jax.Array
    skipped: jax.Array
    second_moment: jax.Array | None


def curated_update(
    apply: Callable[..., Any],
    loss: Callable[..., Any],
    tx: Any,
    *,
    estimator: str = "lai",
    policy: Callable[[jax.Array], jax.Array] = lai.keep_positive,
    rows: int | float | None = None,
    recompute: bool = False,
    decay: float = 0.999,
    exponent: float = 1.0,
    last: str | None = None,
) -> Callable[..., tuple[Any, Any, Report]]:
    """Return a jitted training step on the samples of each batch that help.

    Parameters
    ----------
    apply
        `apply(params, inputs)`: the model, a pure function.
    loss
        `loss(outputs, targets) -> (n,)`: one unnormalised number a sample.
    tx
        An optax gradient transformation.
    estimator
        `ghost`, `lai`, `lli`, `preconditioned_lai`, `gate_lai` or `calibrated_lai`; or `exact`, which
        needs no trace and runs forward once more to train, on any model in which samples do not meet.
    policy
        From `(n,)` scores to `(n,)` weights of the losses; NaN scores get weight 0.
    rows
        Run the backward pass on at most this many rows: a number, or a share of the batch. The rows
        with the largest scores are taken, and the policy sees the others as NaN. The forward pass's
        residuals are cut down to them, so that a step costs `1 + 2 rows / n` forward passes and not 3.
        None: all rows, those of weight 0 included.
    recompute
        With `rows`: run the chosen rows forward again, rather than keep the residuals of the whole
        batch: `1 + 3 rows / n` forward passes, in the memory that `rows` rows take.
    decay, exponent
        Of the second moment, for `preconditioned_lai`.
    last
        Name of the last layer's weight, as for `trace`.

    Returns
    -------
    callable
        `update(params, opt_state, summary, inputs, targets) -> (params, opt_state, report)`. `summary` is
        what `summarize(..., estimator=estimator)` made of the validation set, sketch and layer weights
        included: new ones of the same shapes run in the same program. What `lai_core.summarize` made of
        a `trace` will do where there are neither. `preconditioned_lai` takes a sixth argument,
        `second_moment`: `(d_L,)`, zeros at first.

    Raises
    ------
    ValueError
        If an option is unknown or outside its range; from the step, if the model cannot be traced or,
        with `rows`, its backward pass cannot be run on some rows alone.
    TypeError
        If `tx` is no gradient transformation.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> import optax
    >>> import lai_jax
    >>> apply = lambda params, inputs: inputs @ params
    >>> loss = lambda outputs, targets: ((outputs - targets) ** 2).sum(-1)
    >>> inputs, targets = jnp.eye(3), jnp.array([[1.0], [1.0], [-1.0]])
    >>> update = lai_jax.curated_update(apply, loss, optax.sgd(0.1))
    >>> params, state = jnp.zeros((3, 1)), optax.sgd(0.1).init(jnp.zeros((3, 1)))
    >>> summary = lai_jax.summarize(apply, params, loss, jnp.ones((2, 3)), jnp.ones((2, 1)))
    >>> params, state, report = update(params, state, summary, inputs, targets)
    >>> print(report.weights)
    [0.5 0.5 0. ]
    """
    check_update(tx, estimator, rows)

    def step(
        params: Any, opt_state: Any, summary: Any, inputs: Any, targets: Any, second_moment: Any = None
    ) -> tuple[Any, Any, Report]:
        batch, given = (inputs, targets), opened(estimator, summary)
        count = None if rows is None else count_of(rows, batch_size(inputs))
        if estimator == "exact":
            losses, scores = scored_exactly(apply, params, loss, batch, given.side)
            forward, moment = None, None
        else:
            model = read(apply, params, loss, inputs, targets)
            plan = make_plan(model, last)
            _check_last(estimator, plan)
            shared = not (recompute and count is not None)
            forward, measured, trace = _traced(model, plan, estimator, shared=shared)
            losses = measured.losses[: model.real]
            scores, moment = scored(estimator, given, trace, second_moment, decay, exponent)
        weights = policy(scores if count is None else best(scores, count))
        if forward is None:
            gradients = recomputed(apply, params, loss, batch, weights, count)
        elif count is None:
            gradients = forward.gradient(weights)
        else:
            fewer = take(batch, slice(count))
            gradients = forward.gradient_of_rows(weights, count, read(apply, params, loss, *fewer))
        params, opt_state, skipped = stepped(tx, params, opt_state, gradients, weights)
        used = jnp.where(weights > 0, losses, 0.0)
        return (
            params,
            opt_state,
            Report(scores, weights, losses, jnp.sum(weights * used), jnp.sum(weights > 0), skipped, moment),
        )

    return jax.jit(step)


def _check_last(estimator: str, plan: Plan) -> None:
    if estimator == "lli" and plan.uses[-1].built:
        name = plan.uses[-1].name
        msg = f"estimator: 'lli' needs a last layer whose weight is a parameter; {name!r} is computed"
        raise ValueError(msg)


def _traced(
    model: Model, plan: Plan, estimator: str, *, shared: bool
) -> tuple[Forward | None, Measured, lai.Trace | GateTrace]:
    """Return the forward pass that training shares, if it does, what was measured, and what to score."""
    everything = estimator == "ghost"
    if estimator == "gate_lai":
        links = links_of(model, plan)
        if not shared:
            measured, slots = measure_chain(model, plan)
            return None, measured, gated(model, plan, measured, links, slots)
        forward = Forward(model, plan, [slot for link in links for slot in link.slots])
        measured = forward.measured()
        return forward, measured, gated(model, plan, measured, links, forward.slots)
    forward_pass = Forward(model, plan) if shared else None
    if everything or forward_pass is None:
        measured = measure(model, plan, everything)
    else:
        measured = forward_pass.measured()
    return forward_pass, measured, lai.Trace(records_of(model, plan, measured, everything))
