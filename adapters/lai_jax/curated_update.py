"""A training step that scores its batch, selects and updates: one jitted program."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

import lai_core as lai
from lai_jax._curation.estimators import Scored, score_parts
from lai_jax._curation.meshes import Spread, automatic, explicit_sharding
from lai_jax._curation.moments import Moment
from lai_jax._curation.options import (
    EstimatorName,
    Policy,
    check_taken,
    check_update,
    open_scorer,
    open_side,
)
from lai_jax._curation.problem import Problem
from lai_jax._curation.update import step_once, weigh
from lai_jax._recording.recorders import Valid
from lai_jax.validation import Validation


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class Report:
    """What one step did; a pytree.

    Attributes
    ----------
    scores
        `(n,)`; positive helps: the first-order decrease of the summed validation loss per unit
        learning rate, on the parameters the estimator sees. NaN where the loss or the score is not finite.
    weights
        `(n,)`: the update minimised `sum_j weights_j loss_j`; 0 for a sample without a score.
    losses
        `(n,)`: each sample's loss before the step.
    loss
        `sum_j weights_j loss_j`.
    kept
        How many samples have a positive weight.
    skipped
        Whether there was no update: no sample kept, or a gradient that is not finite on those kept.
    second_moment
        For preconditioned LAI, what to pass to the next step; None otherwise.
    parts
        The scores against each part that the validation set was summarized in, `(m, n)`, for
        `lai_core.standard_errors`; None where it was not cut.
    sizes
        How many samples each part has; None where the validation set was not cut.
    """

    scores: jax.Array
    weights: jax.Array
    losses: jax.Array
    loss: jax.Array
    kept: jax.Array
    skipped: jax.Array
    second_moment: Any
    parts: jax.Array | None = None
    sizes: jax.Array | None = None

    @property
    def dropped(self) -> jax.Array:
        """How many samples were left out because their score or loss was not finite."""
        return (~jnp.isfinite(self.scores)).sum()

    def metrics(self) -> dict[str, float]:
        """Return what a logger takes of the step, outside of `jax.jit`: a flat dictionary of finite floats.

        Reading the values waits for the device.

        Returns
        -------
        dict
            `curation/kept`, the share of samples with a positive weight; `curation/loss`, the weighted loss;
            `curation/not_finite`, how many samples had no finite score; `curation/skipped`, 1 where the
            batch made no update; `curation/score_low`, `_median` and `_high`, 5%, 50% and 95% quantiles of
            the scores. A value that is not finite has no entry.
        """
        finite = jnp.isfinite(self.scores)
        low, median, high = jnp.nanquantile(
            jnp.where(finite, self.scores, jnp.nan), jnp.array([0.05, 0.5, 0.95])
        )
        found = {
            "kept": self.kept / len(self.weights),
            "loss": self.loss,
            "not_finite": self.dropped,
            "skipped": self.skipped,
            "score_low": low,
            "score_median": median,
            "score_high": high,
        }
        values = {f"curation/{name}": float(value) for name, value in found.items()}
        return {name: value for name, value in values.items() if math.isfinite(value)}

    def __repr__(self) -> str:
        """Say what became of the batch, in a line."""
        shape = getattr(self.scores, "shape", None)
        return f"Report(scores={shape}, kept={self.kept}, loss={self.loss}, skipped={self.skipped})"


def curated_update(
    apply: Callable[..., Any],
    loss: Callable[..., Any],
    tx: Any,
    *,
    estimator: EstimatorName = "lai",
    policy: Policy = lai.keep_positive,
    rows: int | float | None = None,
    decay: float = 0.999,
    exponent: float = 1.0,
    scale_inputs: bool = False,
    last: str | None = None,
    valid: Valid | None = None,
    sharding: NamedSharding | None = None,
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
        From `(n,)` scores to `(n,)` weights of the losses; `lai_core.keep_all` reports scores and drops
        nothing. A sample whose loss or score is not finite has the score NaN, and weight 0 whatever the
        policy says; without `rows`, a step that meets one runs
        the batch forward once more, without it. One whose loss and score are finite and whose gradient is
        not (a square root at 0, before the last layer) spoils the sum: such a step is skipped as a whole,
        parameters and `opt_state` stay, and the report says `skipped`. Where the validation set was
        summarized in `parts`, the policy is called with the scores against each part, `(parts, n)`, and
        their `sizes=`: `lai_core.drop_harmful`. One that names `losses` among its arguments sees those, too.
        A policy that makes one NaN the weight of all samples, as `jax.nn.softmax`, has to replace it first.
    rows
        Run the backward pass on at most this many rows: a number, or a share of the batch. The rows
        with the largest scores are taken, and the policy sees the others as NaN. The forward pass's
        residuals are cut down to them, so that a step costs `1 + 2 rows / n` forward passes and not 3.
        `jax.checkpoint(apply)` keeps none, and runs the chosen rows forward again.
        None: all rows, those of weight 0 included.
    decay
        Of the running second moment, for `preconditioned_lai`.
    exponent
        The power of the second moment that divides, for `preconditioned_lai`.
    scale_inputs
        For `preconditioned_lai`: divide layer inputs too, as Adam does. `second_moment` is then a pair, of
        the outputs' and a tuple of each layer's inputs'; None at first.
    last
        Name of the last layer's weight, as for `trace`.
    valid
        As for `summarize`, of the batch's inputs.
    sharding
        With `rows`, where a batch is spread over devices: its `jax.sharding.NamedSharding`, so that each
        device runs its part of the chosen rows; without it each runs all of them. On a mesh with explicit
        axes the batch says so itself.

    Returns
    -------
    callable
        `update(params, opt_state, summary, inputs, targets) -> (params, opt_state, report)`. `summary` is
        what `summarize(..., estimator=estimator)` made of the validation set, sketch and layer weights
        included: new ones of the same shapes run in the same program. What `lai_core.summarize` made of
        a `trace` will do where there are neither. `preconditioned_lai` takes a sixth argument,
        `second_moment`: `(d_L,)`, zeros at first; see `scale_inputs`.

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
    check_update(tx, rows, sharding)
    options = {"decay": decay, "exponent": exponent, "scale_inputs": scale_inputs, "last": last}
    scorer = open_scorer(estimator, policy, valid, **options)

    def step(
        params: Any, opt_state: Any, summary: Any, inputs: Any, targets: Any, second_moment: Any = None
    ) -> tuple[Any, Any, Report]:
        check_taken(estimator, second_moment=second_moment)
        given = params, opt_state, summary, inputs, targets, second_moment
        lies = explicit_sharding("curated_update", (inputs, targets))
        if lies is None:
            return run(Spread(sharding), *given)
        placed = jax.tree.map(lambda leaf: jax.typeof(leaf).sharding.spec, (params, opt_state))
        outputs = *placed, _specs(lies, second_moment, open_side(estimator, summary))
        return automatic(functools.partial(run, Spread(lies)), given, lies, outputs)

    def run(spread: Spread, *given: Any) -> tuple[Any, Any, Report]:
        params, opt_state, summary, inputs, targets, second_moment = given
        problem = Problem(apply, params, loss, last, valid, spread)
        recorded, back = scorer.forward(problem, (inputs, targets))
        moment = Moment(second_moment, decay, exponent, scale_inputs)
        scored = score_parts(scorer, open_side(estimator, summary), recorded, moment)
        weights, best = weigh(policy, rows, scored)
        gradients = back(weights, best)
        kept = jnp.sum(weights > 0)
        params, opt_state, skipped = step_once(tx, params, opt_state, gradients, kept)
        # A skipped step leaves no trace: the moment stays, or zeros where none was given.
        moved = scored.second_moment
        before = jax.tree.map(jnp.zeros_like, moved) if second_moment is None else second_moment
        moved = jax.tree.map(lambda old, new: jnp.where(skipped, old, new), before, moved)
        return params, opt_state, _report(replace(scored, second_moment=moved), weights, kept, skipped)

    return jax.jit(step)


def score(
    apply: Callable[..., Any],
    params: Any,
    loss: Callable[..., Any],
    summary: Any,
    inputs: Any,
    targets: Any,
    *,
    estimator: EstimatorName = "lai",
    policy: Policy = lai.keep_positive,
    second_moment: Any = None,
    decay: float = 0.999,
    exponent: float = 1.0,
    scale_inputs: bool = False,
    last: str | None = None,
    valid: Valid | None = None,
) -> tuple[jax.Array, Report]:
    """Score a batch without updating, for a training step of one's own: call it inside `jax.jit`.

    So models train that have more than parameters: `apply` is what is scored, for example with running
    statistics and without dropout, closed over the state; what is trained on these weights draws its
    dropout and moves its statistics as ever.

    Parameters
    ----------
    apply, loss, estimator, policy, decay, exponent, scale_inputs, last, valid
        As for `curated_update`.
    params
        Where to score.
    summary, inputs, targets, second_moment
        As for the step that `curated_update` returns.

    Returns
    -------
    tuple
        The weights `(n,)` with which to train, and the report.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> import lai_jax
    >>> apply = lambda params, inputs: inputs @ params
    >>> loss = lambda outputs, targets: ((outputs - targets) ** 2).sum(-1)
    >>> inputs, targets = jnp.eye(3), jnp.array([[1.0], [1.0], [-1.0]])
    >>> summary = lai_jax.summarize(apply, jnp.zeros((3, 1)), loss, jnp.ones((2, 3)), jnp.ones((2, 1)))
    >>> weights, report = lai_jax.score(apply, jnp.zeros((3, 1)), loss, summary, inputs, targets)
    >>> print(weights)
    [0.5 0.5 0. ]
    """
    options = {"decay": decay, "exponent": exponent, "scale_inputs": scale_inputs, "last": last}
    scorer = open_scorer(estimator, policy, valid, **options, second_moment=second_moment)
    lies = explicit_sharding("score", (inputs, targets))

    def run(spread: Spread, params: Any, summary: Any, inputs: Any, targets: Any, moment: Any) -> Report:
        problem = Problem(apply, params, loss, last, valid, spread)
        recorded = scorer.record(problem, (inputs, targets))
        moments = Moment(moment, decay, exponent, scale_inputs)
        scored = score_parts(scorer, open_side(estimator, summary), recorded, moments)
        weights, _ = weigh(policy, None, scored)
        kept = jnp.sum(weights > 0)
        return _report(scored, weights, kept, kept == 0)

    given = params, summary, inputs, targets, second_moment
    if lies is None:
        report = run(Spread(None), *given)
    else:
        outputs = _specs(lies, second_moment, open_side(estimator, summary))
        report = automatic(functools.partial(run, Spread(lies)), given, lies, outputs)
    return report.weights, report


def _specs(lies: NamedSharding, second_moment: Any, side: Validation) -> Any:
    """Return how a report lies on a mesh: what there is of each sample as the batch, all else everywhere."""
    rows, everywhere = lies.spec[:1], PartitionSpec()
    each = PartitionSpec(*rows)
    moment = None if second_moment is None else everywhere
    by_part, sizes = (None, None) if side.parts is None else (PartitionSpec(None, *rows), everywhere)
    return Report(each, each, each, everywhere, everywhere, everywhere, moment, by_part, sizes)  # type: ignore[arg-type]


def _report(scored: Scored, weights: jax.Array, kept: jax.Array, skipped: jax.Array) -> Report:
    # A dropped loss may be NaN, which a weight of zero does not clear.
    loss = jnp.sum(weights * jnp.where(weights != 0, scored.losses, 0.0))
    told = scored.second_moment, scored.parts, scored.sizes
    return Report(scored.scores, weights, scored.losses, loss, kept, skipped, *told)
