"""The training steps that are compared in torch: plain, curated, diagnosed, and by hand."""

import copy
import gc
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import lai_torch
import torch
from lai_torch._graph.record import Reader
from lai_torch.diagnose import Batch, diagnose_batches
from torch import Tensor

from benchmarks.hand import Hand
from benchmarks.models import HALF, Work
from tests.support.workloads.counts import counted
from tests.support.workloads.torch_oracle import rows

CACHED = 10**9


@dataclass
class Step:
    """A method's step, and the bytes that it holds beside the model."""

    run: Callable[[], Any]
    held: int = 0


Build = Callable[[Work, torch.optim.Optimizer], Step]


def plain_step(work: Work, optimizer: torch.optim.Optimizer, part: Any = None) -> None:
    """Train on the whole batch, or on a part of it."""
    optimizer.zero_grad(set_to_none=True)
    work.losses(*(part or work.batch)).mean().backward()
    optimizer.step()


def plain(work: Work, optimizer: torch.optim.Optimizer) -> Step:
    return Step(lambda: plain_step(work, optimizer))


def half(work: Work, optimizer: torch.optim.Optimizer) -> Step:
    """Train on half of it: what no step that keeps half can be quicker than."""
    samples = len(work.batch[1])
    part = rows(work.batch, slice(0, samples // 2), samples)
    return Step(lambda: plain_step(work, optimizer, part))


def diagnosed(work: Work, optimizer: torch.optim.Optimizer) -> Step:
    """Train on the whole batch and diagnose it, with a reader that has proved the graph before."""
    reader = Reader(work.model, work.loss, every=True)

    def run() -> None:
        plain_step(work, optimizer)
        diagnose_batches(reader, [Batch(work.batch)])

    return Step(run)


def diagnosed_first(work: Work, optimizer: torch.optim.Optimizer) -> Step:
    """Train on the whole batch and diagnose it, knowing nothing of the model before."""

    def run() -> None:
        plain_step(work, optimizer)
        lai_torch.diagnose(work.model, work.loss, *work.batch)

    return Step(run)


def curator(work: Work, optimizer: Any, estimator: Any, **options: Any) -> Any:
    """Return a curator that keeps half; LAI reads positions as the work says."""
    if isinstance(estimator, lai_torch.LAI):
        estimator = replace(estimator, positions=work.positions)
    given = work.model, work.loss, optimizer, work.validation
    return lai_torch.Curator(*given, estimator=estimator, policy=HALF, **options)


def curated(estimator: Any, backward: str = "kept", refresh: int = CACHED) -> Build:
    """Return what makes a curator's step."""

    def build(work: Work, optimizer: torch.optim.Optimizer) -> Step:
        made = curator(work, optimizer, estimator, backward=backward, refresh=refresh)
        made.step(*work.batch)

        def run() -> None:
            # that others moved the parameters asks for no summary
            made.state = replace(made.state, versions=None)
            made.step(*work.batch)

        return Step(run, bytes_in(made.state.side))

    return build


def hand(work: Work, optimizer: torch.optim.Optimizer) -> Step:
    """Take LAI's step as one would write it for one model, without a check of anything."""
    own = replace(work, model=copy.deepcopy(work.model))  # whose hooks slow no other method's calls down
    made = Hand(own, own.optimizer())
    return Step(made.step, bytes_in((made.total, made.offset)))


KEPT = curated(lai_torch.LAI())
SELECTIVE = curated(lai_torch.LAI(), "selective")


def prepared(builds: Mapping[str, Build], work: Work) -> tuple[dict[str, Step], dict[str, dict[str, float]]]:
    """Return the steps of the methods that take the model, what a user pays once paid, and their counts."""
    steps, found, optimizer = {}, {}, work.optimizer()
    for name, build in builds.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                step = build(work, optimizer)
                for _ in range(2):  # the first steps prove and capture
                    step.run()
                # Counting may make another graph of attention. A graph is proved at its calls 1, 2, 4, ...:
                # of three steps in a row one at least proves nothing.
                found[name] = min((count(work, step) for _ in range(3)), key=lambda row: row["flops"])
        except (ValueError, NotImplementedError):  # refused: the table has no such row
            continue
        steps[name] = step
        gc.collect()
    return steps, found


def count(work: Work, step: Step) -> dict[str, float]:
    """Count what does not depend on the clock, of one step; memory also holds what lives before it."""
    done, parameters = counted(step.run), list(work.model.parameters())
    before = bytes_in((*parameters, *parameters, *work.model.buffers(), work.batch))  # with gradients
    found = {key: getattr(done, key) for key in ("flops", "waits", "launches")}
    return found | {"memory": before + step.held + done.peak}


def bytes_in(tree: Any) -> int:
    """Return the bytes of the tensors in nested containers and dataclasses."""
    if isinstance(tree, Tensor):
        return tree.numel() * tree.element_size()
    if is_dataclass(tree):
        return sum(bytes_in(getattr(tree, field.name)) for field in fields(tree))
    leaves = tree.values() if isinstance(tree, dict) else tree
    return sum(map(bytes_in, leaves)) if isinstance(tree, list | tuple | dict) else 0
