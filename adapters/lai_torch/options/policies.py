"""From scores to weights: policies beside the core's, and drawing a batch by priority."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

import lai_core as lai

Policy = Callable[..., Tensor]
"""From scores `(n,)`, positive helps, to weights `(n,)`; from `(parts, n)` and `sizes=` with `parts`."""


@dataclass(frozen=True)
class KeepAbove:
    """Keep the samples whose score is above a threshold.

    Parameters
    ----------
    threshold
        In the unit of the scores: decrease of the summed validation loss per unit learning rate.
    normalize
        As for `lai_core.keep_positive`.

    Examples
    --------
    >>> import torch
    >>> import lai_torch
    >>> lai_torch.KeepAbove(1.0)(torch.tensor([0.5, 1.5, 2.0])).tolist()
    [0.0, 0.5, 0.5]
    """

    threshold: float
    normalize: str = "kept"

    def __call__(self, scores: Tensor) -> Tensor:
        """Return the weights `(n,)`."""
        return lai.keep_positive(scores - self.threshold, normalize=self.normalize)


def draw(
    scores: Tensor, size: int, *, floor: float = 0.1, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    r"""Draw a batch from a scored pool by priority, with the weights that keep the update unbiased.

    Parameters
    ----------
    scores
        `(pool,)`; positive helps, what is not finite is never drawn.
    size
        How many to draw, with replacement.
    floor
        Share of the probability that is spread evenly, in (0, 1]: above 0, or samples that are never
        drawn could not be weighed.
    generator
        For the draw. None: torch's default one.

    Returns
    -------
    tuple
        Row numbers `(size,)` and weights :math:`1 / (pool \cdot p_j \cdot size)`: the weighted sum of
        the drawn losses has as its expectation the mean loss of the pool (of its finite part).

    Examples
    --------
    >>> import torch
    >>> import lai_torch
    >>> index, weights = lai_torch.draw(torch.tensor([0.0, 3.0, 1.0]), 2)
    >>> index.shape, weights.shape
    (torch.Size([2]), torch.Size([2]))
    """
    if size < 1:
        msg = f"size: expected a number of samples, 1 or more, got {size!r}"
        raise ValueError(msg)
    if not 0.0 < floor <= 1.0:
        msg = f"floor: expected a share in (0, 1], got {floor!r}"
        raise ValueError(msg)
    chances: Tensor = lai.sampling_probabilities(scores, floor=floor)
    index = torch.multinomial(chances, size, replacement=True, generator=generator)
    return index, 1.0 / ((chances > 0).sum() * chances[index] * size)
