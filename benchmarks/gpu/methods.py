"""The steps that are compared: plain, curated, and by opacus."""

import copy
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import lai_torch
import torch
from torch._dynamo.utils import counters
from torch.nn.modules.batchnorm import _BatchNorm

from benchmarks.meters_torch import HALF
from benchmarks.models import Work, rows
from benchmarks.seconds.hand import Hand
from benchmarks.seconds.torch_steps import CACHED

Step = Callable[[], Any]
Kind = torch.dtype | None
Build = Callable[[Work, torch.optim.Optimizer, Kind], Step]


def plain(work: Work, optimizer: torch.optim.Optimizer, kind: Kind) -> Step:
    """Train on the whole batch."""
    return lambda: _train(work, work.batch, optimizer, kind)


def half(work: Work, optimizer: torch.optim.Optimizer, kind: Kind) -> Step:
    """Train on half of it: what no step that keeps half can be quicker than."""
    part = rows(work.batch, slice(0, len(work.batch[1]) // 2))
    return lambda: _train(work, part, optimizer, kind)


def _train(work: Work, part: Any, optimizer: torch.optim.Optimizer, kind: Kind) -> None:
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(work.batch[1].device.type, kind or torch.bfloat16, enabled=kind is not None):
        losses = work.losses(*part)
    losses.mean().backward()
    optimizer.step()


def curated(name: str, backward: str = "kept", refresh: int = CACHED) -> Build:
    """Return what makes a step of a curator that keeps half."""

    def build(work: Work, optimizer: torch.optim.Optimizer, kind: Kind) -> Step:
        options: dict[str, Any] = {"positions": work.positions} if name == "lai" else {}
        if name != "exact":
            options["autocast"] = kind
        made = {"lai": lai_torch.LAI, "ghost": lai_torch.Ghost, "exact": lai_torch.Exact}[name]
        curator = lai_torch.Curator(
            work.model,
            work.loss,
            optimizer,
            work.validation,
            estimator=made(**options),
            policy=HALF,
            refresh=refresh,
            backward=lai_torch.Kept(autocast=kind) if backward == "kept" else backward,
        )
        return lambda: curator.step(*work.batch)

    return build


def graphed(build: Build) -> Build:
    """Return a method on the compiled model, whose training pass is replayed as CUDA graphs.

    A step that keeps half of every batch trains on one shape, which one graph holds; scoring runs as it is.
    """

    def built(work: Work, optimizer: torch.optim.Optimizer, kind: Kind) -> Step:
        if work.batch[1].device.type != "cuda":
            msg = "CUDA graphs not tried: there is no GPU"
            raise NotImplementedError(msg)
        skipped = counters["inductor"]["cudagraph_skips"]
        compiled: Any = torch.compile(work.model, mode="reduce-overhead", dynamic=False)
        step = build(replace(work, model=compiled), optimizer, kind)

        def replayed() -> None:
            torch.compiler.cudagraph_mark_step_begin()
            step()
            if counters["inductor"]["cudagraph_skips"] > skipped:
                msg = "CUDA graphs tried, and skipped by the compiler: TORCH_LOGS=perf_hints says why"
                raise NotImplementedError(msg)

        return replayed

    return built


def hand(work: Work, optimizer: torch.optim.Optimizer, kind: Kind) -> Step:
    """Take LAI's step as one would write it for one model, without a check of anything."""
    if kind is not None:
        msg = "written by hand in the model's own precision alone"
        raise NotImplementedError(msg)
    own = replace(work, model=copy.deepcopy(work.model))  # whose hooks slow no other method's calls down
    return Hand(own, own.optimizer()).step


def opacus(work: Work, optimizer: torch.optim.Optimizer, kind: Kind) -> Step:
    """Take Ghost's step by opacus' gradient of each sample."""
    if find_spec("opacus") is None:
        msg = "not installed: `make peers`"
        raise ModuleNotFoundError(msg)
    if kind is not None or any(isinstance(module, _BatchNorm) for module in work.model.modules()):
        msg = "opacus takes no BatchNorm; in float32 alone"
        raise NotImplementedError(msg)
    from benchmarks.peer_torch import Peer

    own = replace(work, model=copy.deepcopy(work.model))
    peer, own_optimizer = Peer(own), own.optimizer()
    return lambda: peer.step(own_optimizer)


METHODS: dict[str, Build] = {
    "plain": plain,
    "plain on half": half,
    "LAI, kept": curated("lai"),
    "LAI, selective": curated("lai", "selective"),
    "LAI, fresh summary": curated("lai", refresh=1),
    "Ghost": curated("ghost"),
    "Ghost, fresh": curated("ghost", refresh=1),
    "exact": curated("exact"),
    "plain, CUDA graphs": graphed(plain),
    "LAI, kept, CUDA graphs": graphed(curated("lai")),
    "by hand": hand,
    "opacus, fresh": opacus,
}
