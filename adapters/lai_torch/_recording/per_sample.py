"""Per-sample gradients of a parameter, built: for what has no record of its own kind."""

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import grad
from torch.overrides import resolve_name

from lai_core._adapters import GRADIENT_BUDGET
from lai_torch._model.sample_axis import SampleAxis
from lai_torch._recording.watching.recorder import Recorder
from lai_torch._recording.watching.recording import Recording
from lai_torch._recording.watching.uses import HIDDEN, Source, Use, leaves

_CONVOLUTIONS = {3: grad.conv1d_weight, 4: grad.conv2d_weight, 5: grad.conv3d_weight}


def built(recording: Recording, name: str) -> Tensor:
    """Return every sample's gradient for the parameter `name`, `(n, numel)`, summed over its uses.

    Raises
    ------
    ValueError
        If it would take more than the budget.
    """
    parameter = recording.parameters[name]
    if needed := over_budget(parameter, recording.samples):
        msg = (
            f"model: expected per-sample gradients of {name!r} that fit {GRADIENT_BUDGET} bytes, they take "
            f"{needed}: it is computed from other parameters, or used in ways that share no record; trace "
            "fewer samples at once, freeze it, or use lai_torch.exact_scores"
        )
        raise ValueError(msg)
    total = parameter.new_zeros((recording.samples, *parameter.shape))
    if name in recording.per_sample:
        total += recording.per_sample[name]
    for use in recording.uses:
        sample_axis = recording.sample_axes[use]
        if use.probe.gradient is None:
            continue
        if name in use.weight.names:
            total += _vjp(use.weight, of_weight(use, sample_axis, recording.samples), parameter)
        if use.bias is not None and name in use.bias.names:
            total += of_bias(use, sample_axis)
    real = torch.view_as_real(total) if total.is_complex() else total  # an SGD step moves both parts
    return real.reshape(recording.samples, -1)


def over_budget(parameter: Tensor, samples: int) -> int:
    """Return how many bytes a parameter's per-sample gradients take; 0 where they fit the budget."""
    needed = samples * parameter.numel() * parameter.element_size()
    return needed if needed > GRADIENT_BUDGET else 0


def of_bias(use: Use, sample_axis: SampleAxis) -> Tensor:
    """Return every sample's gradient of a layer's bias, `(n, d_out)`."""
    gradient = _received(use)
    if use.kind == "convolution":
        return gradient.flatten(2).sum(2)
    rows = sample_axis.in_front(gradient)
    return rows if rows.ndim == 2 else rows.sum(1)


def of_weight(use: Use, sample_axis: SampleAxis, samples: int) -> Iterable[Tensor]:
    """Return every sample's gradient of what is used as the weight, `(n, *shape)` or one by one."""
    gradient = _received(use)
    if use.kind == "dense":
        rows, columns = (sample_axis.in_front(side) for side in (gradient, use.activations))
        if rows.ndim == 2:
            rows, columns = rows.unsqueeze(1), columns.unsqueeze(1)
        rows, columns = (columns, rows) if use.transposed else (rows, columns)
        return rows.transpose(1, 2) @ columns
    if use.kind == "embedding":
        ids = sample_axis.in_front(use.activations.unsqueeze(-1)).reshape(samples, -1)
        rows = sample_axis.in_front(gradient).reshape(samples, ids.shape[1], -1)
        if (padding := use.options["padding"]) is not None:
            rows = rows * (ids != padding).unsqueeze(-1)
        table = gradient.new_zeros((samples, *use.weight.tensor.shape))
        return table.scatter_add_(1, ids.unsqueeze(-1).expand_as(rows), rows)
    if use.kind == "convolution":
        return _of_kernel(use, gradient)
    if use.kind == "operation":
        return _of_operation(use, gradient, sample_axis, samples)
    if use.options["own_rows"]:
        parts = alone(gradient, sample_axis, samples)
        return (part.reshape(use.options["shape"]) for part in parts)
    return _of_copies(use, gradient, sample_axis, samples)


def _received(use: Use) -> Tensor:
    """Return the gradient that arrived, zeros where none did."""
    gradient = use.probe.gradient
    return torch.zeros_like(use.activations) if gradient is None else gradient


