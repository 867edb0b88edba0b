"""Whether some samples' rows of a batch are a batch by themselves."""

from typing import Any

import torch
from torch import Tensor, nn

from lai_torch._model.batch import Loss, call, check_losses, count, rows, unaligned
from lai_torch._model.preserve import evaluating, preserved

Batch = tuple[Any, Any]


class Cuts:
    """Tells batches that can be cut from those that cannot.

    Where every tensor holds one row a sample, rows are a batch. One with another first axis may be the same
    for all samples, or hold what belongs to them in another way, as nodes of graphs and flat lists with
    offsets do: then every second sample is run by itself, and has its loss of before or not.

    Parameters
    ----------
    model, loss
        What runs.
    """

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        self.model, self.loss = model, loss
        self._known: dict[Any, bool] = {}

    def __call__(self, batch: Batch) -> bool:
        """Say whether some samples of a batch can be run without the others."""
        samples = count(*batch)
        others = unaligned(batch, samples)
        if samples < 2 or not others:
            return True
        kind = tuple(str(getattr(one, "shape", type(one))) for one in others)
        if kind not in self._known:
            self._known[kind] = self._unmoved(batch, samples)
        return self._known[kind]

    def part(self, batch: Batch, index: Tensor | slice) -> Batch:
        """Return rows of a batch.

        Raises
        ------
        ValueError
            If they are no batch.
        """
        if not self(batch):
            samples = count(*batch)
            first = unaligned(batch, samples)[0]
            shape = getattr(first, "shape", None)
            kind = type(first).__name__ if shape is None else f"one of shape {tuple(shape)}"
            msg = (
                f"inputs: expected tensors that hold a row for each of {samples} samples, or the same for "
                f"all, got {kind} that holds samples in another way, so that some cannot be run without "
                "the others; pass no chunk and only samples with finite losses, or pad to a row a sample"
            )
            raise ValueError(msg)
        found: Batch = rows(batch, index, count(*batch))
        return found

    def _unmoved(self, batch: Batch, samples: int) -> bool:
        """Run every second sample by itself, and look whether its loss is that of the batch."""
        index = torch.arange(1, samples, 2)
        with evaluating(self.model), preserved(self.model, self.loss), torch.no_grad():
            whole = check_losses(self.loss(call(self.model, batch[0]), batch[1]), samples)
        part = rows(batch, index, samples)
        try:
            with evaluating(self.model), preserved(self.model, self.loss), torch.no_grad():
                alone = check_losses(self.loss(call(self.model, part[0]), part[1]), len(index))
        except torch.OutOfMemoryError:
            raise
        except Exception:  # whatever it is, it is about the rows: the batch itself went through
            return False
        expected = whole[index.to(whole.device)]
        near = torch.finfo(expected.dtype).eps ** 0.5
        return torch.allclose(alone, expected, rtol=near, atol=near, equal_nan=True)
