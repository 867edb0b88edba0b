"""Whether this torch shows of a graph what the reader reads."""

from functools import cache

import torch
from torch.utils._python_dispatch import _disable_current_modes

from lai_torch._graph.saved import Saved
from lai_torch._graph.walk import run_node, walk

OLDEST = "2.6"
"""The oldest supported release of torch, which pyproject.toml requires too."""


@cache
def check_torch() -> None:
    """Raise unless a tiny graph of this torch can be read.

    The first reader asks, not the import: a backward pass starts threads, which a later fork would lose.

    Raises
    ------
    RuntimeError
        If this torch shows less of a graph than the reader reads.
    """
    # Whatever modes the caller is in: a graph is built, and nothing of it is cast, faked, or counted.
    with (
        _disable_current_modes(),
        torch.inference_mode(mode=False),
        torch.enable_grad(),
        torch.autocast("cpu", enabled=False),
    ):
        rows = torch.ones(2, 3, dtype=torch.float64, device="cpu")
        matrix = rows.mT.clone().requires_grad_()
        losses = (rows @ matrix).sum(1)
        ones, doubled = rows[:, :2], 2 * rows.mT
        step = "names of nodes"
        try:
            graph = walk(losses)
            product = graph.names.index("MmBackward0")
            node, edge = graph.nodes[product], graph.gradient_edge((product, 0))
            reads = {
                "shapes of gradients": (lambda: rows.new_ones(graph.shape((product, 0))), ones),
                "edges as inputs of autograd.grad": (
                    lambda: graph.gradients([(product, 0)], ones[0])[0],
                    ones,
                ),
                "edges as outputs of autograd.grad": (
                    lambda: torch.autograd.grad([edge], [matrix], [ones], retain_graph=True)[0],
                    doubled,
                ),
                "operands that a product saved": (lambda: Saved()(node, "self"), rows),
                "nodes that can be called": (lambda: run_node(node, {0: ones})[1], doubled),
            }
            for step, (read, expected) in reads.items():  # noqa: B007  # the message names it
                if not torch.equal(read(), expected):
                    raise ValueError(f"got {read()}")
        except Exception as error:  # whatever it is, it is about torch
            msg = f"torch: expected {OLDEST} or a later release, got {torch.__version__}, which lacks {step}"
            raise RuntimeError(msg) from error
