"""Tensors and numbers that a node kept for its backward pass."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch.utils.checkpoint
from torch import Tensor

from lai_torch._graph.walk import Node


class Saved:
    """Reads what nodes kept, each tensor once, because checkpointing hands each out only once."""

    def __init__(self) -> None:
        self._read: dict[tuple[Node, str], Any] = {}
        group = getattr(torch.utils.checkpoint, "GraphExecGroup", nullcontext)
        # Within one group a checkpointed region is computed again once, however many of its tensors are read.
        self._reading: AbstractContextManager[Any] = group()

    def __call__(self, node: Node, name: str) -> Any:
        """Return `node._saved_<name>`; None where the node kept nothing of this name."""
        key = (node, name)
        if key not in self._read:
            with self._reading:
                value = getattr(node, "_saved_" + name, None)
            self._read[key] = value.detach() if isinstance(value, Tensor) else value
        return self._read[key]


def read_signed(number: int) -> int:
    """Return a saved integer as it was given: a node keeps a negative one without its sign."""
    return number - 2**64 if number >= 2**63 else number
