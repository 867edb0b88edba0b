"""From uses and the gradients that arrived at them to the records of `lai_core`."""

from collections import defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

import lai_core as lai
from lai_core import Record
from lai_core._adapters import GRADIENT_BUDGET
from lai_torch._graph.layers import Layer
from lai_torch._graph.per_sample import Received, split_use
from lai_torch._graph.places import Axis, Entries, Place
from lai_torch._graph.plan import Plan
from lai_torch._graph.products import (
    CONVOLUTION,
    GROUPED,
    PRODUCTS,
    Sides,
    add_positions,
    flatten_positions,
    is_argument,
    read_geometry,
    read_sides,
    split_groups,
)
from lai_torch._graph.saved import Saved, read_signed
from lai_torch._graph.uses import Use
from lai_torch._graph.walk import Graph, name_function
from lai_torch._model.function import densify, view_real
from lai_torch._model.valid import Positions

Owned = dict[str, list[tuple[Use, Record]]]
"""Of each parameter whose uses have records of one kind: these."""

TRANSPOSED = ".mT"
"""Behind the key of a square matrix whose rows are its inputs: elsewhere it may be used the other way."""


@dataclass(frozen=True)
class Readout:
    """A layer that LAI sees: its record, and whether that is exact for the layer's own parameters."""

    layer: Layer
    record: Record
    own: bool


