"""What the records say of a batch, against one plain backward pass of its weighted losses.

For random weights w of the samples, the sum of w_j times the recorded gradient of sample j is the
gradient of the weighted losses exactly if every recorded gradient is right (for almost all w). Of both
the squared length is taken, parameter by parameter: w' K w, which is what Ghost adds up.
"""

import warnings
from collections import defaultdict
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

import lai_core as lai
from lai_torch._model.batch import Loss, check_losses
from lai_torch._model.preserve import preserved
from lai_torch._model.snapshot.owned import check_returned, other_leaves
from lai_torch._model.untouched import losses_of
from lai_torch._model.walk import named_parameters
from lai_torch._recording.assemble import assemble, parameters_of
from lai_torch._recording.proving.reindexed import check_same
from lai_torch._recording.watching.recording import Recording


def wrongly_recorded(
    model: nn.Module, loss: Loss, batch: tuple[Any, Any], recording: Recording, precision: float
) -> frozenset[str]:
    """Return the names of parameters whose recorded gradients do not add up to the plain one.

    Raises
    ------
    ValueError
        If the model gives other losses when it is run again.
    """
    # as training runs, with the hooks that may change a gradient
    with preserved(model, loss, hooks=True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        weights = _weights(recording.losses)  # in here: under inference mode others could not be multiplied
        values = check_losses(losses_of(model, loss, batch), recording.samples)
        check_same(recording.losses, values.detach(), precision)
        parameters = list(recording.parameters.values())
        others = other_leaves(values, parameters).values()  # so that every function runs backwards
        found = torch.autograd.grad((values * weights).sum(), [*parameters, *others], allow_unused=True)
        check_returned(named_parameters(model, loss))
        trace, parts = assemble(recording), parameters_of(recording)
        lengths = {key: _length(trace, key, weights) for key in parts}
    plain = {
        name: 0.0 if gradient is None else float(gradient.detach().abs().double().square().sum())
        for name, gradient in zip(recording.parameters, found, strict=False)
    }
    none = set(plain) - {name for names in parts.values() for name in names} - set(recording.unexplained)
    whole: dict[tuple[str, ...], float] = defaultdict(float)  # matrices of one parameter together
    for key, names in parts.items():
        whole[tuple(names)] += lengths[key]
    checked = [(list(names), length) for names, length in whole.items()]
    checked += [([name], 0.0) for name in none]
    floor = precision * sum(plain.values())  # below lie roundings, such as attention's key bias has alone
    wrong: set[str] = set()
    for names, length in checked:
        expected = sum(plain[name] for name in names)
        # a gradient has its parameter's type, which may be coarser than all that the model computes in
        types = [precision, *(torch.finfo(recording.parameters[name].dtype).eps for name in names)]
        within = max(max(types) ** 0.5, 64 * max(types))
        if not abs(length - expected) <= within * expected + floor:
            wrong.update(names)
    return frozenset(wrong) if sum(plain.values()) < float("inf") else frozenset()


def _weights(losses: Tensor) -> Tensor:
    """Return weights between 1/2 and 3/2 in no order, none where a loss is not finite."""
    generator = torch.Generator().manual_seed(1)
    drawn = torch.rand(losses.shape[0], generator=generator, dtype=torch.float64, device="cpu") + 0.5
    return torch.where(torch.isfinite(losses), drawn.to(losses), 0.0)


def _length(trace: lai.Trace, key: str, weights: Tensor) -> float:
    """Return the squared length of the weighted sum of a parameter's recorded gradients."""
    layers: list[Any] = [layer for layer in trace.layers if layer.weight == key]
    part = lai.Trace(
        replace(layer, output_gradients=_times(layer.output_gradients, weights)) for layer in layers
    )
    return float(lai.ghost_scores(part, part).sum())


def _times(gradients: Tensor, weights: Tensor) -> Tensor:
    return gradients * weights.to(gradients).reshape(-1, *[1] * (gradients.ndim - 1))
