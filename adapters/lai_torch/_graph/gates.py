"""The gates of a chain: what each layer's output is multiplied by on its way into the next layer.

The input of layer l + 1 is a function of the output s of layer l. Where that function works entry by entry,
its Jacobian is the diagonal of the gates phi'(s), which one product with ones reads off. A second product,
with powers of two, is then those powers times the gates, bit for bit: a float times a power of two is not
rounded. Two entries that mix, by however little, show wherever their powers differ.
"""

from collections.abc import Iterable
from itertools import pairwise

import torch
from torch import Tensor

from lai_core._adapters import make_chain_error
from lai_core.estimators.gates import GateTrace, squared_column_norms
from lai_torch._graph.layers import Layer
from lai_torch._graph.places import Axis
from lai_torch._graph.products import CONVOLUTION, PRODUCTS
from lai_torch._graph.record import Recording
from lai_torch._graph.saved import Saved
from lai_torch._graph.walk import Edge, Graph
from lai_torch._model.precision import differ


def read_gates(recording: Recording) -> GateTrace:
    """Return the trace of a recorded batch, its gates, and the column norms of its weights.

    Raises
    ------
    ValueError
        If the layers are no chain.
    """
    graph, saved, samples = recording.graph, Saved(), len(recording.losses)
    layers = [one.layer for one in recording.readouts]
    if layers[-1].source is None:  # of which no input is recorded, to which the gates before it belong
        raise make_chain_error(layers[-1].name, "goes into weights that do not train")
    for readout in recording.readouts:
        layer, activations = readout.layer, getattr(readout.record, "activations", None)
        # its input is a map, of which a chain of rows has none
        if graph.names[layer.node] == CONVOLUTION:
            raise make_chain_error(layer.name, "goes into a convolution")
        if not isinstance(activations, Tensor) or activations.ndim != 2 or not isinstance(layer.place, Axis):
            shape = None if activations is None else tuple(activations.shape)
            raise make_chain_error(layer.name, f"has shape {shape}, not ({layer.place.samples}, d)")
    gates = tuple(_read_gate(graph, layers, *pair)[:samples] for pair in pairwise(layers))
    norms = []
    for layer in layers[1:]:
        product = PRODUCTS[graph.names[layer.node]]
        place = product.slots.index(layer.slot)
        matrix = saved(graph.nodes[layer.node], product.saved[place])
        # `(d_out, d_in)`, as the layer uses it
        if place > 0 and not product.natural:
            matrix = matrix.mT
        norms.append(squared_column_norms(matrix))
    return GateTrace(recording.trace, gates, tuple(norms))


def _read_gate(graph: Graph, layers: list[Layer], before: Layer, layer: Layer) -> Tensor:
    """Return the gates between two layers, `(n, d)`."""
    slots = PRODUCTS[graph.names[layer.node]].slots
    # the other argument of the product: the layer's input
    edge = graph.edges[layer.node][slots[1 - slots.index(layer.slot)]]
    stops = {one.node for one in layers}
    # gates are those between two layers, with no other one on the way
    if edge is None or stops.intersection(graph.reach(edge[0], stops)) != {before.node}:
        raise make_chain_error(layer.name, f"does not come from the output of layer {before.name!r} alone")
    ones = torch.ones(graph.shape(edge), dtype=graph.dtype(edge), device=graph.losses.device)
    dtypes = {graph.dtype(one) for one in graph.list_received()}
    powers = _draw_powers(ones, dtypes)
    gates, scaled = (_multiply(graph, edge, before, factor) for factor in (ones, powers))
    underflow = max(torch.finfo(dtype).tiny for dtype in dtypes)
    # powers of two go through an entrywise function to the bit
    if gates.shape != ones.shape or differ(scaled, powers * gates, underflow * powers):
        raise make_chain_error(layer.name, f"mixes entries of the output of layer {before.name!r}")
    return gates


def _draw_powers(like: Tensor, dtypes: Iterable[torch.dtype]) -> Tensor:
    """Return a power of two per entry of `like`, in no order and the same ones at every call.

    A float times one is not rounded, so that what is linear in its weights shows it bit for bit in
    every type. Along an axis, every 64 entries in a row have different ones, every 8 where the model
    computes in float16, which holds no more beside a gradient; `dtypes` are the types it computes in.
    """
    levels = 8 if torch.float16 in dtypes else 64
    generator = torch.Generator().manual_seed(0)
    exponents = torch.zeros((), dtype=torch.int64, device=like.device)
    for length in like.shape:
        orders = torch.rand(-(-length // levels), levels, generator=generator, device="cpu").argsort(1)
        exponents = (exponents.unsqueeze(-1) + orders.flatten()[:length].to(like.device)) & (levels - 1)
    powers = torch.tensor([2.0**level for level in range(levels)], dtype=like.dtype, device=like.device)
    return powers[exponents]


def _multiply(graph: Graph, edge: Edge, before: Layer, factor: Tensor) -> Tensor:
    """Return the product of a factor and the Jacobian between two layers."""
    ends = [graph.gradient_edge(edge)], [graph.gradient_edge((before.node, 0))]
    (found,) = torch.autograd.grad(*ends, [factor], retain_graph=True, allow_unused=True)
    return torch.zeros_like(factor) if found is None else found.detach()
