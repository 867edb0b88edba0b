"""Scores of one batch at a time: a class that can be pickled, for engines that run it on their workers."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from lai_storage.identity import find_captured, fingerprint
from lai_storage.scoring import BatchScorer

import lai_core as lai
from lai_core.estimators.catalogue import find_estimator
from lai_core.estimators.policies import standard_errors
from lai_core.estimators.scores import SUMMED
from lai_jax._curation.estimators import score_parts
from lai_jax._curation.moments import Moment
from lai_jax._curation.options import EstimatorName, check_counts, find_scorer, open_side
from lai_jax._curation.problem import Problem
from lai_jax._program.losses import batch_size as count
from lai_jax._program.losses import check_targets, is_array, take
from lai_jax._recording.recorders import Valid
from lai_jax.summarize import summarize
from lai_jax.validation import Validation


class Scorer(BatchScorer):
    """Score batches against a validation set, in a loop or on an engine: Ray Data, datasets, Spark.

    A call with a batch returns the columns of `score_dataset`, in the batch's own type. One program is
    compiled: smaller batches are padded to `batch_size`. A scorer can be pickled as one of `lai_torch`; the
    pickle holds the parameters, unless `params` is a function.

    Parameters
    ----------
    apply, loss, last, valid
        As for `summarize`.
    params
        The parameters; or a function without arguments that returns them.
    validation
        A batch of validation samples, of the same form as the batches to score; what `summarize` returned for
        the same parameters, or the path of a file with it, from `save` or `lai_storage.save`.
    estimator, positions
        As for `score_dataset`; a summary keeps the positions that it was made with.
    batch_size, parts, collate, ids, groups
        As for `score_dataset`; a summary keeps the parts that it was made with.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import lai_jax
    >>> apply = lambda params, inputs: inputs @ params
    >>> loss = lambda outputs, targets: (outputs[:, 0] - targets) ** 2
    >>> validation = jnp.ones((32, 2)), jnp.ones(32)
    >>> scorer = lai_jax.Scorer(apply, jnp.ones((2, 1)), loss, validation, collate=("x", "y"), ids="uid")
    >>> list(scorer({"uid": ["a", "b"], "x": [[1.0, 0.0], [0.0, 1.0]], "y": [2.0, 0.0]}))
    ['id', 'score', 'standard_error', 'loss', 'gradient_norm']
    """

    save = BatchScorer.save  # which the reference shows
    _summaries = Validation, lai.ValidationSummary
    _asarray = staticmethod(jnp.asarray)

    def __init__(
        self,
        apply: Callable[..., Any],
        params: Any,
        loss: Callable[..., Any],
        validation: Any,
        *,
        estimator: EstimatorName = "lai",
        positions: str | None = None,
        parts: int | None = 16,
        batch_size: int = 64,
        collate: tuple[str, str] | Callable[[dict[str, Any]], Any] | None = None,
        ids: str | None = None,
        groups: str | None = None,
        last: str | None = None,
        valid: Valid | None = None,
    ) -> None:
        super().__init__(validation, batch_size, collate, ids, groups)
        find_scorer(estimator)
        if estimator == "preconditioned_lai":
            msg = (
                "estimator: expected one that scores a sample by itself, got 'preconditioned_lai', which "
                "depends on the training run's past; use 'lai', 'ghost' or 'exact'"
            )
            raise ValueError(msg)
        check_counts(batch_size=batch_size, parts=parts)
        self.apply, self.params, self.loss, self.last, self.valid = apply, params, loss, last, valid
        self.estimator, self.positions, self.parts = estimator, positions, parts

    @property
    def _made_of(self) -> dict[str, str]:
        leaves = {jax.tree_util.keystr(at): leaf for at, leaf in jax.tree.leaves_with_path(self._ready)}
        model: list[Any] = [self.apply, self.last, self.valid, leaves]
        made = {"model": model, "loss": [self.loss]}
        # frozen weights, as of the base of adapters, and statistics, which `apply` may hold
        for own in made.values():
            if captured := find_captured(own[0]):
                own.append(captured)
        return {name: fingerprint(tuple(own)) for name, own in made.items()}

    def _numbers(self, pair: Any) -> dict[str, Any]:
        """Return the numbers of a batch, cut into parts of one size, for one program."""
        params, side, score = self._ready, self._summed, self._programs[1]
        samples, found = count(pair[0]), []
        for start in range(0, samples, self.batch_size):
            # The last sample fills the last part up: other sizes would be compiled anew.
            index = np.minimum(np.arange(start, start + self.batch_size), samples - 1)
            found.append(score(params, side, take(pair, index)))
        return {
            name: np.concatenate([np.asarray(each[name], float) for each in found])[:samples]
            for name in found[0]
        }

    def _move_to(self, params: Any) -> "Scorer":
        """Return this scorer at other parameters of the same form, by the same compiled programs."""
        other = object.__new__(Scorer)
        vars(other).update(self._options() | {"params": params, "_programs": self._programs})
        return other

    @cached_property
    def _summed(self) -> Validation:
        held = self._validation()
        if isinstance(held, self._summaries):
            return open_side(self.estimator, held)
        return self._programs[0](self._ready, *held)

    @cached_property
    def _ready(self) -> Any:
        """The parameters as they are at the first batch: a later write to a numpy array changes no score."""
        made = callable(self.params) and jax.tree_util.all_leaves([self.params])
        params = self.params() if made else self.params
        return jax.tree.map(lambda leaf: jnp.array(leaf) if isinstance(leaf, np.ndarray) else leaf, params)

    def _count(self, pair: Any) -> int:
        check_targets(*pair)
        return count(pair[0])

    def _array(self, values: Any) -> Any:
        if not is_array(values) or not jnp.issubdtype(values.dtype, jnp.floating):
            return values
        # numpy collects Python floats as float64, to which a model in float32 would be promoted under x64.
        leaves = (leaf for leaf in jax.tree.leaves(self._ready) if is_array(leaf))
        types = (leaf.dtype for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating))
        return values.astype(next(types, values.dtype))

    @cached_property
    def _programs(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """The programs that sum a validation set up, and that score a batch."""
        apply, loss, last, valid = self.apply, self.loss, self.last, self.valid
        estimator, positions, parts = self.estimator, self.positions, self.parts
        scorer, in_parts = find_scorer(estimator), find_estimator(estimator).summary

        @jax.jit
        def sum_up(params: Any, inputs: Any, targets: Any) -> Validation:
            samples = count(inputs)
            # One sample is one part, and one part tells no standard error.
            cut = min(parts, samples) if parts and in_parts and samples > 1 else None
            of: Any = {"positions": positions, "last": last, "valid": valid}
            return summarize(apply, params, loss, inputs, targets, estimator=estimator, parts=cut, **of)

        @jax.jit
        def score(params: Any, side: Validation, batch: Any) -> dict[str, jax.Array]:
            problem = Problem(apply, params, loss, last, valid)
            recorded = scorer.record(problem, batch)
            scored = score_parts(scorer, side, recorded, Moment(None, 0.0, 0.0))
            nothing = jnp.full_like(scored.scores, jnp.nan)
            found = {"score": scored.scores, "standard_error": nothing, "loss": scored.losses}
            if scored.parts is not None:
                found["standard_error"] = standard_errors(scored.parts, sizes=scored.sizes)
            squared = nothing
            if estimator in SUMMED and side.sketch is None:
                read = getattr(side.side, "positions", None) or side.positions or "tokens"
                squared = lai.self_influence(recorded.trace, estimator, positions=read)
            return found | {"gradient_norm": jnp.sqrt(squared)}

        return sum_up, score
