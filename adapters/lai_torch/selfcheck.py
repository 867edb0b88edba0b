"""Ghost against one backward pass per sample, on the user's own model and batch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import lai_core as lai
from lai_torch._assemble import assemble, parameters_of
from lai_torch._batch import Loss, call, rows
from lai_torch._preserve import preserved
from lai_torch._record import record
from lai_torch.trace import check_explained


@dataclass(frozen=True)
class SelfCheck:
    """How far Ghost's kernel is from the inner products of gradients taken one sample at a time.

    Attributes
    ----------
    relative_error
        `max |K - K_ref| / max |K_ref|` over all parameters together.
    layers
        The same for the parameters of one record, or of records that share one; where a layer's
        gradients are rounding beside the whole, relative to the whole's precision.
    """

    relative_error: float
    layers: Mapping[str, float]


def selfcheck(
    model: nn.Module, loss: Loss, inputs: Any, targets: Any, *, last: str | None = None
) -> SelfCheck:
    """Compare Ghost's kernel of a batch with itself to one backward pass per sample, in a plain loop.

    Parameters
    ----------
    model, loss, inputs, targets, last
        As for `trace`; a few samples are enough.

    Returns
    -------
    SelfCheck
        Errors near the precision of the model's type: 1e-6 in float32, 1e-15 in float64.

    Raises
    ------
    ValueError
        If the model cannot be traced, or does not accept a batch of one sample.

    Examples
    --------
    >>> import torch
    >>> import lai_torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 3)).double()
    >>> loss = torch.nn.CrossEntropyLoss(reduction="none")
    >>> batch = torch.randn(5, 4, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1])
    >>> lai_torch.selfcheck(model, loss, *batch).relative_error < 1e-12
    True
    """
    recording = record(model, loss, inputs, targets, every_layer=True, last=last, ghost_alone=last is None)
    check_explained(recording)
    trace = assemble(recording)
    gradients = _one_by_one(model, loss, (inputs, targets), recording.samples)
    exact = _kernel(list(gradients.values()))
    floor = torch.finfo(exact.dtype).eps * float(exact.abs().max())
    layers = {}
    for key, names in parameters_of(recording).items():
        part = lai.Trace(layer for layer in trace.layers if layer.weight == key)
        own = _kernel([gradients[name] for name in names])
        layers[key] = _error(lai.ghost_kernel(part, part), own, floor)
    return SelfCheck(_error(lai.ghost_kernel(trace, trace), exact, floor), layers)


def _kernel(gradients: list[Tensor]) -> Tensor:
    return torch.stack([part @ part.T for part in gradients]).sum(0)


def _error(kernel: Tensor, exact: Tensor, floor: float) -> float:
    scale = max(float(exact.abs().max()), floor)
    return float((kernel - exact).abs().max()) / (scale or 1.0)


def _one_by_one(model: nn.Module, loss: Loss, batch: tuple[Any, Any], samples: int) -> dict[str, Tensor]:
    """Return each sample's gradient of each trainable parameter, `(n, size)`."""
    trainable = {name: p for name, p in model.named_parameters() if p.requires_grad}
    found: dict[str, list[Tensor]] = {name: [] for name in trainable}
    for sample in range(samples):
        inputs, targets = rows(batch, slice(sample, sample + 1), samples)
        with preserved(model):
            value = loss(call(model, inputs), targets).sum()
            gradients = torch.autograd.grad(value, list(trainable.values()), allow_unused=True)
        for (name, parameter), gradient in zip(trainable.items(), gradients, strict=True):
            found[name].append((torch.zeros_like(parameter) if gradient is None else gradient).flatten())
    return {name: torch.stack(parts) for name, parts in found.items()}
