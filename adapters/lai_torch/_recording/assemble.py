"""From a recording to the records of `lai_core`: each parameter once, each layer where LAI sees it."""

from collections import defaultdict
from dataclasses import dataclass

import torch
from torch import Tensor

import lai_core as lai
from lai_core import Record
from lai_core.estimators.gates import GateTrace, squared_column_norms
from lai_torch._model.valid import fitting
from lai_torch._recording.per_sample import built
from lai_torch._recording.rules.experts import matrix_name, routed_parameters, routed_records
from lai_torch._recording.watching.recording import Recording, SharedLayout
from lai_torch._recording.watching.uses import READ_BY_LAI, Use


def assemble(recording: Recording) -> lai.Trace:
    """Return the trace: what LAI does not see first, then the layers in order, the last layer last.

    Where there is no single last layer that LAI and LLI could read, a record of nothing comes last, which
    they refuse and Ghost adds up to nothing.
    """
    kind = recording.losses.device.type
    if not torch.is_autocast_enabled(kind):
        return _assembled(recording)
    with torch.autocast(kind, enabled=False):
        return _assembled(recording)


def _assembled(recording: Recording) -> lai.Trace:
    layers = [layer.record for layer in layers_of(recording)]
    if not recording.every_layer:
        return lai.Trace(layers)
    plan = _Plan(recording)
    vectors = [lai.GainTrace(None, built(recording, name), weight=name, name=name) for name in plan.built]
    tables = [_table(recording, use) for use in recording.uses if use.kind == "embedding" and plan.has(use)]
    experts = routed_records(recording)
    if recording.last is not None:
        return lai.Trace([*vectors, *tables, *experts, *layers])
    name = "no single last layer; where several reach the loss, lai_torch.trace takes last=NAME"
    nothing = lai.GainTrace(None, recording.losses.new_zeros(recording.samples, 1), name=name)
    return lai.Trace([*vectors, *tables, *experts, *layers, nothing])


def gated(recording: Recording) -> GateTrace:
    """Return what a recording with gates holds.

    Returns
    -------
    GateTrace
        Its trace, gates and column norms.

    Raises
    ------
    ValueError
        If a layer after the last one was used.
    """
    *before, final = recording.uses
    if recording.last is not final:
        msg = (
            f"layer {final.name!r}: gate-corrected LAI expects the last layer, {recording.final.name!r}, to "
            "be used last; use estimator='lai', or 'ghost'"
        )
        raise ValueError(msg)
    gates = tuple(use.gates for use in before if use.gates is not None)
    matrices = [use.weight.tensor.T if use.transposed else use.weight.tensor for use in recording.uses[1:]]
    norms = tuple(squared_column_norms(matrix.detach()) for matrix in matrices)
    return GateTrace(assemble(recording), gates, norms)


@dataclass(frozen=True)
class Layer:
    """A layer that LAI sees: its use, its record, and whether that is exact for the layer's parameters."""

    use: Use
    record: Record
    own: bool


def layers_of(recording: Recording) -> list[Layer]:
    """Return the layers that LAI sees, in order, the last layer last."""
    uses = [use for use in recording.uses if use.kind in READ_BY_LAI and use is not recording.last]
    if recording.last is not None:
        uses.append(recording.last)
    alike = SharedLayout() if recording.alike is None else recording.alike
    if alike.own is None:
        plan = _Plan(recording)
        alike.own = tuple(
            plan.has(use) or (use is recording.last and not recording.every_layer) for use in uses
        )
    pairs = zip(uses, alike.own, strict=True)
    return [Layer(use, _layer(recording, use, own=own), own) for use, own in pairs]


def parameters_of(recording: Recording) -> dict[str, list[str]]:
    """Return, per weight key of the trace, the names of the parameters that its records explain."""
    plan = _Plan(recording)
    found = {name: [name] for name in plan.built}
    for use in recording.uses:
        if plan.has(use):
            names = found.setdefault(use.weight.name, [use.weight.name])
            if use.bias is not None and use.bias.name not in names:
                names.append(use.bias.name)
    for name in routed_parameters(recording):
        matrices = recording.parameters[name].shape[0]
        found |= {matrix_name(name, matrix): [name] for matrix in range(matrices)}
    return found


