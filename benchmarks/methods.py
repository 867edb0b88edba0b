"""The training steps that are compared in torch: plain, curated, on sources, by hand, and by opacus."""

import copy
import functools
import gc
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from importlib.util import find_spec
from typing import Any

import lai_torch
import torch
from lai_torch._graph.record import Reader
from lai_torch._model.batch import count
from lai_torch.diagnose import Batch, diagnose_batches
from lai_torch.integrations.sources import Sources
from torch import Tensor
from torch._dynamo.utils import counters
from torch.nn.modules.batchnorm import _BatchNorm

import lai_core as lai
from benchmarks.hand import Hand
from benchmarks.models import HALF, Work, rows
from lai_core.mixtures import Mixture

CACHED = 10**9
PERIOD = 20
"""Steps between two updates of a mixture, as by default."""
Kind = torch.dtype | None
"""Of autocast."""


@dataclass
class Step:
    """A method's step, the bytes that it holds beside the model, and how many steps a call is."""

    run: Callable[[], Any]
    held: int = 0
    steps: int = 1


Build = Callable[[Work, torch.optim.Optimizer, Kind], Step]


def plain_step(work: Work, optimizer: torch.optim.Optimizer, kind: Kind = None, part: Any = None) -> None:
    """Train on the whole batch, or on a part of it."""
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(work.batch[1].device.type, kind or torch.bfloat16, enabled=kind is not None):
        losses = work.losses(*(part or work.batch))
    losses.mean().backward()
    optimizer.step()


def plain(work: Work, optimizer: torch.optim.Optimizer, kind: Kind) -> Step:
    """Train on the whole batch."""
    return Step(lambda: plain_step(work, optimizer, kind))


