"""A training step that scores its batch, selects and updates: one jitted program."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

import lai_core as lai
from lai_jax import _selective
from lai_jax._assemble import Measured, measure, records_of
from lai_jax._model import Model, is_batched, losses_of, read
from lai_jax._plan import Plan, make_plan

ESTIMATORS = ("ghost", "lai", "lli", "preconditioned_lai")


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
        `ghost`, `lai`, `lli` or `preconditioned_lai`.
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
        what `lai_core.summarize(trace(...), estimator)` made of the validation set.
        `preconditioned_lai` takes a sixth argument, `second_moment`: `(d_L,)`, zeros at first.

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
    >>> import lai_core as lai, lai_jax
    >>> apply = lambda params, inputs: inputs @ params
    >>> loss = lambda outputs, targets: ((outputs - targets) ** 2).sum(-1)
    >>> inputs, targets = jnp.eye(3), jnp.array([[1.0], [1.0], [-1.0]])
    >>> update = lai_jax.curated_update(apply, loss, optax.sgd(0.1))
    >>> params, state = jnp.zeros((3, 1)), optax.sgd(0.1).init(jnp.zeros((3, 1)))
    >>> validation = lai_jax.trace(apply, params, loss, jnp.ones((2, 3)), jnp.ones((2, 1)))
    >>> params, state, report = update(params, state, lai.summarize(validation, "lai"), inputs, targets)
    >>> print(report.weights)
    [0.5 0.5 0. ]
    """
    _check(tx, estimator, rows)

    def step(
        params: Any, opt_state: Any, summary: Any, inputs: Any, targets: Any, second_moment: Any = None
    ) -> tuple[Any, Any, Report]:
        model = read(apply, params, loss, inputs, targets)
        plan = make_plan(model, last)
        if estimator == "lli" and plan.uses[-1].built:
            name = plan.uses[-1].name
            msg = f"estimator: 'lli' needs a last layer whose weight is a parameter; {name!r} is computed"
            raise ValueError(msg)
        count = None if rows is None else _count(rows, model)
        everything = estimator == "ghost"
        forward = None if recompute and count is not None else _Forward(model, plan)
        measured = measure(model, plan, everything) if everything or forward is None else forward.measured()
        trace = lai.Trace(records_of(model, plan, measured, everything))
        scores, moment = _scores(estimator, summary, trace, second_moment, decay, exponent)
        weights = policy(scores if count is None else _best(scores, count))
        if forward is None:
            gradients = _recomputed(apply, params, loss, (inputs, targets), model, weights, count)
        elif count is None:
            gradients = forward.gradient(weights)
        else:
            fewer = jax.tree.map(lambda leaf: leaf[:count] if is_batched(leaf) else leaf, (inputs, targets))
            gradients = forward.gradient_of_rows(weights, count, read(apply, params, loss, *fewer))
        losses = measured.losses[: model.real]
        params, opt_state, skipped = _stepped(tx, params, opt_state, model, gradients, weights)
        used = jnp.where(weights > 0, losses, 0.0)
        return (
            params,
            opt_state,
            Report(scores, weights, losses, jnp.sum(weights * used), jnp.sum(weights > 0), skipped, moment),
        )

    return jax.jit(step)


def _check(tx: Any, estimator: str, rows: Any) -> None:
    if estimator not in ESTIMATORS:
        msg = f"estimator: expected one of {', '.join(map(repr, ESTIMATORS))}, got {estimator!r}"
        raise ValueError(msg)
    if not (hasattr(tx, "init") and hasattr(tx, "update")):
        msg = f"tx: expected an optax gradient transformation, got {type(tx).__name__}"
        raise TypeError(msg)
    if rows is not None and not (0 < rows <= 1 if isinstance(rows, float) else rows >= 1):
        msg = f"rows: expected a number of rows, at least 1, or a share of the batch in (0, 1], got {rows!r}"
        raise ValueError(msg)


def _count(rows: int | float, model: Model) -> int:
    count = math.ceil(round(rows * model.real, 9)) if isinstance(rows, float) else rows
    if count > model.real:
        msg = f"rows: expected at most the {model.real} rows of the batch, got {rows}"
        raise ValueError(msg)
    return max(count, 1)