def _of_kernel(use: Use, gradient: Tensor) -> Tensor:
    """Return every sample's gradient of a convolution's kernel, sample by sample."""
    shape, options = use.weight.tensor.shape, use.options
    function = _CONVOLUTIONS[len(shape)]
    pad = [length for low, high in reversed(options["padding"]) for length in (low, high)]
    inputs = torch.nn.functional.pad(use.activations, pad)
    found = [
        function(one, shape, g, options["stride"], 0, options["dilation"], options["groups"])
        for one, g in zip(inputs.split(1), gradient.split(1), strict=True)
    ]
    return torch.stack(found)


def _of_operation(use: Use, gradient: Tensor, sample_axis: SampleAxis, samples: int) -> Iterator[Tensor]:
    """Yield each sample's gradient of what a function used: its pullback of that sample's part."""
    leaf = use.options["leaf"]
    for part in alone(gradient, sample_axis, samples):
        (found,) = torch.autograd.grad(use.activations, leaf, part, retain_graph=True, allow_unused=True)
        yield torch.zeros_like(leaf) if found is None else found


def alone(gradient: Tensor, sample_axis: SampleAxis, samples: int) -> Iterator[Tensor]:
    """Yield per sample a gradient of which nothing is left but that sample's part."""
    split, axis = sample_axis.split(gradient), sample_axis.axis + 1
    for sample in range(samples):
        part = torch.zeros_like(split)
        part.select(axis, sample).copy_(split.select(axis, sample))
        yield part.reshape(gradient.shape)


def _of_copies(use: Use, gradient: Tensor, sample_axis: SampleAxis, samples: int) -> Tensor:
    """Sum the gradients of a sample's copies into the shape of what was copied."""
    shape = tuple(use.options["shape"])
    axis = sample_axis.axis + 1
    front = sample_axis.split(gradient).movedim(axis, 0).flatten(axis, axis + 1)
    return front.sum_to_size((samples, *(1,) * (front.ndim - 1 - len(shape)), *shape)).reshape(
        samples, *shape
    )


def _vjp(source: Source, gradients: Iterable[Tensor], parameter: Tensor) -> Tensor:
    """Pull gradients of a tensor computed from parameters back to one of them, sample by sample."""
    if source.whole:
        found = gradients if isinstance(gradients, Tensor) else torch.stack(list(gradients))
        return found.reshape(-1, *parameter.shape)  # a vector may be used as a matrix of one row
    pulled = [
        torch.autograd.grad(source.tensor, parameter, one, retain_graph=True, allow_unused=True)[0]
        for one in gradients
    ]
    return torch.stack([torch.zeros_like(parameter) if one is None else one for one in pulled])


def one_by_one(
    recorder: Recorder, values: Tensor, names: Sequence[str]
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return per-sample gradients of the parameters `names`, `(n, *shape)`, and those over the budget.

    They take one backward pass per sample through the whole batch: right for any function, at n times the
    cost of a record.
    """
    samples = recorder.samples
    found: dict[str, Tensor] = {}
    too_large: dict[str, str] = {}
    for name in names:
        parameter = recorder.parameters[name]
        if needed := over_budget(parameter, samples):
            function = next(iter(recorder.stuck.get(name, {})), None)
            used = HIDDEN if function is None else resolve_name(function) or str(function)
            too_large[name] = f"{used}; its per-sample gradients take {needed} bytes"
        else:
            found[name] = parameter.detach().new_zeros((samples, *parameter.shape))
    if not found:
        return found, too_large
    wanted: list[Tensor] = [recorder.parameters[name] for name in found]
    for sample, value in enumerate(values):
        gradients = recorder.differentiate(value, wanted, None)
        for rows, gradient in zip(found.values(), gradients, strict=True):
            if gradient is not None:
                rows[sample] = gradient.detach().to_dense() if gradient.is_sparse else gradient.detach()
    return found, too_large


def foreign(recorder: Recorder, values: Tensor) -> dict[str, str]:
    """Return trainable parameters that the losses depend on and the model does not register."""
    own = {id(parameter) for parameter in recorder.parameters.values()}
    found = {}
    for leaf in leaves(values):
        if isinstance(leaf, nn.Parameter) and id(leaf) not in own:
            found[f"a parameter of shape {tuple(leaf.shape)}"] = "the loss, and not registered by the model"
    return found
