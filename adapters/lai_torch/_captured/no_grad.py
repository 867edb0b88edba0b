"""Regions of a captured graph in which gradients are off, written as detached values."""

import operator
from typing import Any

import torch
from torch import Tensor, fx

_SWITCH = torch._C._set_grad_enabled
_ENTER = torch.autograd.grad_mode._enter_inference_mode
_EXIT = torch.autograd.grad_mode._exit_inference_mode
CUSTOM = "autograd_function_apply"
"""The operator that calls a `torch.autograd.Function`."""
_OPERATORS = {
    operator.setitem,
    operator.iadd,
    operator.isub,
    operator.imul,
    operator.itruediv,
    operator.ifloordiv,
    operator.imod,
    operator.ipow,
    operator.iand,
    operator.ior,
    operator.ixor,
}
"""Operators that write to their first operand."""


def detach_without_gradients(module: fx.GraphModule) -> None:
    """Detach what is read in regions such as `torch.no_grad()`, which graphs of operators do not keep.

    Raises
    ------
    ValueError
        If such a region writes to a tensor that requires a gradient.
    """
    for node in module.graph.nodes:
        part = getattr(module, str(node.target), None) if node.op == "get_attr" else None
        # an autograd function's own forward pass, without gradients too, has a backward pass of its own
        if isinstance(part, fx.GraphModule) and all(str(one.target) != CUSTOM for one in node.users):
            detach_without_gradients(part)
    _detach(module.graph)
    module.recompile()


def _detach(graph: fx.Graph) -> None:
    # All that such a region reads is detached, not what it returns: then what it writes to a buffer has no
    # gradient either, by whatever name the buffer is read later.
    inside = _without_gradients(graph)
    detached: dict[fx.Node, fx.Node] = {}
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    for node in inside:
        for one in node.all_input_nodes:
            if one not in inside and one not in detached and _is_floating(one):
                with graph.inserting_after(inputs[-1] if one in inputs else one):
                    detached[one] = graph.call_method("detach", (one,))
        for one in node.all_input_nodes:
            if one in detached:
                node.replace_input_with(one, detached[one])


def _without_gradients(graph: fx.Graph) -> dict[fx.Node, None]:
    """Return the nodes that compute where gradients are off, in order."""
    found: dict[fx.Node, None] = {}
    enabled, before = True, dict[Any, bool]()
    for node in graph.nodes:
        if node.target is _SWITCH:
            enabled = bool(node.args[0])
        elif node.target is _ENTER:
            before[node], enabled = enabled, enabled and not node.args[0]
        elif node.target is _EXIT:
            enabled = before[node.args[0]]
        elif node.op.startswith("call_") and not enabled:
            written = _written(node)
            if written is not None and written.meta["example_value"].requires_grad:
                msg = f"it writes, where gradients are off, to a tensor that requires one ({node.target})"
                raise ValueError(msg)
            if written is not None or not _is_an_input(node):
                found[node] = None
    return found


def _written(node: fx.Node) -> Any:
    """Return the tensor that a node writes to in place; None if it writes to none."""
    name = getattr(node.target, "__name__", str(node.target))
    in_place = node.target in _OPERATORS
    if in_place or (name.endswith("_") and not name.endswith("__")):
        return node.args[0]
    return node.kwargs.get("out")


def _is_floating(node: fx.Node) -> bool:
    value = node.meta.get("example_value")
    return isinstance(value, Tensor) and value.is_floating_point()


def _is_an_input(node: fx.Node) -> bool:
    """Whether a node returns one of its inputs itself, as `x.float()` may: that keeps its gradient."""
    value = node.meta.get("example_value")
    return isinstance(value, Tensor) and any(
        value is one.meta.get("example_value") for one in node.all_input_nodes
    )
