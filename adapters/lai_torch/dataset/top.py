"""List the training samples that help and hurt each validation sample most."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Literal

from torch import Tensor, nn

import lai_core as lai
from lai_core._adapters import kernel_of
from lai_torch._model.batch import Loss
from lai_torch._model.preserve import evaluating
from lai_torch.dataset.reading import loaded, placed_pair, whole
from lai_torch.options import check_count
from lai_torch.options.keywords import answering
from lai_torch.trace import trace


@answering
def top_samples(
    model: nn.Module,
    loss: Loss,
    dataset: Any,
    validation: Any,
    *,
    top: int = 10,
    estimator: Literal["ghost", "lai", "lli"] = "ghost",
    relative: bool = False,
    batch_size: int = 64,
    ids: Sequence[Any] | None = None,
    validation_ids: Sequence[Any] | None = None,
    progress: bool = True,
) -> Any:
    """Find the training samples that help and hurt each validation sample most.

    Scores are the entries of the estimator's kernel: what a step on the training sample does to the
    validation sample's own loss, to first order. Memory holds both traces, of the validation set and of one
    batch, and their kernel.

    Parameters
    ----------
    model, loss, dataset, validation, batch_size
        As for `score_dataset`; the model is in eval mode meanwhile.
    estimator
        `ghost`, `lai` or `lli`: those that have a kernel.
    relative
        Whether each score is divided by the norm of the training sample's gradient (RelatIF), which else
        puts samples with large gradients first.
    top, ids, validation_ids, progress
        As for `lai_storage.top.top_samples`.

    Returns
    -------
    pyarrow.Table
        See `lai_storage.top.top_samples`.

    Examples
    --------
    >>> import torch
    >>> import lai_torch
    >>> model, loss = torch.nn.Linear(4, 3), torch.nn.CrossEntropyLoss(reduction="none")
    >>> data, validation = ((torch.randn(n, 4), torch.randint(3, (n,))) for n in (50, 2))
    >>> table = lai_torch.top_samples(model, loss, data, validation, top=3, progress=False)
    >>> table.column_names
    ['validation', 'effect', 'place', 'id', 'score']
    """
    from lai_storage.top import top_samples

    kernel, gradients = kernel_of(estimator)
    check_count("batch_size", batch_size, 1)
    samples, load = loaded("dataset", dataset, batch_size)
    traced = partial(trace, model, loss, gradients=gradients)

    def blocks() -> Iterator[Tensor]:
        with evaluating(model):
            held_out = traced(*placed_pair("validation", whole(validation), model))
            for batch in load(range(samples)):
                training = traced(*placed_pair("dataset, a batch", batch, model))
                scores = kernel(held_out, training)
                yield scores / lai.self_influence(training, estimator).sqrt() if relative else scores

    named: dict[str, Any] = {"ids": ids, "validation_ids": validation_ids}
    return top_samples(blocks(), top=top, **named, samples=samples, progress=progress)
