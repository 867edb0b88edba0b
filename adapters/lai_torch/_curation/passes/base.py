"""The shape that every pass has: a forward pass to be scored, and the backward pass that goes with it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lai_torch._curation.scorers.base import Batch, Reading
from lai_torch._model.batch import tensors
from lai_torch._model.precision import float8_linear
from lai_torch._model.walk import modules_of, named_parameters


@dataclass(frozen=True)
class Gradient:
    """What was added to `.grad`."""

    # `(n,)`: the weights of the losses whose gradient it is; zeros where a sample was dropped
    weights: Tensor
    losses: Tensor  # `(n,)`: the losses that the backward pass found; NaN where it did not look
    # the weighted sum of the losses of the rows that ran here, where those are not this process's own
    moved: float | None = None
    kept: int | None = None  # how many weights are positive; None where that is still to be read
    dropped: int = 0  # how many rows with a positive weight were left out, their loss being not finite


Backward = Callable[..., Gradient]
"""Adds the gradient of `sum_j weights_j loss_j / parts` to `.grad`, given weights and parts.

Its third argument, a function that restores the buffers, is called before rows run a second time; without
it they stay as the first pass left them.
"""


def nothing() -> None:
    """Restore no buffers."""


@dataclass(frozen=True)
class Forward:
    """One batch's forward pass."""

    name: str  # which pass it is of: `kept`, `selective` or `whole`
    # what there is to score, in consecutive parts of the batch; each is there once, so that it is freed
    readings: Iterator[Reading]
    backward: Backward  # the backward pass that goes with it


class Pass(ABC):
    """A pass: computes what the estimator reads, then the gradient of the weighted losses."""

    @abstractmethod
    def forward(self, batch: Batch, summary: Any) -> Forward:
        """Run the model on a batch as far as scoring against `summary` needs it."""


def check_uncoupled(model: nn.Module, name: str) -> None:
    """Raise if a module normalises over the batch or rounds to float8, naming it."""
    found = coupling(model)
    if found is not None:
        msg = (
            f"backward: {name!r} expects a model that couples no samples, BatchNorm {found!r} in "
            "training mode does; use backward='kept', or GroupNorm"
        )
        raise ValueError(msg)
    found = rounding(model)
    if found is not None:
        msg = (
            f"backward: {name!r} expects layers that compute in their parameters' type, {found!r} rounds to "
            "float8; use backward='kept', which scores without that rounding and trains with it"
        )
        raise ValueError(msg)


def coupling(model: nn.Module) -> str | None:
    """Return the name of a module that normalises over the batch; None if there is none."""
    kind = nn.modules.batchnorm._BatchNorm
    found = next((one for one in modules_of(model) if isinstance(one, kind) and one.training), None)
    return None if found is None else next(name for name, one in model.named_modules() if one is found)


def rounding(model: nn.Module) -> str | None:
    """Return the name of a layer that trains in float8; None if there is none."""
    kind = float8_linear()
    if kind is None:
        return None
    return next((name for name, one in model.named_modules() if isinstance(one, kind)), None)


def check_precision(inputs: Any, name: str) -> None:
    """Raise under autocast: the pass that trains is the one that is scored."""
    for device in {tensor.device.type for tensor in tensors(inputs)}:
        if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
            msg = (
                f"backward: {name!r} scores the forward pass that it trains on, and scores of one under "
                "autocast lose three digits; leave autocast, and use an estimator that asks for it, "
                "lai_torch.LAI(autocast=torch.bfloat16), or backward='kept', which scores with it off"
            )
            raise ValueError(msg)


def check_unhooked(model: nn.Module) -> None:
    """Raise if a parameter has hooks on its gradient: no engine runs that would call them."""
    for name, parameter in named_parameters(model).items():
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
            msg = (
                f"backward: 'selective' calls no hooks on gradients, parameter {name!r} has one; remove it, "
                "or use backward='kept'"
            )
            raise ValueError(msg)


def check_unmixed(function: str | None) -> None:
    """Raise if a function mixes samples: that it does not matter would be to prove of every batch."""
    if function is not None:
        msg = (
            f"backward: 'selective' expects operations that keep samples apart, {function} mixes them, if "
            "not in this batch's losses; use backward='kept', which looks at that in every batch"
        )
        raise ValueError(msg)
