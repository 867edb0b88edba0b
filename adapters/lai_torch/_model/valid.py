"""Which positions of a batch count: those of samples, not those of padding."""

import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Valid = Callable[[Any], Tensor | None]
"""From a batch's inputs to its mask `(n, t)`, not zero where a position counts; None: all count."""
Positions = tuple[Tensor, ...]
"""Masks `(n, t)` of different lengths, true where a position counts; where none fits, all count."""


@dataclass(eq=False)
class Masks:
    """Finds the positions that count, batch by batch.

    It is asked whether all positions count, for masked copies of nothing would cost memory; not any more once
    one did not.
    """

    # the mask, or what makes it of a batch's inputs; None: the inputs' `attention_mask`, if the model takes
    # one and it is one number a position, and the decoder's if there is one
    given: Tensor | Valid | None
    padded: bool = False

    def __call__(self, model: nn.Module, inputs: Any, samples: int) -> Positions:
        """Return the positions that count.

        Raises
        ------
        TypeError
            If what is given is no mask.
        ValueError
            If it is not of this batch.
        """
        if self.given is None:
            found = _attention_masks(model, inputs, samples)
        else:
            mask: Any = self.given
            if callable(mask):
                mask = mask(inputs)
            found = []
            if mask is not None:
                _check(mask, samples)
                found = [mask]
        masks = tuple(mask != 0 for mask in found)
        # looked at until a batch is padded: a mask without zeros changes no mean
        if masks and not self.padded:
            every = torch.stack([mask.all() for mask in masks]).all()  # one wait for the device
            self.padded = not bool(every)
        # a batch without padding needs no mask, and its positions are averaged as they are
        if not self.padded:
            return ()
        # a layer finds its mask by the number of its positions
        if len({mask.shape for mask in masks}) < len(masks):
            warnings.warn(
                "attention_mask: expected encoder and decoder to have other numbers of positions, by which "
                f"their layers are told apart, got {masks[0].shape[1]} twice: padding counts in means over "
                "positions; pad one of them further, or pass valid, a function of the inputs that returns "
                "the mask",
                UserWarning,
                stacklevel=2,
            )
            return ()
        return masks


def _check(mask: Any, samples: int) -> None:
    """Raise unless a mask holds one number for each position of each sample."""
    if not isinstance(mask, Tensor):
        msg = (
            "valid: expected a tensor (n, t), not zero where a position counts, or a function of the inputs "
            f"that returns one, got {type(mask).__name__}"
        )
        raise TypeError(msg)
    if mask.ndim != 2 or mask.shape[0] != samples:
        msg = f"valid: expected shape ({samples}, t), one row a sample, got {tuple(mask.shape)}"
        raise ValueError(msg)


def _attention_masks(model: nn.Module, inputs: Any, samples: int) -> list[Tensor]:
    """Return what the batch calls `attention_mask`, and of a model with a decoder that one's mask too."""
    named: Mapping[str, Any] = {}
    if isinstance(inputs, Mapping):
        named = inputs
    elif isinstance(inputs, tuple):
        forward = getattr(model, "_orig_mod", model).forward
        named = dict(zip(inspect.signature(forward).parameters, inputs, strict=False))
    names = ["attention_mask"]
    config = getattr(model, "config", None)
    if getattr(config, "is_encoder_decoder", False) or any(name.startswith("decoder_") for name in named):
        names.append("decoder_attention_mask")
    masks: dict[str, Tensor] = {name: named[name] for name in names if _is_mask(named.get(name), samples)}
    labels: Any = named.get("labels")
    if len(names) == 2 and names[1] not in masks and _is_mask(labels, samples):
        masks["labels"] = labels != -100  # the decoder reads them, one place on
    return list(masks.values())


def _is_mask(mask: Any, samples: int) -> bool:
    """Whether this is one number a position: what is added to products is no mask."""
    if not isinstance(mask, Tensor) or mask.ndim != 2 or mask.shape[0] != samples:
        return False
    return not mask.is_floating_point() or bool(((mask == 0) | (mask == 1)).all())
