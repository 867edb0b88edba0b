"""A captured graph as a Python function: without the operations that do nothing, the others called directly.

Of a small layer a call takes longer than its numbers, and a graph makes hundreds of calls. So what only names
its input anew is left out, reshapes of reshapes are one, and operations that are methods of a tensor are
called as such: torch finds a method sooner than an operation by its name.
"""

import functools
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.fx.graph import CodeGen

from lai_torch._captured.graphs import RESHAPES

Values = list[Any]
_ATEN = torch.ops.aten
_SAME = {_ATEN.detach.default, _ATEN.alias.default}
"""What returns its input, where no gradient is recorded."""
_ORDERED = {*RESHAPES, _ATEN.expand.default, _ATEN.slice.Tensor}
"""What keeps entries in their order, so that of the same shape they are the same."""
_OPERATION = re.compile(r"torch\.ops\.\w+\.\w+\.\w+")
_TURNS = {_ATEN.t.default, _ATEN.transpose.int}
_METHODS = {
    _ATEN.add.Tensor: "add",
    _ATEN.addmm.default: "addmm",
    _ATEN.bmm.default: "bmm",
    _ATEN.clone.default: "clone",
    _ATEN.expand.default: "expand",
    _ATEN.mm.default: "mm",
    _ATEN.mul.Tensor: "mul",
    _ATEN.sum.dim_IntList: "sum",
    _ATEN.sym_size.int: "size",
    _ATEN.t.default: "t",
    _ATEN.transpose.int: "transpose",
    _ATEN.view.default: "view",
    _ATEN._unsafe_view.default: "view",
}
"""Operations that a method of their first argument is, argument by argument."""


def function_of(module: fx.GraphModule, also: Sequence[fx.Node] = ()) -> Callable[[Values], Any]:
    """Return a graph as a function of a list, which it empties: what it has used is freed.

    It is to be run where no gradient is recorded. With `also`, it returns the values of those nodes, too,
    behind what the graph returns.
    """
    env: dict[fx.Node, fx.Node] = {}
    graph = fx.Graph()
    found = graph.graph_copy(module.graph, env)
    graph.output((found, tuple(env[node] for node in also)) if also else found)
    _leave_out(graph)
    for node in graph.nodes:
        if node.op == "call_function" and node.target in _METHODS:
            node.op, node.target = "call_method", _METHODS[node.target]
    graph.set_codegen(_Boxed())
    return _written(graph, module)


def _leave_out(graph: fx.Graph) -> None:
    """Leave out what returns its input, and of two reshapes behind one another the first."""
    results = set(graph.output_node().all_input_nodes)
    for node in list(graph.nodes):
        if node.op != "call_function" or not node.args or not isinstance(node.args[0], fx.Node):
            continue
        source = node.args[0]
        # a result stays a tensor of its own, by which whoever gets it tells it from others
        if node not in results and (same := _equal(node, source)) is not None:
            node.replace_all_uses_with(same)
            graph.erase_node(node)
        elif node.target in RESHAPES and source.target in RESHAPES:
            # what can be reshaped twice without a copy can be so at once: both keep the entries in order
            node.replace_input_with(source, source.args[0])
        else:
            continue
        if not source.users and source.target in RESHAPES | _TURNS:
            graph.erase_node(source)


def _equal(node: fx.Node, source: fx.Node) -> fx.Node | None:
    """Return the node that has the same values, entry by entry; None if a node computes new ones."""
    if node.target in _SAME:
        return source
    if node.target in _ORDERED and _shape(node) == _shape(source):
        return source
    turned = node.target in _TURNS and source.target is node.target and source.args[1:] == node.args[1:]
    return source.args[0] if turned else None  # type: ignore[return-value]  # what is turned is a node


def _shape(node: fx.Node) -> list[Any]:
    """Return a shape by its expressions, whose comparison assumes nothing of the sizes."""
    lengths = node.meta["val"].shape
    return [length.node.expr if isinstance(length, torch.SymInt) else length for length in lengths]


def _written(graph: fx.Graph, module: fx.GraphModule) -> Callable[[Values], Any]:
    """Return the function that a graph's code defines, operations bound to what runs them."""
    code = graph.python_code("self")
    names = dict(code.globals)

    def direct(found: re.Match[str]) -> str:
        name = found.group().replace(".", "_")
        names[name] = operator.attrgetter(found.group().removeprefix("torch."))(torch)._op
        return name

    exec(_OPERATION.sub(direct, code.src), names)  # as torch.fx makes its modules' code
    return functools.partial(names["forward"], module)


class _Boxed(CodeGen):
    """Writes functions of one list of arguments, which they empty first."""

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str, **options: Any) -> str:
        """Write the head of the function."""
        names = [one.split(":")[0].split("=")[0].strip() for one in free_vars if one != "self"]
        taken = "".join(f"{name}, " for name in names)
        return f"def {self._func_name}(self, boxed):\n    {taken}= boxed\n    boxed.clear()"
