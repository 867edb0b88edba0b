"""A model's forward pass as one graph of torch's functions, which runs without the model's own Python.

Comparing each call of a pass with those of its plan takes longer than the calls of a small layer. What
`torch.compile` reads of a model is the list of its calls; its guards say of which model, inputs and state of
the interpreter that list is right, and are checked sooner. So a graph is recorded call by call once. From
then on only guards and parameters are compared: up to the last layer it runs unwatched and hands each
layer's input over, and behind it the recorder watches as ever.
"""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._ops import HigherOrderOperator
from torch.overrides import _pop_mode_temporarily

from lai_torch._model.batch import call
from lai_torch._model.compiled import first_line, naming, own_code, weakly
from lai_torch._model.preserve import preserved
from lai_torch._recording.watching.templates import Template

_SAME = re.compile("contiguous|to|type|float|double|half|bfloat16|(alpha_|feature_)?dropout[1-3]?d?")
"""Functions that return what they are given where there is nothing to do, whatever the numbers."""
EXPECTED = "captured: expected a model that compiles in one graph, this one does not ({}); leave captured out"


class Forward:
    """A model's call, as the graph that `torch.compile` reads of it.

    Parameters
    ----------
    model
        The model.
    """

    def __init__(self, model: nn.Module) -> None:
        def forward(inputs: Any) -> Any:
            return call(model, inputs)

        self._model, self._recorder = model, None
        self._graph: Graph | None = None
        options: dict[str, Any] = {"backend": weakly(self._read), "fullgraph": True, "dynamic": False}
        self._compiled = torch.compile(own_code(forward), **options)

    def captured(self, recorder: Any, inputs: Any) -> Any:
        """Read the graph, and run it with every call watched.

        Raises
        ------
        ValueError
            If the model does not compile in one graph.
        """
        # a hook that a module gets later is one of the things that it was captured with
        with (
            naming(EXPECTED, functools.partial(self._eagerly, inputs), first_line),
            torch._dynamo.config.patch(skip_nnmodule_hook_guards=False),
            torch.compiler.set_stance("default"),
        ):
            return self._run(recorder, inputs)

    def again(self, recorder: Any, inputs: Any) -> Any:
        """Run the graph by the recorder's plan.

        Raises
        ------
        RuntimeError
            If the guards do not hold.
        """
        with torch.compiler.set_stance("fail_on_recompile"):
            return self._run(recorder, inputs)

    def _run(self, recorder: Any, inputs: Any) -> Any:
        self._recorder = recorder
        try:
            with _pop_mode_temporarily():  # the compiler reads what the model does, not what watches it
                return self._compiled(inputs)
        finally:
            self._recorder = None

    def _eagerly(self, inputs: Any) -> None:
        with preserved(self._model), torch.no_grad():
            call(self._model, inputs)

    def _read(self, module: fx.GraphModule, example: Any) -> Callable[..., Any]:
        """Take a graph that the compiler has read."""
        for node in module.graph.nodes:
            if node.op == "call_module" or isinstance(node.target, HigherOrderOperator):
                msg = f"{node.target} holds a graph of its own"
                raise NotImplementedError(msg)
            if _is_symbolic(node.meta.get("example_value")):
                msg = f"{_name(node)} makes a number, or a size, of values: no guard sees what it is"
                raise NotImplementedError(msg)
        self._graph = Graph(module)
        return weakly(self._by_graph)

    def _by_graph(self, *given: Any) -> Any:
        assert self._graph is not None  # it was read before it runs
        return self._graph(self._recorder, given)


