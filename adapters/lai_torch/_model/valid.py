"""Which positions of a batch count: those of samples, not those of padding."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

Valid = Callable[[Any], Tensor | None]
"""From a batch's inputs to its mask `(n, t)`, not zero where a position counts; None: all count."""


def valid_positions(
    model: nn.Module, inputs: Any, samples: int, given: Tensor | Valid | None
) -> Tensor | None:
    """Return the positions that count, `(n, t)`, booleans; None where all do.

    What is `given` comes first; else the batch's `attention_mask`, if the model takes one and it is one
    number a position.

    Raises
    ------
    TypeError
        If what is given is no mask.
    ValueError
        If it is not of this batch.
    """
    if given is None:
        mask = _attention_mask(model, inputs, samples)
    else:
        mask = given if isinstance(given, Tensor) or not callable(given) else given(inputs)
        _check(mask, samples)
    if mask is None:
        return None
    valid = mask != 0
    return None if bool(valid.all()) else valid  # masked copies of nothing would cost memory


def _check(mask: Any, samples: int) -> None:
    """Raise unless a mask holds one number for each position of each sample."""
    if mask is None:
        return
    if not isinstance(mask, Tensor):
        msg = (
            "valid: expected a tensor (n, t), not zero where a position counts, or a function of the inputs "
            f"that returns one, got {type(mask).__name__}"
        )
        raise TypeError(msg)
    if mask.ndim != 2 or mask.shape[0] != samples:
        msg = f"valid: expected shape ({samples}, t), one row a sample, got {tuple(mask.shape)}"
        raise ValueError(msg)


def _attention_mask(model: nn.Module, inputs: Any, samples: int) -> Tensor | None:
    """Return what the batch calls `attention_mask`; None of a model with positions of two kinds."""
    named = _named(model, inputs)
    config = getattr(model, "config", None)
    if getattr(config, "is_encoder_decoder", False) or any(name.startswith("decoder_") for name in named):
        return None  # of the encoder alone, while the last layer is the decoder's
    mask = named.get("attention_mask")
    if not isinstance(mask, Tensor) or mask.ndim != 2 or mask.shape[0] != samples:
        return None
    if mask.is_floating_point() and not bool(((mask == 0) | (mask == 1)).all()):
        return None  # it is added to products, not a mask
    return mask


def _named(model: nn.Module, inputs: Any) -> Mapping[str, Any]:
    """Return the inputs by the names that the model's `forward` gives them."""
    if isinstance(inputs, Mapping):
        return inputs
    if not isinstance(inputs, tuple):
        return {}
    forward = getattr(model, "_orig_mod", model).forward
    return dict(zip(inspect.signature(forward).parameters, inputs, strict=False))


def masked_mean(rows: Tensor, valid: Tensor | None) -> Tensor:
    """Return the mean of `(n, t, d)` over the positions that count, `(n, 1, d)`."""
    if valid is None or valid.shape[1] != rows.shape[1]:
        return rows.mean(1, keepdim=True)
    valid = valid.to(rows.device).unsqueeze(-1)
    summed = torch.where(valid, rows, 0.0).sum(1, keepdim=True)
    return summed / valid.sum(1, keepdim=True).clamp(min=1)
