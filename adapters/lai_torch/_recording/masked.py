"""Masks of positions beside records, and what is said where one fits no layer."""

import warnings
from math import prod

from torch import Tensor

from lai_torch._recording.watching.recording import Recording


def check_masked(recording: Recording, *, asked: bool) -> None:
    """Raise where a mask that was asked for fits no layer with positions; of one that was found, warn."""
    counts = {prod(use.leading) // recording.samples for use in recording.uses if use.kind == "dense"}
    several = sorted(counts - {1})
    if recording.valid is None or recording.valid.shape[1] in counts or not (asked or several):
        return
    fitting = " or ".join(map(str, several)) or "none, no layer has any"
    got = tuple(recording.valid.shape)
    if asked:
        msg = f"valid: expected shape (n, t) with the positions of a layer, {fitting}, got {got}"
        raise ValueError(msg)
    warnings.warn(
        f"attention_mask: expected the positions of a layer, {fitting}, got shape {got}: padding counts in "
        "means over positions; pass valid, a function of the inputs that returns the mask (an option of "
        "estimators and of lai_torch.trace)",
        UserWarning,
        stacklevel=2,
    )


def mask_of(recording: Recording, rows: Tensor) -> Tensor | None:
    """Return the mask that belongs beside rows `(n, t, d)`; None where they have other positions."""
    valid = recording.valid
    fits = valid is not None and rows.ndim == 3 and rows.shape[1] == valid.shape[1]
    return valid.to(rows.device) if valid is not None and fits else None