class Graph:
    """A graph, and where in a pass its calls are.

    Parameters
    ----------
    module
        As `torch.compile` hands it to a back end.

    Attributes
    ----------
    places
        Of each node, between which places of a pass its calls are.
    same
        The nodes that return what they are given.
    """

    def __init__(self, module: fx.GraphModule) -> None:
        self.module = module
        self.places: dict[fx.Node, tuple[int, int]] = {}
        self.same: set[fx.Node] = set()
        self._names: list[str | None] = []
        self._parts: tuple[Callable[..., Any], Callable[..., Any], int] | None = None

    def __call__(self, recorder: Any, given: Sequence[Any]) -> Any:
        """Run the graph by the recorder's plan, or, where there is none yet, with every call watched."""
        calls = recorder.calls
        names = [calls.names.get(id(one)) for one in given]
        if calls.plan is None or names != self._names:
            self._names = names
            with recorder:
                return _Watched(self, calls).run(*given)
        if self._parts is None:
            self._parts = self._cut(calls.plan.layers)
        unwatched, watched, place = self._parts
        live = unwatched(recorder, *given)
        calls.place = place - 1  # where the call before is
        with recorder:
            return watched(*live)

    def _cut(
        self, layers: Mapping[int, Template | None]
    ) -> tuple[Callable[..., Any], Callable[..., Any], int]:
        """Return the graph up to the first layer without a template, the rest, and at which place that is.

        The first part takes a recorder, too, and hands layers' inputs over to it.
        """
        nodes, taps = list(self.module.graph.nodes), {}
        for node in nodes:
            first, end = self.places[node]
            if layers.keys().isdisjoint(range(first, end)):
                continue
            template = layers[first] if end == first + 1 else None
            if template is None:
                break
            taps[node] = node.args[template.place]
        cut = nodes.index(node)
        read = {one for after in nodes[cut:] for one in after.all_input_nodes}
        live = [before for before in nodes[:cut] if before in read]
        return (
            self._unwatched(nodes[:cut], taps, live),
            self._watched(nodes[cut:], live),
            self.places[node][0],
        )

    def _unwatched(
        self, nodes: Sequence[fx.Node], taps: Mapping[fx.Node, Any], live: Sequence[fx.Node]
    ) -> Callable[..., Any]:
        graph = fx.Graph()
        recorder = graph.placeholder("recorder")
        known: dict[fx.Node, Any] = {}
        for node in nodes:
            if node in taps:  # before it is called: later it may be written to
                graph.call_function(_hand_over, (recorder, self.places[node][0], known[taps[node]]))
            same = node in self.same
            known[node] = known[node.args[0]] if same else graph.node_copy(node, known.__getitem__)  # type: ignore[index]
        graph.output(tuple(known[node] for node in live))
        return self._function(graph)

    def _watched(self, nodes: Sequence[fx.Node], live: Sequence[fx.Node]) -> Callable[..., Any]:
        graph = fx.Graph()
        known = {node: graph.placeholder(node.name) for node in live}
        for node in nodes:
            known[node] = graph.node_copy(node, known.__getitem__)
        return self._function(graph)

    def _function(self, graph: fx.Graph) -> Callable[..., Any]:
        run: Callable[..., Any] = fx.GraphModule(self.module, graph).forward
        return run


def _hand_over(recorder: Any, place: int, inputs: Tensor) -> None:
    """Let a recorder keep what it keeps of a layer's input."""
    template = recorder.calls.plan.layers[place]
    recorder.uses.append(template.made_of(inputs, recorder.valid))


class _Watched(fx.Interpreter):
    """Runs a graph call by call, and notes at which places of a pass those of each node are."""

    def __init__(self, graph: Graph, calls: Any) -> None:
        super().__init__(graph.module)
        self._graph, self._calls = graph, calls

    def run_node(self, node: fx.Node) -> Any:
        """Run one node."""
        before = self._calls.place + 1
        found = super().run_node(node)
        self._graph.places[node] = before, self._calls.place + 1
        if _SAME.fullmatch(_name(node)) and node.args and isinstance(source := node.args[0], fx.Node):
            same = found is self.env.get(source)
            (self._graph.same.add if same else self._graph.same.discard)(node)
        return found


def _is_symbolic(value: Any) -> bool:
    """Whether something of a graph is a number, or has a size, that is not known when it is read."""
    if isinstance(value, Tensor):
        return any(isinstance(size, torch.SymInt) for size in value.shape)
    if isinstance(value, tuple | list):
        return any(map(_is_symbolic, value))
    return isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool)


def _name(node: fx.Node) -> str:
    """Return the name of the function that a node calls."""
    return str(getattr(node.target, "__name__", node.target))
