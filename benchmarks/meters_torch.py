"""The ruler of the torch benchmarks: operations, seconds and peak bytes of one step.

Operations: `torch.utils.flop_counter` (products and convolutions). Peak bytes: a dispatch mode that
follows every storage an operation makes until it is freed, plus what lives before the step.
"""

import functools
import statistics
import time
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakIdKeyDictionary

import lai_core as lai
from benchmarks.models import Work
from workloads.operations import Operations

HALF = functools.partial(lai.keep_top, fraction=0.5)


class PeakBytes(TorchDispatchMode):
    """Follows every storage that an operation makes, until it is freed."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._known: Any = WeakIdKeyDictionary()

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Let captured graphs run under it: it changes nothing."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run `func` and count what it made."""
        given = {id(leaf.untyped_storage()) for leaf in _tensors((args, kwargs or {}))}
        out = func(*args, **(kwargs or {}))
        for leaf in _tensors(out):
            storage = leaf.untyped_storage()
            if id(storage) in given or storage in self._known:
                continue
            size = storage.nbytes()
            self._known[storage] = size
            weakref.finalize(storage, self._freed, size)
            self.live += size
            self.peak = max(self.peak, self.live)
        return out

    def _freed(self, size: int) -> None:
        self.live -= size


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]


def bytes_of(work: Work, optimizer: torch.optim.Optimizer) -> int:
    """Return what lives before a step: parameters, their gradients, buffers, optimizer state, the batch."""
    parameters = list(work.model.parameters())
    state = _tensors([optimizer.state[p] for p in parameters])
    held = [*parameters, *parameters, *work.model.buffers(), *state, *_tensors(work.batch)]
    return sum(tensor.numel() * tensor.element_size() for tensor in held)


def plain_step(work: Work, optimizer: torch.optim.Optimizer) -> None:
    """Train on the whole batch."""
    optimizer.zero_grad(set_to_none=True)
    work.losses(*work.batch).mean().backward()
    optimizer.step()


def forward(work: Work) -> None:
    """Run the model once on the batch."""
    with torch.no_grad():
        work.losses(*work.batch)


def measure(work: Work, run: Callable[[], Any], optimizer: torch.optim.Optimizer) -> dict[str, float]:
    """Return operations, seconds and peak bytes of one step, after two that find out what later ones use."""
    run()
    run()
    tracker = PeakBytes()
    with Operations() as counter, tracker:
        run()
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    memory = bytes_of(work, optimizer) + tracker.peak
    return {"flops": counter.total, "seconds": statistics.median(seconds), "memory": memory}
