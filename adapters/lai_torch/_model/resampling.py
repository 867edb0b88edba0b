"""Row indices that replace some of a batch's samples by copies of the others.

A sample that is not replaced keeps its row, because random numbers depend on the row. A replaced row becomes
a copy of the last kept sample before it, so that a batch that is ordered (by length) stays ordered.
"""

import torch
from torch import Tensor

SPLITS = 4
"""Number of random bisections: four separate every two of up to 16 samples, and most pairs of more."""


def bisections(among: Tensor) -> list[list[Tensor]]:
    """Cut the samples of a mask in two several times, so that most pairs are separated once."""
    samples = len(among)
    bits = min(SPLITS, (samples - 1).bit_length())
    codes = torch.randperm(samples, generator=drawn(), device="cpu") % 2**bits
    codes = codes.to(among.device)
    cuts = [[among & ((codes >> bit & 1) == side) for side in (0, 1)] for bit in range(bits)]
    parts = [[part for part in cut if bool(part.any())] for cut in cuts]
    return parts or [[among]]


def row_sources(part: Tensor, more: int = 0) -> Tensor:
    """Return the row that fills each row, and `more` rows after them: a part, a mask, and copies of it."""
    places = torch.arange(len(part) + more, device=part.device)
    first = part.nonzero()[0]
    return torch.where(torch.cat([part, part.new_zeros(more)]), places, first).cummax(0).values


def drawn() -> torch.Generator:
    """Return a generator with a fixed seed; the user's random streams are not advanced."""
    return torch.Generator().manual_seed(0x5EED)