class Assembly:
    """The records of one batch.

    Attributes
    ----------
    explained
        Of each weight key, the names of the parameters that its records explain.
    kinds
        Of each parameter, the kinds of its uses.
    """

    def __init__(
        self,
        graph: Graph,
        plan: Plan,
        received: Received,
        names: Mapping[int, str],
        valid: Positions = (),
    ) -> None:
        self.graph, self.plan, self.received, self.names = graph, plan, received, names
        self.valid, self.saved = valid, Saved()
        self.explained: dict[Hashable, list[str]] = {}
        self.kinds: dict[str, dict[str, None]] = defaultdict(dict)
        self._sides: dict[tuple[int, int], Sides | None] = {}

    def read(self, node: int, slot: int, place: Place) -> Sides | None:
        """Return the sides of a product, each once."""
        key = (node, slot)
        if key not in self._sides:
            gradient = self.received.get((node, 0))
            sides = read_sides(self.graph, self.saved, node, slot, gradient, place)
            # autocast rounded them, and inner products of rounded rows lose digits
            if sides is not None and sides.activations.element_size() < 4:
                outputs = sides.gradients
                if outputs is not None:
                    outputs = self._raise(outputs)
                sides = replace(sides, activations=self._raise(sides.activations), gradients=outputs)
            self._sides[key] = sides
        return self._sides[key]

    def _raise(self, tensor: Tensor) -> Tensor:
        """Return what autocast computed in the type of the parameters, for products to have all digits."""
        return tensor.to(torch.promote_types(tensor.dtype, self._finest))

    @cached_property
    def _finest(self) -> torch.dtype:
        own = {leaf.dtype for leaf in self.graph.leaves.values() if leaf.is_floating_point()}
        return min(own, key=lambda one: torch.finfo(one).eps, default=self.graph.losses.dtype)

    # ---- what Ghost adds up

    def build_every(self, parameters: Mapping[str, Tensor]) -> tuple[list[Record], list[Readout]]:
        """Return the records of all parameters, last those of the layers, and the layers."""
        owned, biases = self._find_owned(self.plan.uses_by_name)
        # In the order of the parameters, then of the layers, whatever a batch's records are made of.
        records: list[Record] = []
        for name, parameter in parameters.items():
            if name in biases or not parameter.numel() or name in self.plan.unexplained:
                continue
            own = owned.get(name, [])
            # an expert to which no row was routed, maybe
            unused = name not in self.plan.uses_by_name and name not in self.plan.left
            unused = unused and parameter.ndim in {2, 3} and not parameter.is_complex()
            if unused or any(isinstance(one, lai.ExpertTrace) for _, one in own):
                records += self._build_experts(name, parameter, own)
            elif own:
                records += [record for use, record in own if (use.node, use.slot) not in self.plan.order]
            else:
                records += self._build(name, parameter)
        by_node = {(use.node, use.slot): record for pairs in owned.values() for use, record in pairs}
        layers = self.build_layers(by_node)
        end = len(layers) - bool(self.plan.last)
        read = {(one.layer.node, one.layer.slot): one.record for one in layers[:end]}
        ends = {layer.node for layer in self.plan.last}
        # a batch may have left out some that another one has
        ordered = {key: read.get(key, by_node.get(key)) for key in self.plan.order if key[0] not in ends}
        records += [one for one in ordered.values() if one is not None]
        return [*records, *(one.record for one in layers[end:])], layers

    def _find_owned(self, uses_by_name: Mapping[str, list[Use]]) -> tuple[Owned, set[str]]:
        """Return the parameters whose uses are all of one kind, with their records, and the biases within."""
        owned: Owned = {}
        within: set[str] = set()
        last = {layer.node for layer in self.plan.last}
        layers = [layer for layer in self.plan.layers if layer.node in self.plan.biases]
        biased = {(layer.node, layer.slot) for layer in layers}
        for name, uses in uses_by_name.items():
            if name in self.plan.left or any(
                use.source.turned is None or len(use.source.names) != 1 for use in uses
            ):
                continue
            bias = self._find_bias(uses, uses_by_name)
            # LAI reads a layer with its bias, which no record of the matrix alone has.
            if bias is None and any((use.node, use.slot) in biased for use in uses):
                continue
            pairs = [(use, self._records(use, bias=bias is not None)) for use in uses]
            found = [(use, record) for use, records in pairs for record in records]
            kinds = {self._kind(use, record) for use, record in found}
            # An embedding may be tied to a matrix that is used as it is.
            tied = kinds - {("table",)}
            alone = len(kinds) == 1 or (len(tied) == 1 and next(iter(tied))[:2] == ("dense", True))
            # As the last layer a kernel is a matrix on patches; elsewhere it is a kernel.
            mixed = len(found) > 1 and any(isinstance(one, lai.ConvolutionTrace) for _, one in found)
            mixed = mixed and any(use.node in last for use, _ in found)
            if not all(records for _, records in pairs) or not alone or mixed:
                continue
            owned[name] = found
            if bias is not None:
                within.add(bias)
        owned = {name: pairs for name, pairs in owned.items() if name not in within}
        for name, own in owned.items():
            for use, record in own:
                names = self.explained.setdefault(record.weight, [name])
                self.kinds[name][_CALLED[type(record)]] = None
                if getattr(record, "bias", False):
                    bias = self.plan.biases[use.node].name
                    self.kinds[bias]["bias"] = None
                    if bias not in names:
                        names.append(bias)
        return owned, within

    def _kind(self, use: Use, record: Record) -> tuple[Any, ...]:
        """Return what the records of one parameter must share."""
        if isinstance(record, lai.EmbeddingTrace):
            return ("table",)
        if isinstance(record, lai.ConvolutionTrace):
            return record.kernel, record.stride, record.padding, record.dilation, record.groups
        assert isinstance(record, lai.LayerTrace)
        natural = self._is_natural(use)
        if self.graph.names[use.node] == GROUPED:
            return ("rows", natural, False, 1)
        if isinstance(record, lai.ExpertTrace) or record.groups > 1:
            return ("rows", natural, use.source.matrix is None, record.groups)
        return ("dense", natural, record.matrix_shape)

    def _is_natural(self, use: Use) -> bool:
        """Whether the rows of a matrix are its outputs, as of a linear layer's, not its inputs."""
        if self.graph.names[use.node] == GROUPED:
            return bool(use.source.turned)
        product = PRODUCTS[self.graph.names[use.node]]
        return (use.slot == product.slots[0] or product.natural) != bool(use.source.turned)

    def _key(self, use: Use, sides: Sides, key: str) -> str:
        """Return what a matrix is called in records: a square one does not show that it is transposed."""
        gradients = sides.gradients
        square = gradients is not None and sides.activations.shape[-1] == gradients.shape[-1]
        return f"{key}{TRANSPOSED}" if square and not self._is_natural(use) else key

    def _find_bias(self, uses: list[Use], uses_by_name: Mapping[str, list[Use]]) -> str | None:
        """Return the bias that all these products have, and that nothing else uses."""
        products = [use for use in uses if self.graph.names[use.node] != "EmbeddingBackward0"]
        biases = [
            self.plan.biases.get(use.node) for use in products if is_argument(self.graph, use.node, use.slot)
        ]
        # a bias that some products lack has a record of its own
        if not biases or None in biases or len(biases) < len(products):
            return None
        found = [bias for bias in biases if bias is not None]
        name, width = found[0].name, found[0].width
        for use in products:
            if self.graph.names[use.node] == CONVOLUTION:
                continue
            sides = self.read(use.node, use.slot, use.place)
            if sides is not None and (
                sides.routed or sides.gradients is None or sides.gradients.shape[-1] != width
            ):
                return None
        # used anywhere else, its gradient is more than that of these products
        own = {(use.node, use.slot) for use in uses_by_name.get(name, ())}
        alike = all(bias.name == name for bias in found) and name not in self.plan.left
        if not alike or own != {(bias.node, bias.slot) for bias in found}:
            return None
        return name

    def _records(self, use: Use, *, bias: bool) -> list[Record]:
        """Return the records of a use, if it has any: of a matrix one, of a bank of matrices one each."""
        if self.graph.names[use.node] != GROUPED:
            return [one for one in [self._record(use, bias=bias)] if one is not None]
        gradient = self.received[use.received[0]]
        if (
            gradient is None
            or use.slot != 1
            or use.source.turned is None
            or not isinstance(use.place, Entries)
        ):
            return []
        sides = split_groups(self.graph, self.saved, use.node, gradient, use.place)
        keys = (self._key(use, one, f"{use.source.key}[{matrix}]") for matrix, one in enumerate(sides))
        pairs = zip(sides, keys, strict=True)
        return [lai.ExpertTrace(one.activations, one.gradients, weight=key, name=key) for one, key in pairs]

    def _record(self, use: Use, *, bias: bool) -> Record | None:
        """Return the record of a use that has a kind of its own."""
        name = self.graph.names[use.node]
        gradient = self.received[use.received[0]]
        if len(use.received) != 1 or gradient is None:
            return None
        source, argument = use.source, is_argument(self.graph, use.node, use.slot)
        if argument and name != CONVOLUTION:
            return self._record_matrix(use, bias=bias)
        if source.turned is not False or source.matrix is not None:
            return None
        if argument:
            named: dict[str, Any] = {"weight": source.key, "name": source.key.removesuffix(".weight")}
            return self._convolve(use.node, use.slot, use.place, gradient, bias=bias, **named)
        if name == "EmbeddingBackward0" and isinstance(use.place, Axis):
            return self._record_table(use, gradient, use.place)
        return None

    def _record_matrix(self, use: Use, *, bias: bool) -> Record | None:
        source, sides = use.source, self.read(use.node, use.slot, use.place)
        if sides is None or sides.gradients is None:
            return None
        if sides.groups > 1 and (source.turned or source.matrix is not None):
            return None
        routed = sides.routed or source.names[0] in self.plan.routed
        if routed and bias:
            return None
        entries = sides.activations.shape[-1] * sides.gradients.shape[-1] // sides.groups
        # the product is not of the whole parameter
        if source.matrix is None and entries != source.leaves[0].numel():
            return None
        kind = lai.ExpertTrace if routed else lai.LayerTrace
        name = source.key.removesuffix(".weight")
        key = self._key(use, sides, source.key)
        options: dict[str, Any] = {"bias": bias, "weight": key, "groups": sides.groups, "name": name}
        return kind(sides.activations, sides.gradients, valid=self._mask(sides, routed), **options)

    def _mask(self, sides: Sides, routed: bool = False) -> Tensor | None:
        """Return the mask that belongs beside rows `(n, t, d)`; None where they have other positions."""
        rows = sides.activations
        if not self.valid or routed or rows.ndim != 3:
            return None
        return next((one.to(rows.device) for one in self.valid if one.shape[1] == rows.shape[1]), None)

    def _convolve(
        self, node: int, slot: int, place: Place, gradient: Tensor | None, **named: Any
    ) -> lai.ConvolutionTrace | None:
        """Return a convolution's record; None where its samples do not come first."""
        maps, edge = self.saved(self.graph.nodes[node], "input"), self.graph.edges[node][1]
        if slot != 1 or maps is None or edge is None or place != Axis(0, 1, 1, place.samples):
            return None
        kernel = tuple(self.graph.shape(edge)[2:])
        geometry = read_geometry(self.saved, self.graph.nodes[node], len(kernel))
        if geometry is None:
            return None
        return lai.ConvolutionTrace(self._raise(maps), gradient, kernel=kernel, **geometry, **named)

    def _record_table(self, use: Use, gradient: Tensor, place: Axis) -> Record | None:
        node, key = self.graph.nodes[use.node], use.source.key
        ids = self.saved(node, "indices")
        if ids is None or self.saved(node, "scale_grad_by_freq") or place.axis >= ids.ndim:
            return None
        padding = read_signed(self.saved(node, "padding_idx"))
        rows = self.saved(node, "weight_sym_argsize_0")
        front, outputs = (
            flatten_positions(place.move_to_front(one)) for one in (ids.unsqueeze(-1), gradient)
        )
        return lai.EmbeddingTrace(
            front.squeeze(-1), outputs, rows, padding=None if padding < 0 else padding, weight=key, name=key
        )

    def _build(self, name: str, parameter: Tensor) -> list[Record]:
        """Return the record of a parameter whose per-sample gradients are built."""
        samples = self.graph.samples
        needed = samples * parameter.numel() * parameter.element_size()
        if needed > GRADIENT_BUDGET:
            # the function is named that keeps the parameter from a record of its own
            used = self.plan.uses_by_name.get(name)
            function = "no known function"
            if used:
                function = name_function(self.graph.names[used[0].node])
            reason = f"{function}; its per-sample gradients take {needed} bytes of {GRADIENT_BUDGET}"
            self.plan.unexplained[name] = reason
            return []
        total = parameter.detach().new_zeros((samples, *parameter.shape))
        if name in self.plan.left:  # no node's formula splits it: each sample has a backward pass of its own
            for row, loss in zip(total, self.graph.losses, strict=True):
                (found,) = torch.autograd.grad(loss, [parameter], retain_graph=True, materialize_grads=True)
                row += densify(found).detach()
        else:
            for use in self.plan.uses_by_name.get(name, ()):
                total += split_use(self.graph, self.saved, use, self.received)[name]
        self.kinds[name]["operation"] = None
        self.explained[name] = [name]
        return [lai.GainTrace(None, view_real(total).reshape(samples, -1), weight=name, name=name)]

    def _build_experts(self, name: str, parameter: Tensor, pairs: list[tuple[Use, Record]]) -> list[Record]:
        """Return one record for each matrix of a parameter, of nothing where no row was routed to it."""
        keys = [name]
        if parameter.ndim == 3:  # a matrix for each expert
            keys = [f"{name}[{matrix}]" for matrix in range(len(parameter))]
        # of inputs and outputs, `(out, in)` where no row tells
        widths = parameter.shape[-1], parameter.shape[-2]
        if pairs:
            like: Any = pairs[0][1]
            widths = like.activations.shape[-1], like.output_gradients.shape[-1]
        self.kinds[name]["expert"] = None
        found: list[Record] = []
        for key in keys:
            own: list[Any] = [record for _, record in pairs if record.weight == key]
            if own:
                sides = _join_positions(own)
            else:
                sides = [parameter.detach().new_zeros(self.graph.samples, 1, width) for width in widths]
            self.explained[key] = [name]
            found.append(lai.ExpertTrace(sides[0], sides[1], weight=key, name=key))
        return found

    # ---- what LAI reads

    def build_last(self) -> list[Readout]:
        """Return the layers with the output gradients of the last one alone."""
        owned, _ = self._find_owned(self.plan.last_uses)
        by_node = {(use.node, use.slot): record for pairs in owned.values() for use, record in pairs}
        readouts = self.build_layers(by_node)
        layer, record = readouts[-1].layer, readouts[-1].record
        if type(record) is lai.ReadoutTrace and layer.source is not None:
            # LLI is of this use of a matrix alone, wherever else the matrix is used.
            named: dict[str, Any] = {"bias": record.bias, "name": record.name, "groups": 1}
            if self.graph.names[layer.node] == CONVOLUTION:
                named["groups"] = int(self.saved(self.graph.nodes[layer.node], "groups"))
            elif (read := self.read(layer.node, layer.slot, layer.place)) is not None:
                named["groups"] = read.groups
            sides = record.activations, record.output_gradients
            own = lai.LayerTrace(*sides, weight=layer.source.key, valid=record.valid, **named)
            readouts[-1] = Readout(layer, own, own=True)
        return readouts

    def build_layers(self, owned: Mapping[tuple[int, int], Record]) -> list[Readout]:
        """Return the layers that LAI sees, in order, the last one last."""
        plan = self.plan
        last = {layer.node for layer in plan.last}
        found = []
        for layer in plan.layers:
            if layer.source is not None and layer.node not in last:
                own = owned.get((layer.node, layer.slot))
                found.append(Readout(layer, own or self.read_out(layer), own is not None))
        if not plan.last:
            return found
        if len(plan.last) == 1:
            (layer,) = plan.last
            own = owned.get((layer.node, layer.slot))
            return [*found, Readout(layer, self._finish(layer, own), own is not None)]
        return [*found, self._join(owned)]

    def read_out(self, layer: Layer) -> Record:
        """Return a layer as LAI alone sees it."""
        node, name = self.graph.nodes[layer.node], self.graph.names[layer.node]
        options: dict[str, Any] = {"bias": layer.node in self.plan.biases, "name": layer.name}
        key, gradient = layer.source and layer.source.key, self.received.get((layer.node, 0))
        if name != CONVOLUTION:
            sides = self.read(layer.node, layer.slot, layer.place)
            if sides is not None:
                options["valid"] = self._mask(sides)
                if sides.gradients is None and key is not None:
                    return lai.LayerTrace(sides.activations, weight=key, **options)
                return lai.ReadoutTrace(sides.activations, sides.gradients, **options)
        elif layer.slot == 1 and isinstance(layer.place, Axis) and layer.place.axis == 0:
            # As the last layer its kernel is a matrix on patches.
            if gradient is None and key is not None and all(one.name != layer.name for one in self.plan.last):
                found = self._convolve(layer.node, 1, layer.place, None, weight=key, **options)
                if found is not None:
                    return found
            outputs = None if gradient is None else _flatten_pixels(gradient, layer.place)
            maps = _flatten_pixels(self.saved(node, "input"), layer.place)
            return lai.ReadoutTrace(maps, outputs, **options)
        msg = (
            f"layer {layer.name!r}: expected rows of the samples that LAI can read, got a "
            f"{name_function(name)}; use estimator 'ghost' or 'exact'"
        )
        raise ValueError(msg)

    def _finish(self, layer: Layer, own: Record | None) -> Record:
        """Return the record of the last layer."""
        gradient = self.received[layer.node, 0]
        assert gradient is not None
        convolved = self.graph.names[layer.node] == CONVOLUTION
        if layer.source is None:  # what is frozen is not read, but for the gradient that arrives
            assert isinstance(layer.place, Axis)
            first = layer.slot == PRODUCTS[self.graph.names[layer.node]].slots[0]
            if convolved:
                rows = _flatten_pixels(gradient, layer.place)
            else:
                rows = layer.place.move_to_front(gradient)
            if first and rows.ndim == 3 and layer.place.axis == 0:
                rows = rows.mT  # W @ h has features before positions
            if rows.ndim == 1:
                rows = rows.unsqueeze(-1)
            rows = flatten_positions(rows)
            return lai.ReadoutTrace(rows.new_zeros(*rows.shape[:-1], 1), rows, name=layer.name)
        if isinstance(own, lai.ConvolutionTrace):
            return own.unfolded()
        if own is not None:
            return own
        if not convolved:
            return self.read_out(layer)
        assert isinstance(layer.place, Axis)
        # every map is a sample to the convolution, of which several may be one sample's
        front = Axis(0, 1, 1, len(gradient))
        flat = self._convolve(layer.node, layer.slot, front, gradient)
        assert flat is not None  # see `check_readable`
        patches = flat.unfolded()
        both: list[Any] = [patches.activations, patches.output_gradients]
        rows, outputs = (flatten_positions(layer.place.move_to_front(one)) for one in both)
        return lai.ReadoutTrace(rows, outputs, bias=layer.node in self.plan.biases, name=layer.name)

    def _join(self, owned: Mapping[tuple[int, int], Record]) -> Readout:
        """Return several uses of the last matrix as one layer with the positions of all."""
        parts: list[Any] = [self._finish(one, owned.get((one.node, one.slot))) for one in self.plan.last]
        sides = _join_positions(parts)
        first = self.plan.last[0]
        ghosts: list[Any] = [owned[key] for one in self.plan.last if (key := (one.node, one.slot)) in owned]
        if len(ghosts) < len(parts):
            biased = first.node in self.plan.biases
            readout = lai.ReadoutTrace(sides[0], sides[1], bias=biased, name=first.name)
            return Readout(first, readout, own=False)
        options: dict[str, Any] = {"bias": ghosts[0].bias, "weight": ghosts[0].weight, "name": first.name}
        options["groups"] = ghosts[0].groups
        return Readout(first, lai.LayerTrace(sides[0], sides[1], **options), own=True)