class _Forward:
    """The one forward pass of a step: losses, recorded inputs, and the way back."""

    def __init__(self, model: Model, plan: Plan) -> None:
        self.model, self.plan = model, plan
        self.moving = [jnp.asarray(model.parameters[leaf]) for leaf in model.trainable]
        self.data = model.arguments[len(model.names) :]
        self.site = plan.uses[-1].site
        self.tail = _selective.tail_of(model.program, self.site)
        wanted = frozenset(site for site in model.program.sites() if site.is_layer)
        self.order = [site for site in model.program.sites() if site in wanted]
        keep = () if self.tail is None else self.tail[2]
        self.losses, self.pull, (self.records, self.kept) = jax.vjp(
            lambda values: _selective.losses_of_leaves(model, values, self.data, wanted, keep),
            self.moving,
            has_aux=True,
        )

    def measured(self) -> Measured:
        """Return what a trace of the last layer's gradients needs."""
        if self.tail is None:  # the last layer is inside a loop or branch: differentiate from there
            return measure(self.model, self.plan, everything=False)
        _, operations, slots = self.tail
        gradients = _selective.output_gradients(self.model.program, operations, slots, self.kept)
        return Measured(self.losses, dict(zip(self.order, self.records, strict=True)), {self.site: gradients})

    def gradient(self, weights: jax.Array) -> list[jax.Array]:
        """Return the gradient of the weighted losses, by a backward pass for all rows."""
        padding = self.model.samples - self.model.real
        padded = jnp.concatenate([weights, jnp.zeros(padding, weights.dtype)]) if padding else weights
        return list(self.pull(padded.astype(self.losses.dtype))[0])

    def gradient_of_rows(self, weights: jax.Array, count: int, small: Model) -> list[jax.Array]:
        """Return the gradient of the weighted losses, by a backward pass for `count` rows."""
        if self.model.samples != self.model.real:
            return self.gradient(weights)
        chosen, own = _heaviest(weights, count, small.samples)
        return _selective.chosen_gradient(
            self.model, small, self.pull, self.moving, chosen, own.astype(self.losses.dtype)
        )


def _heaviest(weights: jax.Array, count: int, size: int) -> tuple[jax.Array, jax.Array]:
    """Return the rows of the `count` largest weights, and these; `size` of both, the rest of weight 0."""
    order = jnp.argsort(-weights)
    counted = jnp.arange(size) < count
    chosen = jnp.where(counted, order[:size], order[0])
    own = jnp.where(counted, weights[chosen], 0.0)
    return jnp.where(own > 0, chosen, chosen[0]), own  # rows of weight 0 may hold what is not finite


def _recomputed(
    apply: Any, params: Any, loss: Any, batch: Any, model: Model, weights: jax.Array, count: int | None
) -> list[jax.Array]:
    """Return the gradient of the weighted losses of the heaviest rows, run forward once more."""
    rows = model.real if count is None else count
    chosen, own = _heaviest(weights, rows, rows)
    inputs, targets = jax.tree.map(lambda leaf: leaf[chosen] if is_batched(leaf) else leaf, batch)
    leaves, tree = jax.tree.flatten(params)

    def weighted(moving: list[jax.Array]) -> jax.Array:
        given = list(leaves)
        for leaf, value in zip(model.trainable, moving, strict=True):
            given[leaf] = value
        values = losses_of(apply, loss)(jax.tree.unflatten(tree, given), inputs, targets)
        return jnp.sum(own.astype(values.dtype) * values)

    return jax.grad(weighted)([jnp.asarray(leaves[leaf]) for leaf in model.trainable])


def _scores(
    estimator: str, summary: Any, trace: lai.Trace, second_moment: Any, decay: float, exponent: float
) -> tuple[jax.Array, jax.Array | None]:
    if estimator == "preconditioned_lai":
        if second_moment is None:
            msg = "second_moment: expected an array (d_L,) for 'preconditioned_lai', zeros at first, got None"
            raise ValueError(msg)
        moment = lai.update_second_moment(second_moment, trace.layers[-1].output_gradients, decay=decay)
        return lai.preconditioned_lai_scores(summary, trace, moment, exponent=exponent), moment
    score = {"ghost": lai.ghost_scores, "lai": lai.lai_scores, "lli": lai.lli_scores}[estimator]
    return score(summary, trace), None


def _best(scores: jax.Array, count: int) -> jax.Array:
    """Keep the `count` largest scores, and NaN for the others, which no policy keeps."""
    finite = jnp.where(jnp.isnan(scores), -jnp.inf, scores)
    place = jnp.argsort(jnp.argsort(-finite))
    return jnp.where(place < count, scores, jnp.nan)


def _stepped(
    tx: Any, params: Any, opt_state: Any, model: Model, gradients: list[jax.Array], weights: jax.Array
) -> tuple[Any, Any, jax.Array]:
    """Update, unless nothing was kept or the gradient is not finite."""
    leaves, tree = jax.tree.flatten(params)
    given = [jnp.zeros_like(leaf) for leaf in leaves]
    for leaf, gradient in zip(model.trainable, gradients, strict=True):
        given[leaf] = gradient
    updates, new_state = tx.update(jax.tree.unflatten(tree, given), opt_state, params)
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(gradient)) for gradient in gradients]))
    skipped = ~(finite & jnp.any(weights > 0))
    moved = list(leaves)
    for leaf in model.trainable:
        new = leaves[leaf] + jax.tree.leaves(updates)[leaf].astype(leaves[leaf].dtype)
        moved[leaf] = jnp.where(skipped, leaves[leaf], new)
    state = jax.tree.map(lambda old, new: jnp.where(skipped, old, new), opt_state, new_state)
    return jax.tree.unflatten(tree, moved), state, skipped
