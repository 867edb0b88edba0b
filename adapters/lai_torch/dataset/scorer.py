"""Scores of one batch at a time: a class that can be pickled, for engines that run it on their workers."""

from collections.abc import Callable
from os import PathLike
from typing import Any

import lai_storage
import torch
from torch import Tensor, nn

from lai_torch._curation.scorers.base import chunks
from lai_torch._curation.state import packed
from lai_torch._model.batch import Loss, tensors
from lai_torch.dataset.loaded import Loaded, Summary, cut, is_summary, options_of, placed
from lai_torch.options import Estimator, EstimatorName, check_count, with_defaults
from lai_torch.options.hosts import check_host
from lai_torch.options.keywords import answering


class Scorer:
    r"""Score batches against a validation set, in a loop or on an engine: Ray Data, datasets, Spark.

    A call with a batch returns the columns of `score_dataset`, in the batch's own type: `id`, if `ids` names
    a column; `score`, positive helps; `standard_error`; `loss`; `gradient_norm`; `group`, if `groups` names a
    column. The other rows of a batch change a row's numbers by rounding only.

    A scorer can be pickled. The pickle holds the summary of the validation set, not its samples, and the
    model, unless `model` is a function. The process that unpickles it calls the function, and reads the file
    of a summary, at its first batch.

    Parameters
    ----------
    model
        Scored in eval mode; afterwards as before. Or a function without arguments that returns it.
    loss
        `loss(outputs, targets) -> (n,)`: one unnormalised number per sample.
    validation
        A batch of validation samples, of the same form as the batches to score; the path of a file that
        `save` wrote for the same parameters; a `ValidationSummary` or the path of one, without parts for
        standard errors.
    estimator, parts
        As for `score_dataset`; a saved summary keeps the parts that it was saved with.
    batch_size
        How many samples are scored, and at most traced of the validation set, at once; larger batches are
        cut.
    collate
        From a batch's columns to inputs and targets. Two names: the columns of inputs and of targets. A
        function of the columns, without those of `ids` and `groups`, that returns `(inputs, targets)` or a
        mapping. None: the model gets all columns as keyword arguments, and the loss the mapping. Columns of
        numbers come as tensors, floating-point ones in the type of the model's parameters; columns of
        anything else, or of rows with different shapes, as lists.
    ids, groups
        The names of the columns that hold the samples' ids and groups.

    Examples
    --------
    >>> import torch
    >>> import lai_torch
    >>> model, loss = torch.nn.Linear(4, 3), torch.nn.CrossEntropyLoss(reduction="none")
    >>> validation = torch.randn(32, 4), torch.randint(3, (32,))
    >>> scorer = lai_torch.Scorer(model, loss, validation, collate=("x", "y"), ids="uid")
    >>> scored = scorer({"uid": ["a", "b"], "x": [[1.0, 0.0, 2.0, 0.0], [0.0, 1.0, 0.0, 1.0]], "y": [2, 0]})
    >>> list(scored)
    ['id', 'score', 'standard_error', 'loss', 'gradient_norm']
    """

    @answering
    def __init__(
        self,
        model: nn.Module | Callable[[], nn.Module],
        loss: Loss,
        validation: Any,
        *,
        estimator: EstimatorName | Estimator = "lai",
        parts: int | None = 16,
        batch_size: int = 64,
        collate: tuple[str, str] | Callable[[dict[str, Any]], Any] | None = None,
        ids: str | None = None,
        groups: str | None = None,
    ) -> None:
        from lai_storage.columns import check_collate  # needs numpy

        chosen = with_defaults(estimator)
        if chosen.name in {"midpoint", "preconditioned_lai"}:
            msg = (
                f"estimator: expected one that scores a sample by itself, got {chosen.name!r}, which depends "
                "on the training run's optimizer or past; use 'lai', 'ghost' or 'exact'"
            )
            raise ValueError(msg)
        check_host("score_dataset", **vars(chosen))
        check_count("batch_size", batch_size, 1)
        check_collate(collate)
        if not callable(model):
            msg = f"model: expected a torch.nn.Module, or a function that returns one, got {model!r}"
            raise TypeError(msg)
        self.model, self.loss, self.validation = model, loss, validation
        self.estimator = cut(chosen, parts)
        self.batch_size, self.collate, self.ids, self.groups = batch_size, collate, ids, groups
        self._loaded: Loaded | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the options, with the summary of a validation set in the place of its samples."""
        held = self.validation if is_summary(self.validation) else self._summary()
        return vars(self) | {"validation": held, "_loaded": None}

    def save(self, path: str | PathLike[str]) -> None:
        """Write the validation set's summary to a file, which other scorers take as `validation`.

        Parameters
        ----------
        path
            Of the file, in a folder that exists.
        """
        lai_storage.save(path, self._summary())

    def __call__(self, batch: Any) -> Any:
        """Score a batch.

        Parameters
        ----------
        batch
            A table or record batch of Arrow, a DataFrame, a mapping of columns (tensors, arrays, lists), or a
            pair `(inputs, targets)` of tensors.

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
        from lai_storage.columns import NUMBERS, scored

        loaded, size = self._load(), self.batch_size

        def score(columns: dict[str, Any] | None) -> dict[str, Any]:
            pair = loaded.pair("batch", batch, columns)
            found = [loaded.numbers(part, size) for part in chunks(pair, size)]
            numbers = (torch.cat(parts).cpu().numpy() for parts in zip(*found, strict=True))
            return dict(zip(NUMBERS, numbers, strict=True))

        return scored(batch, score, ids=self.ids, groups=self.groups)

    def _held(self) -> list[Tensor]:
        """Return the tensors of the validation set or of its summary."""
        loaded = self._load()
        return tensors(packed(loaded.side) if loaded.samples is None else loaded.samples)

    def _summary(self) -> Summary:
        """Return the validation set summed up, on the host."""
        loaded = self._load()
        side = placed(loaded.summed(self.batch_size), torch.device("cpu"))
        parts = getattr(loaded.estimator, "parts", None)
        return Summary(options_of(self.estimator), parts, side, loaded.scorer.state())

    def _load(self) -> Loaded:
        if self._loaded is None:
            unseen = self.ids, self.groups
            self._loaded = Loaded(
                self.model, self.loss, self.validation, self.estimator, self.collate, unseen
            )
        return self._loaded