class _Plan:
    """Which parameters have records of their own kind, and which are built sample by sample.

    A parameter's record is exact where all its uses are of one kind (or an embedding and a layer tied
    to it), and where each use has the same bias, which no other layer has. All else is built.
    """

    def __init__(self, recording: Recording) -> None:
        self.uses: dict[str, list[Use]] = defaultdict(list)
        self.biased: dict[str, list[Use]] = defaultdict(list)
        read = {name for use in recording.uses if use.kind in READ_BY_LAI for name in use.weight.names}
        for use in recording.uses:
            if use.kind == "direct" and use.probe.gradient is None and use.weight.name in read:
                continue  # a product whose entries were summed at once is a layer's, and nothing more
            for name in use.weight.names:
                self.uses[name].append(use)
            if use.bias is not None:
                self.biased[use.bias.name].append(use)
        self.last = recording.last
        named = recording.parameters.items()
        self.trains = [name for name, one in named if one.numel() and name not in recording.unexplained]
        self.per_sample = recording.per_sample
        self.own = {
            name
            for name in self.trains
            if self.uses.get(name) and name not in self.per_sample and self._owned(name)
        }
        within = {use.bias.name for name in self.own for use in self.uses[name] if use.bias is not None}
        self.built = [
            name
            for name in self.trains
            if name not in self.own
            and name not in within
            and (name in self.per_sample or self.uses.get(name) or self.biased.get(name))
        ]

    def has(self, use: Use) -> bool:
        """Whether the use's weight has a record of its own kind."""
        return use.weight.name in self.own

    def _owned(self, name: str) -> bool:
        uses = self.uses[name]
        if self.biased.get(name) or not all(use.weight.whole for use in uses):
            return False
        if any(use.kind in {"direct", "operation"} for use in uses):
            return False
        kinds = {(use.kind, use.transposed, str(sorted(use.options.items()))) for use in uses}
        tied = all(use.kind == "embedding" or (use.kind == "dense" and not use.transposed) for use in uses)
        shapes = {tuple(use.weight.tensor.shape) for use in uses}
        if len(shapes) > 1 or (len(kinds) > 1 and not tied):
            return False
        if len(uses) > 1 and self.last is not None and self.last.kind == "convolution" and self.last in uses:
            return False  # a matrix on patches there, a kernel elsewhere
        biases = {None if use.bias is None else use.bias.name for use in uses if use.kind != "embedding"}
        if biases <= {None}:
            return True
        (bias, *others) = biases
        return (
            not others
            and bias in self.trains
            and bias not in self.per_sample
            and not self.uses.get(bias)
            and set(map(id, self.biased[bias])) <= set(map(id, uses))
        )


def _layer(recording: Recording, use: Use, *, own: bool) -> Record:
    """Return the record of a dense layer or a convolution; one for LAI alone if not its `own`."""
    sample_axis = recording.sample_axes[use]
    gradient = use.probe.gradient
    if gradient is None and recording.every_layer:
        gradient = use.activations.new_zeros(_output_shape(use))
    bias = use.bias is not None
    if use.kind == "convolution":
        return _convolution(use, gradient, last=use is recording.last, own=own)
    kind = lai.LayerTrace if own else lai.ReadoutTrace
    rows = sample_axis.in_front(use.activations)
    return kind(
        rows,
        None if gradient is None else sample_axis.in_front(gradient),
        bias=bias,
        weight=use.weight.name if own else None,
        name=use.name,
        valid=_mask_of(recording, rows),
    )


def _mask_of(recording: Recording, rows: Tensor) -> Tensor | None:
    """Return the mask that belongs beside rows `(n, t, d)`; None where they have other positions."""
    mask = fitting(recording.valid, rows.shape[1]) if rows.ndim == 3 else None
    return None if mask is None else mask.to(rows.device)


def _output_shape(use: Use) -> tuple[int, ...]:
    """Return the shape of an output that reaches no loss."""
    if use.kind == "convolution":
        geometry = lai.ConvolutionTrace(use.activations, None, **use.options).geometry
        space = geometry.output(use.activations.shape[2:])
        return (use.activations.shape[0], use.weight.tensor.shape[0], *space)
    rows, columns = use.weight.tensor.shape
    return (*use.leading, columns if use.transposed else rows)


def _convolution(use: Use, gradient: Tensor | None, *, last: bool, own: bool) -> Record:
    """Return the record of a convolution; as the last layer, of a matrix on every patch."""
    bias, name, weight = use.bias is not None, use.name, use.weight.name if own else None
    record = lai.ConvolutionTrace(
        use.activations, gradient, **use.options, bias=bias, weight=weight, name=name
    )
    if last:
        matrix = record.unfolded()
        if own:
            return matrix
        return lai.ReadoutTrace(matrix.activations, matrix.output_gradients, bias=bias, name=name)
    if own:
        return record
    outputs = None if gradient is None else _by_pixel(gradient)
    return lai.ReadoutTrace(_by_pixel(use.activations), outputs, bias=bias, name=name)


def _by_pixel(maps: Tensor) -> Tensor:
    """Return `(n, channels, *space)` as `(n, positions, channels)`."""
    return torch.movedim(maps.flatten(2), 1, 2)


def _table(recording: Recording, use: Use) -> lai.EmbeddingTrace:
    sample_axis = recording.sample_axes[use]
    gradient = use.probe.gradient
    if gradient is None:
        shape = (*use.activations.shape, use.weight.tensor.shape[1])
        gradient = use.weight.tensor.new_zeros(shape)
    ids = sample_axis.in_front(use.activations.unsqueeze(-1))
    return lai.EmbeddingTrace(
        ids.squeeze(-1),
        sample_axis.in_front(gradient),
        use.weight.tensor.shape[0],
        padding=use.options["padding"],
        weight=use.weight.name,
        name=use.name,
    )
