"""Masks of positions beside records, and what is said where one fits no layer."""

import warnings
from math import prod

from torch import Tensor

from lai_torch._model.valid import fitting
from lai_torch._recording.watching.recording import Recording


def check_masked(recording: Recording, *, asked: bool) -> None:
    """Raise where a mask that was asked for fits no layer with positions; of one that was found, warn."""
    counts = {prod(use.leading) // recording.samples for use in recording.uses if use.kind == "dense"}
    several = sorted(counts - {1})
    lengths = " or ".join(map(str, several)) or "none, no layer has any"
    for mask in recording.valid:
        if mask.shape[1] in counts or not (asked or several):
            continue
        got = tuple(mask.shape)
        if asked:
            msg = f"valid: expected shape (n, t) with the positions of a layer, {lengths}, got {got}"
            raise ValueError(msg)
        warnings.warn(
            f"attention_mask: expected the positions of a layer, {lengths}, got shape {got}: padding counts "
            "in means over positions; pass valid, a function of the inputs that returns the mask (an option "
            "of estimators and of lai_torch.trace)",
            UserWarning,
            stacklevel=2,
        )


def mask_of(recording: Recording, rows: Tensor) -> Tensor | None:
    """Return the mask that belongs beside rows `(n, t, d)`; None where they have other positions."""
    mask = fitting(recording.valid, rows.shape[1]) if rows.ndim == 3 else None
    return None if mask is None else mask.to(rows.device)
