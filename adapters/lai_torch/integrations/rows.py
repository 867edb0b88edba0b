"""The rows of a batch that are trained on."""

from typing import Any

from torch import Tensor

from lai_torch._model.batch import rows


def kept_rows(batch: Any, weights: Tensor) -> tuple[Any, Tensor]:
    """Return the rows with a positive weight, and their weights; of none, the first one, with weight 0.

    So every process takes part in every backward pass, and a trainer gets as many batches as it gave.

    Parameters
    ----------
    batch
        Tensors in nested tuples, lists and mappings.
    weights
        `(n,)`, as `Curator.weigh` or `Curator.score` gave them.

    Returns
    -------
    tuple
        Rows of the batch and of the weights.
    """
    index = (weights > 0).nonzero().squeeze(1)
    index = index if len(index) else index.new_zeros(1)
    return rows(batch, index, len(weights)), weights[index]