def half(work: Work, optimizer: torch.optim.Optimizer, kind: Kind) -> Step:
    """Train on half of it: what no step that keeps half can be quicker than."""
    part = rows(work.batch, slice(0, len(work.batch[1]) // 2))
    return Step(lambda: plain_step(work, optimizer, kind, part))


def diagnosed(work: Work, optimizer: torch.optim.Optimizer, kind: Kind) -> Step:
    """Train on the whole batch and diagnose it, with a reader that has proved the graph before."""
    reader = Reader(work.model, work.loss, every=True)

    def run() -> None:
        plain_step(work, optimizer, kind)
        diagnose_batches(reader, [Batch(work.batch)])

    return Step(run)


def diagnosed_first(work: Work, optimizer: torch.optim.Optimizer, kind: Kind) -> Step:
    """Train on the whole batch and diagnose it, knowing nothing of the model before."""

    def run() -> None:
        plain_step(work, optimizer, kind)
        lai_torch.diagnose(work.model, work.loss, *work.batch)

    return Step(run)


def curator(work: Work, optimizer: Any, estimator: Any, kind: Kind = None, **options: Any) -> Any:
    """Return a curator that keeps half; LAI reads positions as the work says."""
    if isinstance(estimator, lai_torch.LAI):
        estimator = replace(estimator, positions=work.positions)
    if kind is not None and not isinstance(estimator, lai_torch.Exact):
        estimator = replace(estimator, autocast=kind)
    if options.get("backward") == "kept":
        options["backward"] = lai_torch.KeptOptions(autocast=kind)
    given = work.model, work.loss, optimizer, work.validation
    return lai_torch.Curator(*given, estimator=estimator, **{"policy": HALF} | options)


def curated(estimator: Any, backward: str = "kept", refresh: int = CACHED) -> Build:
    """Return what makes a curator's step."""

    def build(work: Work, optimizer: torch.optim.Optimizer, kind: Kind) -> Step:
        made = curator(work, optimizer, estimator, kind, backward=backward, refresh=refresh)
        made.step(*work.batch)

        def run() -> None:
            # that others moved the parameters asks for no summary
            made.state = replace(made.state, versions=None)
            made.step(*work.batch)

        return Step(run, summary_bytes(made))

    return build


def mixture(work: Work, optimizer: torch.optim.Optimizer, kind: Kind) -> Step:
    """Return a period of steps that move a mixture of sources.

    Every second batch is scored, on the pass that it is trained on; then the mixture is moved and the next
    summary is made.
    """
    everything = functools.partial(lai.keep_top, fraction=1.0)
    policy = lai_torch.Scheduled(everything, lambda step: step % 2 == 0)
    options: dict[str, Any] = {"policy": policy, "refresh": PERIOD // 2, "backward": "whole"}
    made = curator(work, optimizer, lai_torch.LLI(), kind, **options)
    sources, groups = Sources(Mixture(4), PERIOD // 2), torch.arange(count(*work.batch)) % 4

    def period() -> None:
        made.state = replace(made.state, versions=None)
        for _ in range(PERIOD):
            report = made.step(*work.batch)
            if report.scores is not None:
                sources.add(report.scores, groups)

    period()
    return Step(period, summary_bytes(made), PERIOD)


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
        torch.compiler.cudagraph_mark_step_begin()
        step = build(replace(work, model=compiled), optimizer, kind)

        def replayed() -> None:
            torch.compiler.cudagraph_mark_step_begin()
            step.run()
            if counters["inductor"]["cudagraph_skips"] > skipped:
                msg = "CUDA graphs tried, and skipped by the compiler: TORCH_LOGS=perf_hints says why"
                raise NotImplementedError(msg)

        return Step(replayed, step.held)

    return built


def hand(work: Work, optimizer: torch.optim.Optimizer, kind: Kind) -> Step:
    """Take LAI's step as one would write it for one model, without a check of anything."""
    if kind is not None:
        msg = "written by hand in the model's own precision alone"
        raise NotImplementedError(msg)
    own = replace(work, model=copy.deepcopy(work.model))  # whose hooks slow no other method's calls down
    made = Hand(own, own.optimizer())
    return Step(made.step, bytes_in((made.total, made.offset)))


def peer(work: Work, optimizer: torch.optim.Optimizer, kind: Kind) -> Step:
    """Take Ghost's step by opacus' gradient of each sample."""
    if find_spec("opacus") is None:
        msg = "not installed: `make peers`"
        raise ModuleNotFoundError(msg)
    from benchmarks.peer_torch import Peer

    own = replace(work, model=copy.deepcopy(work.model))
    return Step(functools.partial(Peer(own).step, own.optimizer()))


def opacus(work: Work, optimizer: torch.optim.Optimizer, kind: Kind) -> Step:
    """Take that step where opacus takes the whole model."""
    if kind is not None or any(isinstance(module, _BatchNorm) for module in work.model.modules()):
        msg = "opacus takes no BatchNorm; in float32 alone"
        raise NotImplementedError(msg)
    return peer(work, optimizer, kind)


KEPT = curated(lai_torch.LAI())
SELECTIVE = curated(lai_torch.LAI(), "selective")


@dataclass
class Failure:
    """Why a method is not measured: refused by name, or failed; in one line, and where."""

    refused: bool
    line: str
    trace: str


def prepared(
    builds: Mapping[str, Build],
    work: Work,
    optimizer: torch.optim.Optimizer,
    counts: Callable[[Step], dict[str, Any]],
    kind: Kind = None,
) -> tuple[dict[str, Step], dict[str, dict[str, Any]], dict[str, Failure]]:
    """Return the methods' steps, what a user pays once paid, and their counts; of the others, why not."""
    steps, found, failures = {}, {}, {}
    for name, build in builds.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                step = build(work, optimizer, kind)
                for _ in range(2):  # the first steps prove and capture
                    step.run()
                # Counting may make another graph of attention. A graph is proved at its calls 1, 2, 4, ...:
                # of three steps in a row one at least proves nothing.
                found[name] = min((counts(step) for _ in range(3)), key=lambda row: float(row["flops"]))
        except (ValueError, RuntimeError, ModuleNotFoundError) as error:
            refused = not isinstance(error, RuntimeError) or isinstance(error, NotImplementedError)
            line = str(error).splitlines()[0]
            line = line if refused else f"{type(error).__name__}: {line}"
            failures[name] = Failure(refused, line, traceback.format_exc())
        else:
            steps[name] = step
        gc.collect()
    return steps, found, failures


def bytes_of(work: Work, optimizer: torch.optim.Optimizer) -> int:
    """Return what lives before a step: parameters, their gradients, buffers, optimizer state, the batch."""
    parameters = list(work.model.parameters())
    state = [optimizer.state[p] for p in parameters]
    held = (*parameters, *parameters, *work.model.buffers(), state, work.batch)
    return bytes_in(held)


def summary_bytes(made: Any) -> int:
    """Return the bytes of the validation summary that a curator goes on with."""
    return bytes_in(made.state.side)


def bytes_in(tree: Any) -> int:
    """Return the bytes of the tensors in nested containers and dataclasses."""
    if isinstance(tree, Tensor):
        return tree.numel() * tree.element_size()
    if is_dataclass(tree):
        return sum(bytes_in(getattr(tree, field.name)) for field in fields(tree))
    leaves = tree.values() if isinstance(tree, dict) else tree
    return sum(map(bytes_in, leaves)) if isinstance(tree, list | tuple | dict) else 0