_CALLED = {
    lai.LayerTrace: "dense",
    lai.ExpertTrace: "expert",
    lai.ConvolutionTrace: "convolution",
    lai.EmbeddingTrace: "embedding",
}
"""What coverage calls the kinds of records."""


def collect_gradients(graph: Graph, plan: Plan, *, every: bool) -> Received:
    """Return the gradients of the summed losses that the records need."""
    edges = plan.list_edges(every=every)
    arrived = graph.gradients(edges, torch.ones_like(graph.losses))
    received: Received = dict(zip(edges, arrived, strict=True))
    # a custom function may return none for one batch, and some for the next
    for edge in (edge for edge, gradient in received.items() if gradient is None):
        device = graph.losses.device
        received[edge] = torch.zeros(graph.shape(edge), dtype=graph.dtype(edge), device=device)
    return received


def _join_positions(records: list[Any]) -> list[Tensor]:
    sides = ([one.activations, one.output_gradients] for one in records)
    return [torch.cat(list(map(add_positions, side)), 1) for side in zip(*sides, strict=True)]


def _flatten_pixels(maps: Tensor, place: Axis) -> Tensor:
    """Return `(n, channels, *space)` as `(n, positions, channels)`."""
    return flatten_positions(place.move_to_front(torch.movedim(maps.flatten(2), 1, 2)))
