"""A captured forward and backward graph, and what they are made of once the parameters are known."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, fx
from torch.fx.graph import CodeGen

from lai_torch._captured.graphs import Layer, find_final_products, find_layers, results, tail
from lai_torch._captured.sample_axis import find_sized
from lai_torch._graph.places import Axis

_SWITCH = torch._C._set_grad_enabled
_ENTER = torch.autograd.grad_mode._enter_inference_mode
_EXIT = torch.autograd.grad_mode._exit_inference_mode
CUSTOM = "autograd_function_apply"
"""The operator that calls a `torch.autograd.Function`."""


def detach_without_gradients(module: fx.GraphModule) -> None:
    """Detach what is read in regions such as `torch.no_grad()`, which graphs of operators do not keep.

    Raises
    ------
    ValueError
        If such a region writes to a tensor that requires a gradient.
    """
    graph, enabled, before = module.graph, True, dict[Any, bool]()
    inputs = _placeholders(module)
    for node in list(graph.nodes):
        part = getattr(module, str(node.target), None) if node.op == "get_attr" else None
        # an autograd function's own forward pass, without gradients too, has a backward pass of its own
        if isinstance(part, fx.GraphModule) and all(str(one.target) != CUSTOM for one in node.users):
            detach_without_gradients(part)
        if node.target is _SWITCH:
            enabled = bool(node.args[0])
        elif node.target is _ENTER:
            before[node], enabled = enabled, enabled and not node.args[0]
        elif node.target is _EXIT:
            enabled = before[node.args[0]]
        elif node.op.startswith("call_") and not enabled:
            value, name = node.meta.get("example_value"), getattr(node.target, "__name__", str(node.target))
            given = [(one, one.meta.get("example_value")) for one in node.all_input_nodes]
            read = [one for one, kept in given if isinstance(kept, Tensor) and kept.requires_grad]
            itself = any(value is one.meta["example_value"] for one in read)
            if read and (value is None or (itself and (name.endswith("_") or name.startswith("i")))):
                msg = f"it writes, where gradients are off, to a tensor that requires one ({node.target})"
                raise ValueError(msg)
            if itself:  # `x.float()` may be x, with its gradient
                continue
            for one in read:
                with graph.inserting_after(inputs[-1] if one in inputs else one):
                    node.replace_input_with(one, graph.call_method("detach", (one,)))
    module.recompile()


Values = list[Any]
Found = TypeVar("Found")
MOST = 256
"""How many things are kept that follow from the graphs and sizes."""


class Pair:
    """A captured forward and backward graph."""

    def __init__(
        self,
        forward: fx.GraphModule,
        backward: fx.GraphModule,
        # how many of the forward's results go to the caller; it saves the others for the backward
        returned: int,
    ) -> None:
        self.forward, self.backward = forward, backward
        self.nodes = {node.name: node for node in forward.graph.nodes}
        self.inputs = _placeholders(forward)
        # what comes into the backward: what the forward saved, and at `tangents` gradients of the outputs
        self.placeholders = _placeholders(backward)
        self.names = [node.name for node in self.placeholders]
        self.tangents = [place for place, name in enumerate(self.names) if name.startswith("tangents")]
        self._results = results(forward.graph)
        self.outputs = [node for node in self._results[:returned] if isinstance(node, fx.Node)]
        self.sized = find_sized(forward.graph)
        self.parameters: dict[str, str] = {}  # their names, by graph input
        self.layers: dict[fx.Node, Layer] = {}  # in order
        # where each tensor holds samples, by the sizes that are not the batch's
        self.sample_axes: dict[Any, dict[fx.Node, list[Axis]]] = {}
        # of each layer, the last one last, what `SelectivePass` asks an eager trace; None until then
        self.own: list[tuple[Hashable, bool] | None] | None = None
        self.calls = 0  # how many batches were run
        self.told: dict[Any, Any] = {}  # what follows from the graphs and some sizes alone, by these
        self.run_backward: Callable[[Values], Any] = function_of(backward)
        self._run_forward: Callable[[Values], Any] | None = None
        self._names: list[str | None] = []
        self._valued: list[str] = []

    def memoise(self, find: Callable[..., Found], *given: Any) -> Found:
        key = find, given
        if key not in self.told:
            self.keep(key, find(self, *given))
        found: Found = self.told[key]
        return found

    def keep(self, key: Any, found: Any) -> None:
        """Keep what was found; of very many nothing but the latest."""
        if len(self.told) >= MOST:
            self.told.clear()
        self.told[key] = found

    def run(
        self, given: Values, parameters: Mapping[str, Tensor], batched: set[int]
    ) -> tuple[Any, dict[str, Any]]:
        """Run the forward graph; return its results, and by node what the backward and the trace need.

        `batched` says where in memory the model's inputs are.
        """
        known = {value.data_ptr(): name for name, value in parameters.items() if value.numel()}
        names = [known.get(one.data_ptr()) if isinstance(one, Tensor) else None for one in given]
        if self._run_forward is None or names != self._names:  # a module may have got another one's parameter
            self._analyse(given, known, batched)
            self._names, self.own = names, None
            self.told.clear()
        found, extra = self._run_forward([*given])  # type: ignore[misc]  # made by the lines above
        return found, dict(zip(self._valued, (*given, *extra, *found), strict=True))

    def _analyse(self, given: Values, known: Mapping[int, str], batched: set[int]) -> None:
        """Find the parameters among the inputs, the layers, and what is to be kept of a run."""
        tensors = {
            node: value.data_ptr()
            for node, value in zip(self.inputs, given, strict=True)
            if isinstance(value, Tensor)
        }
        self.parameters = {node.name: known[where] for node, where in tensors.items() if where in known}
        samples = [node for node, where in tensors.items() if where in batched and where not in known]
        graph = self.forward.graph
        self.layers = find_layers(graph, self.parameters, samples)
        final = find_final_products(self.outputs, self.layers)
        kept = dict.fromkeys([*(layer.inputs for layer in self.layers.values()), *final])
        for one in final:  # what is computed from it, should it be the last layer
            behind = dict.fromkeys(tail(graph, [one], self.outputs))
            read = (before for node in behind for before in node.all_input_nodes)
            kept |= dict.fromkeys(before for before in read if before not in behind)
        self._run_forward = function_of(self.forward, list(kept))
        self._valued = [getattr(one, "name", "") for one in (*self.inputs, *kept, *self._results)]


def coarsest(pair: Pair) -> float:
    """Return the machine epsilon of the coarsest type that the model computes in, not of its inputs."""
    values = (node.meta.get("val") for node in pair.forward.graph.nodes if node.op == "call_function")
    kinds = {value.dtype for value in values if isinstance(value, Tensor) and value.dtype.is_floating_point}
    return max((torch.finfo(kind).eps for kind in kinds), default=0.0)


def _placeholders(module: fx.GraphModule) -> list[fx.Node]:
    return [node for node in module.graph.nodes if node.op == "placeholder"]


def function_of(module: fx.GraphModule, also: Sequence[fx.Node] = ()) -> Callable[[Values], Any]:
    """Return a graph as a function of a list, which it empties: what it has used is freed.

    It is to be run where no gradient is recorded. With `also`, it returns the values of those nodes, too,
    behind what the graph returns.
    """
    env: dict[fx.Node, fx.Node] = {}
    graph = fx.Graph()
    found: Any = graph.graph_copy(module.graph, env)
    if also:
        found = found, tuple(env[node] for node in also)
    graph.output(found)
    graph.set_codegen(_Boxed())
    return fx.GraphModule(module, graph).forward


class _Boxed(CodeGen):
    """Writes functions of one list of arguments, which they empty first."""

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str, **options: Any) -> str:
        names = [one.split(":")[0].split("=")[0].strip() for one in free_vars if one != "self"]
        taken = "".join(f"{name}, " for name in names)
        return f"def {self._func_name}(self, boxed):\n    {taken}= boxed\n    boxed.clear()"
