"""Scores of one batch at a time: a class that can be pickled, for engines that run it on their workers."""

from collections.abc import Callable
from os import PathLike
from typing import Any

import jax
import jax.numpy as jnp
import lai_storage
import numpy as np

import lai_core as lai
from lai_core._adapters import check_batch
from lai_core.estimators.catalogue import find_estimator
from lai_core.estimators.policies import standard_errors
from lai_core.estimators.scores import SUMMED
from lai_jax._curation.estimators import scored_in_parts, sound_scores
from lai_jax._curation.moments import Moment
from lai_jax._curation.options import EstimatorName, check_counts, estimator_of, opened
from lai_jax._curation.problem import Problem
from lai_jax._program.losses import batch_size as count
from lai_jax._program.losses import check_targets, is_array, take
from lai_jax._recording.masks import Valid
from lai_jax.summarize import summarize
from lai_jax.validation import Validation


class Scorer:
    """Score batches against a validation set, in a loop or on an engine: Ray Data, datasets, Spark.

    The counterpart of `lai_torch.Scorer`. A call with a batch returns the columns of `score_dataset`, in the
    batch's own type: `id`, if `ids` names a column; `score`, positive helps; `standard_error`; `loss`;
    `gradient_norm`; `group`, if `groups` names a column. One program is compiled: smaller batches are padded
    to `batch_size`.

    A scorer can be pickled. The pickle holds the summary of the validation set, not its samples, and the
    parameters, unless `params` is a function. The process that unpickles it calls the function, and reads the
    file of a summary, at its first batch.

    Parameters
    ----------
    apply, loss, last, valid
        As for `summarize`.
    params
        The parameters; or a function without arguments that returns them.
    validation
        A batch of validation samples, of the same form as the batches to score; what `summarize` returned for
        the same parameters, or the path of a file with it, from `save` or `lai_storage.save`.
    estimator, positions, parts
        As for `score_dataset`; a summary keeps the positions and parts that it was made with.
    batch_size
        How many samples are scored at once; larger batches are cut.
    collate
        From a batch's columns to inputs and targets. Two names: the columns of inputs and of targets. A
        function of the columns, without those of `ids` and `groups`, that returns `(inputs, targets)` or a
        mapping. None: the model gets all columns as keyword arguments, and the loss the mapping. Columns of
        numbers come as arrays, floating-point ones in the type of the parameters; columns of anything else,
        or of rows with different shapes, as lists.
    ids, groups
        The names of the columns that hold the samples' ids and groups.

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
        from lai_storage.columns import check_collate

        estimator_of(estimator)
        if estimator == "preconditioned_lai":
            msg = (
                "estimator: expected one that scores a sample by itself, got 'preconditioned_lai', which "
                "depends on the training run's past; use 'lai', 'ghost' or 'exact'"
            )
            raise ValueError(msg)
        check_counts(batch_size=batch_size, parts=parts)
        check_collate(collate)
        self.apply, self.params, self.loss, self.validation = apply, params, loss, validation
        self.estimator, self.positions, self.parts = estimator, positions, parts
        self.batch_size, self.collate, self.ids, self.groups = batch_size, collate, ids, groups
        self.last, self.valid = last, valid
        self._loaded: Any = None
        self._side: Validation | None = None
        self._compiled: Any = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the options, with the summary of a validation set in the place of its samples."""
        held = self.validation if is_summary(self.validation) else self._summed()
        return vars(self) | {"validation": held, "_loaded": None, "_side": None, "_compiled": None}

    def save(self, path: str | PathLike[str]) -> None:
        """Write the validation set's summary to a file, which other scorers take as `validation`.

        Parameters
        ----------
        path
            Of the file, in a folder that exists.
        """
        lai_storage.save(path, self._summed())

    def __call__(self, batch: Any) -> Any:
        """Score a batch.

        Parameters
        ----------
        batch
            A table or record batch of Arrow, a DataFrame, a mapping of columns (arrays, lists), or a pair
            `(inputs, targets)` of pytrees of arrays.

        Returns
        -------
        pyarrow.Table, pandas.DataFrame or dict
            The columns, in the form of the batch; of a mapping or a pair a dictionary.

        Raises
        ------
        ValueError
            If a column is missing, `collate` changes the number of rows, or the summary is for another
            estimator.
        """
        from lai_storage.columns import scored

        def score(columns: dict[str, Any] | None) -> dict[str, Any]:
            return self._numbers(self._pair("batch", batch, columns))

        return scored(batch, score, ids=self.ids, groups=self.groups)

    def _numbers(self, pair: tuple[Any, Any]) -> dict[str, Any]:
        """Return the numbers of a batch, cut into parts of one size, for one program."""
        params, side, score = self._loaded_params(), self._summed(), self._programs()[1]
        samples, found = count(pair[0]), []
        for start in range(0, samples, self.batch_size):
            index = np.minimum(np.arange(start, start + self.batch_size), samples - 1)
            found.append(score(params, side, take(pair, index)))
        return {
            name: np.concatenate([np.asarray(each[name], float) for each in found])[:samples]
            for name in found[0]
        }

    def _at(self, params: Any) -> "Scorer":
        """Return this scorer at other parameters of the same form, by the same compiled programs."""
        self._programs()
        other = object.__new__(Scorer)
        vars(other).update(vars(self) | {"params": params, "_loaded": None, "_side": None})
        return other

    def _validation(self) -> Any:
        """Return the validation set, or its summary."""
        held = self.validation
        if isinstance(held, str | PathLike):
            held = lai_storage.load(held, asarray=jnp.asarray)
            if not isinstance(held, Validation | lai.ValidationSummary):
                msg = (
                    f"validation: expected {self.validation} to hold what Scorer.save wrote, or a "
                    f"ValidationSummary, got {type(held).__name__}"
                )
                raise TypeError(msg)
        if isinstance(held, Validation | lai.ValidationSummary):
            return opened(self.estimator, held)
        from lai_storage.columns import columns_of

        return self._pair("validation", held, columns_of(held, without=(self.ids, self.groups)))

    def _summed(self) -> Validation:
        """Return the validation side, which is made when it is first asked for."""
        if self._side is None:
            held = self._validation()
            summed = self._programs()[0]
            self._side = held if isinstance(held, Validation) else summed(self._loaded_params(), *held)
        return self._side

    def _loaded_params(self) -> Any:
        """Return the parameters; a function that makes them is called once."""
        if not (callable(self.params) and jax.tree_util.all_leaves([self.params])):
            return self.params
        if self._loaded is None:
            self._loaded = self.params()
        return self._loaded

    def _pair(self, role: str, batch: Any, columns: dict[str, Any] | None) -> tuple[Any, Any]:
        """Return inputs and targets of a batch."""
        if columns is not None:
            from lai_storage.columns import paired

            batch = paired(columns, self.collate, self._array)
        check_batch(role, batch)
        check_targets(*batch)
        return batch

    def _array(self, values: Any) -> Any:
        """Return a column as an array; numbers with a fraction in the parameters' type."""
        if not isinstance(values, np.ndarray) or values.dtype.kind != "f":
            return values
        leaves = (leaf for leaf in jax.tree.leaves(self._loaded_params()) if is_array(leaf))
        types = (leaf.dtype for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating))
        return values.astype(next(types, values.dtype))

    def _programs(self) -> Any:
        """Return the programs that sum a validation set up, and that score a batch."""
        if self._compiled is None:
            self._compiled = _programs(self)
        return self._compiled


