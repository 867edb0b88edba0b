"""Scores of one batch at a time: a class that can be pickled, for engines that run it on their workers."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from lai_storage.identity import fingerprint
from lai_storage.scoring import BatchScorer
from torch import Tensor, nn

import lai_core as lai
from lai_core._adapters import check_count
from lai_torch._curation.checks import check_kinds
from lai_torch._curation.readings import chunks
from lai_torch._curation.validation import move_to_model
from lai_torch._model.batch import Loss, count
from lai_torch.dataset.identity import content_of
from lai_torch.dataset.loaded import Loaded, Summary, cut, move_side, options_of
from lai_torch.options import Estimator, EstimatorName, with_defaults


class Scorer(BatchScorer):
    r"""Score batches against a validation set, in a loop or on an engine: Ray Data, datasets, Spark.

    A call with a batch returns the columns of `score_dataset`, in the batch's own type: `id`, if `ids` names
    a column; `score`, positive helps; `standard_error`; `loss`; `gradient_norm`; `group`, if `groups` names a
    column. The other rows of a batch change a row's numbers by rounding only.

    Parameters and buffers that were trained since the last batch have the validation set summed up anew; make
    another scorer after writes to `.data`, which autograd does not count, or after a change of the model's or
    the loss's code, attributes or hooks.

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
    estimator
        As for `score_dataset`.
    batch_size, parts, collate, ids, groups
        As for `score_dataset`; a saved summary keeps the parts that it was saved with.

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

    save = BatchScorer.save  # which the reference shows
    _summaries = Summary, lai.ValidationSummary
    _asarray = staticmethod(torch.asarray)

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
        super().__init__(validation, batch_size, collate, ids, groups)
        chosen = with_defaults(estimator)
        # a table is of single samples, whatever the batch
        if chosen.name in {"midpoint", "preconditioned_lai"}:
            msg = (
                f"estimator: expected one that scores a sample by itself, got {chosen.name!r}, which depends "
                "on the training run's optimizer or past; use 'lai', 'ghost' or 'exact'"
            )
            raise ValueError(msg)
        for name, way_out in (("chunk", "batch_size="), ("parts", "parts=")):
            if getattr(chosen, name, None) is not None:
                msg = f"{name}: expected no {name} of the estimator, got {chosen!r}; pass {way_out} beside it"
                raise ValueError(msg)
        check_count("batch_size", batch_size, 1)
        if not callable(model):
            msg = f"model: expected a torch.nn.Module, or a function that returns one, got {model!r}"
            raise TypeError(msg)
        self.model, self.loss, self.estimator = model, loss, cut(chosen, parts)

    @property
    def _made_of(self) -> dict[str, str]:
        loss: Any = self.loss
        if isinstance(loss, nn.Module):
            loss = content_of(loss), loss.training  # a loss runs in its own mode
        model = content_of(self._model), getattr(self.estimator, "valid", None)
        return {"model": fingerprint(model), "loss": fingerprint(loss)}

    def _numbers(self, pair: Any) -> dict[str, Any]:
        from lai_storage.columns import NUMBERS  # needs numpy

        loaded, size = self._ready, self.batch_size
        found = [loaded.numbers(part, size) for part in chunks(move_to_model(pair, loaded.model), size)]
        numbers = (torch.cat(parts).cpu().numpy() for parts in zip(*found, strict=True))
        return dict(zip(NUMBERS, numbers, strict=True))

    @property
    def _summed(self) -> Summary:
        """The validation set summed up, on the host."""
        loaded = self._ready
        side = move_side(loaded.sum_batches(self.batch_size), torch.device("cpu"))
        parts = getattr(loaded.estimator, "parts", None)
        return Summary(options_of(self.estimator), parts, side, loaded.known)

    @cached_property
    def _model(self) -> nn.Module:
        model = self.model if isinstance(self.model, nn.Module) else self.model()
        check_kinds(model, self.loss)
        if any(hasattr(each, "device_mesh") for each in model.parameters()):
            msg = (
                "model: expected whole parameters, got sharded ones (fully_shard); pass a model that is not, "
                "with a checkpoint of this one"
            )
            raise ValueError(msg)
        return model

    @cached_property
    def _ready(self) -> Loaded:
        held = self._validation()
        if isinstance(held, tuple):
            held = move_to_model(held, self._model)
        return Loaded(self._model, self.loss, held, self.estimator)

    def _count(self, pair: Any) -> int:
        return count(*pair)

    def _array(self, values: Any) -> Tensor:
        tensor = values
        if not isinstance(values, Tensor):
            tensor = torch.tensor(values, device="cpu")
        types = (each.dtype for each in self._model.parameters() if each.is_floating_point())
        return tensor.to(next(types, tensor.dtype)) if tensor.is_floating_point() else tensor
