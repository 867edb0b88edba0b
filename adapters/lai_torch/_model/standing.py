"""Which samples stand at a batch's places, where some are to see what becomes of them without the others.

Each of them stays where it is, for what a model draws goes by place, and a copy of the last one before
fills a place of the others: what has an order, by length, keeps it.
"""

import torch
from torch import Tensor

SPLITS = 4
"""Samples carry a code of so many bits: up to 16 samples every pair is told apart, of more most are."""


def splits(among: Tensor) -> list[list[Tensor]]:
    """Cut the samples `among` all, a mask, in two, again and again, so that each pair is once apart."""
    samples = len(among)
    bits = min(SPLITS, (samples - 1).bit_length())
    codes = torch.randperm(samples, generator=drawn(), device="cpu") % 2**bits
    codes = codes.to(among.device)
    cuts = [[among & ((codes >> bit & 1) == side) for side in (0, 1)] for bit in range(bits)]
    parts = [[part for part in cut if bool(part.any())] for cut in cuts]
    return parts or [[among]]


def stands(part: Tensor, more: int = 0) -> Tensor:
    """Return who stands at each place and at `more` behind: a part of the samples, a mask, and copies."""
    places = torch.arange(len(part) + more, device=part.device)
    first = part.nonzero()[0]
    return torch.where(torch.cat([part, part.new_zeros(more)]), places, first).cummax(0).values


def drawn() -> torch.Generator:
    """Return a generator of our own: the user's streams stay where they are."""
    return torch.Generator().manual_seed(0x5EED)