def is_summary(validation: Any) -> bool:
    """Whether a validation side is summed up already, for the parameters that there were."""
    return isinstance(validation, str | PathLike | Validation | lai.ValidationSummary)


def _programs(given: Scorer) -> tuple[Callable[..., Any], Callable[..., Any]]:
    apply, loss, last, valid = given.apply, given.loss, given.last, given.valid
    estimator, positions, parts = given.estimator, given.positions, given.parts
    chosen, in_parts = estimator_of(estimator), find_estimator(estimator).summary

    @jax.jit
    def summed(params: Any, inputs: Any, targets: Any) -> Validation:
        samples = count(inputs)
        cut = min(parts, samples) if parts and in_parts and samples > 1 else None
        shared: dict[str, Any] = {
            "estimator": estimator,
            "positions": positions,
            "last": last,
            "valid": valid,
        }
        return summarize(apply, params, loss, inputs, targets, parts=cut, **shared)

    @jax.jit
    def score(params: Any, side: Validation, batch: Any) -> dict[str, jax.Array]:
        problem = Problem(apply, params, loss, last, valid)
        recorded = chosen.choose_pass(problem, None, recompute=False).forward(batch)
        scored = scored_in_parts(chosen, side, recorded, Moment(None, 0.0, 0.0))
        nothing = jnp.full_like(scored.scores, jnp.nan)
        found = {"score": sound_scores(scored), "standard_error": nothing, "loss": scored.losses}
        if scored.parts is not None:
            found["standard_error"] = standard_errors(scored.parts, sizes=scored.sizes)
        squared = nothing
        if estimator in SUMMED and side.sketch is None:
            read = getattr(side.side, "positions", None) or side.positions or "tokens"
            squared = lai.self_influence(recorded.trace, estimator, positions=read)
        return found | {"gradient_norm": jnp.sqrt(squared)}

    return summed, score
