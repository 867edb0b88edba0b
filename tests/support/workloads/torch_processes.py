"""Curated runs on several processes, and the same on one: who holds which rows must not matter."""

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest import mock

import lai_torch
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

import lai_core as lai

LOSS = nn.CrossEntropyLoss(reduction="none")
ENGINES = ("ddp", "fsdp2", "group")
STEPS, SAMPLES, VALIDATION = 4, 32, 47


def network(seed: int = 0, width: int = 16, classes: int = 5) -> nn.Sequential:
    generator = torch.Generator().manual_seed(seed)
    layers: list[nn.Module] = [nn.Linear(8, width), nn.GELU(), nn.Linear(width, width), nn.GELU()]
    model = nn.Sequential(*layers, nn.Linear(width, classes)).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5, generator=generator)
    return model


class Block(nn.Sequential):
    """Layers around which their input goes on."""

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden + super().forward(hidden)


class Tied(nn.Module):
    """A language model of one block whose last matrix is its embedding."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.block = Block(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embedding.weight
        generator = torch.Generator().manual_seed(seed)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.5, generator=generator)
        self.double()

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.head(self.block(self.embedding(tokens)))
        return logits


def token_loss(logits: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits.transpose(1, 2), targets, reduction="none").sum(1)


def batch(samples: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(samples, 8, dtype=torch.float64, generator=generator)
    return inputs, torch.randint(5, (samples,), generator=generator)


def token_batch(samples: int, seed: int) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(11, (samples, 7), generator=torch.Generator().manual_seed(seed))
    return tokens[:, :-1], tokens[:, 1:]


@dataclass(frozen=True)
class Case:
    """One run: what the curator is given, and what the batches are like."""

    options: dict[str, Any] = field(default_factory=dict)
    adam: bool = False
    tied: bool = False
    wide: bool = False  # of so many outputs that a summary is kept as factors
    validation: int = VALIDATION
    source: str | None = None
    broken: bool = False
    compiled: bool = False
    parts: Callable[[int, int], list[int]] | None = None
    engines: tuple[str, ...] = ENGINES
    distributed: dict[str, Any] = field(default_factory=dict)


def uneven(step: int, processes: int) -> list[int]:
    """Return how many rows each process holds: not alike, and other ones each step."""
    sizes = [1 + (3 * rank + step) % 5 for rank in range(processes - 1)]
    return [*sizes, SAMPLES - sum(sizes)]


def nothing_at_times(scores: Tensor) -> Tensor:
    """Keep what helps, unless the first score is large: a policy that keeps nothing at some steps."""
    weights = lai.keep_positive(scores)
    return torch.zeros_like(weights) if float(scores[0]) > 0 else torch.as_tensor(weights)


AROUND = ("ddp", "group")
SHARED_OUT = {"backward": lai_torch.KeptOptions(balance=True)}

CASES = {
    "keep_positive": Case(),
    "keep_positive over the batch": Case({"policy": partial(lai.keep_positive, normalize="batch")}),
    "keep_top .3": Case({"policy": partial(lai.keep_top, fraction=0.3)}),
    "keep_top: one of all": Case({"policy": partial(lai.keep_top, fraction=0.03)}),
    "reweight": Case({"policy": lai.reweight}),
    "clipped": Case({"max_norm": 0.05}),
    "below the validation set's losses": Case(
        {"policy": lai_torch.KeepBelowLoss(0.6), "refresh": 2}, engines=("group",)
    ),
    # a number a sample that trains and does not score, and one for the batch
    "an auxiliary loss": Case(
        {"backward": lai_torch.KeptOptions(auxiliary=lambda o, _: 0.1 * (o**2).sum(1))}, engines=("ddp",)
    ),
    "an auxiliary number": Case(
        {"backward": lai_torch.KeptOptions(auxiliary=lambda o, _: 0.1 * (o**2).sum(1).mean())}, parts=uneven
    ),
    "a policy that keeps nothing at times": Case({"policy": nothing_at_times}),
    "AdamW, accumulate 2, refresh 3": Case({"accumulate": 2, "refresh": 3}, adam=True),
    "parts": Case({"estimator": lai_torch.LAI(parts=4), "policy": lai.drop_harmful}),
    "share .5": Case({"validation_fraction": 0.5}),
    "sketch": Case({"estimator": lai_torch.LAI(sketch=3)}),
    "lli": Case({"estimator": "lli"}),
    "factors": Case(wide=True, validation=6, engines=("group",)),
    "ghost": Case({"estimator": "ghost"}),
    "preconditioned": Case({"estimator": "preconditioned_lai"}, adam=True),
    "calibrated": Case({"estimator": "calibrated_lai"}),
    "gate": Case({"estimator": "gate_lai"}),
    "exact": Case({"estimator": "exact"}),
    "warmup 2, chunk 3": Case({"warmup": 2, "estimator": lai_torch.LAI(chunk=3)}),
    "three validation samples": Case({"estimator": lai_torch.LAI(sketch=3)}, validation=3),
    "the batch itself": Case(source="batch"),
    "the batch itself, preconditioned": Case({"estimator": "preconditioned_lai"}, source="batch+self"),
    "rows that are not finite": Case(broken=True),
    "uneven batches": Case({"policy": lai.reweight}, parts=uneven),
    "whole": Case({"backward": "whole"}, engines=AROUND),
    "selective": Case({"backward": "selective"}, engines=AROUND),
    "balance": Case(distributed=SHARED_OUT),
    "balance, uneven, broken": Case(broken=True, parts=uneven, distributed=SHARED_OUT, adam=True),
    "tied": Case(tied=True, adam=True),
    "tied, mean": Case({"estimator": lai_torch.LAI(positions="mean")}, tied=True),
    "tied, flatten": Case({"estimator": lai_torch.LAI(positions="flatten")}, tied=True),
    "tied, ghost": Case({"estimator": "ghost"}, tied=True),
    # in processes that are not forked: one that was, and compiled, ended once with a corrupted heap
    "compiled": Case(compiled=True, tied=True, adam=True, distributed=SHARED_OUT, engines=()),
}


def wrapped(
    model: nn.Module, engine: str, processes: int, *, compiled: bool = False
) -> tuple[nn.Module, dict[str, Any]]:
    """Return a model as an engine trains it, and what the curator has to be told of it."""
    if engine == "ddp":
        return nn.parallel.DistributedDataParallel(model), {}
    if engine == "group":
        return model, {"process_group": dist.group.WORLD}
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh, told = init_device_mesh("cpu", (processes,)), {}
    if engine == "hsdp":  # pairs of processes hold shards, the same on each pair
        names = ("copies", "shards")
        mesh = init_device_mesh("cpu", (processes // 2, 2), mesh_dim_names=names)
        told = {"process_group": dist.group.WORLD}
    for module in list(model.modules()):
        if isinstance(module, Block) and compiled:
            module.compile(backend="aot_eager", fullgraph=True)
        if isinstance(module, Block) or (isinstance(module, nn.Linear) and len(module.weight) == 16):
            fully_shard(module, mesh=mesh)
    return fully_shard(model, mesh=mesh), told


@dataclass
class Run:
    """What a run found: parameters; per step scores, weights and the numbers of the report."""

    parameters: Tensor
    scores: list[Tensor]
    weights: list[Tensor]
    told: list[tuple[Any, ...]]
    bytes_per_step: float = 0.0
    bytes_reported: float = 0.0


@contextmanager
def count_sent(found: Run) -> Iterator[None]:
    """Add up the bytes that a process hands to collectives, those of a wrapper's own training aside."""

    def counting(function: Any, handed: int) -> Any:
        def counted(*arguments: Any, **options: Any) -> Any:
            given = arguments[handed]
            found.bytes_per_step += getattr(given, "_local_tensor", given).nbytes / STEPS
            return function(*arguments, **options)

        return counted

    handed = {"all_reduce": 0, "all_gather": 1, "all_to_all_single": 1}
    functions = {name: counting(getattr(dist, name), at) for name, at in handed.items()}
    whole = counting(DTensor.full_tensor, 0)  # whole parameters
    with mock.patch.multiple(dist, **functions), mock.patch.object(DTensor, "full_tensor", whole):
        yield


def whole(model: nn.Module) -> Tensor:
    """Return the parameters of a model as one vector, those in parts put together."""
    full = [getattr(p, "full_tensor", lambda p=p: p)() for p in model.parameters()]
    return torch.cat([each.detach().flatten() for each in full])


def run(case: Case, engine: str | None = None, rank: int = 0, processes: int = 1) -> Run:
    """Train on this process's rows of every batch; on all of them where there is no engine."""
    torch.manual_seed(rank)  # processes are seeded apart, as for augmentation
    model: nn.Module = Tied() if case.tied else network(0, *(100, 1300) if case.wide else ())
    drawn, loss = (token_batch, token_loss) if case.tied else (batch, LOSS)
    options = dict(case.options)
    if engine is not None:
        model, more = wrapped(model, engine, processes, compiled=case.compiled)
        options |= more | case.distributed
    rate = {"lr": 0.01} if case.adam else {"lr": 0.05}
    optimizer = (torch.optim.AdamW if case.adam else torch.optim.SGD)(model.parameters(), **rate)
    generator = torch.Generator().manual_seed(5)
    source = case.source or drawn(case.validation, 7)
    curator = lai_torch.Curator(model, loss, optimizer, source, generator=generator, **options)
    found = Run(torch.empty(0), [], [], [])
    for step in range(STEPS):
        inputs, targets = drawn(SAMPLES, 100 + step)
        if case.broken and step % 2:
            inputs[::7] = torch.nan
        sizes = case.parts(step, processes) if case.parts else [SAMPLES // processes] * processes
        part = slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
        with count_sent(found):
            report = curator.step(inputs[part], targets[part])
        found.bytes_reported += report.bytes_sent / STEPS
        missing = torch.full_like(report.weights, torch.nan)
        found.scores.append(missing if report.scores is None else report.scores)
        found.weights.append(report.weights)
        found.told.append((report.kept, report.dropped, report.skipped, report.updated, report.loss))
    found.parameters = whole(curator.model)
    return found


def largest(found: Tensor, expected: Tensor) -> float:
    """Return the largest error over the largest entry; infinite where what is not finite differs."""
    if not torch.equal(torch.isfinite(found), torch.isfinite(expected)):
        return float("inf")
    found, expected = found.double().nan_to_num(), expected.double().nan_to_num()
    return float((found - expected).abs().max() / expected.abs().max().clamp(min=1e-300))


def errors(parts: list[Run], expected: Run) -> dict[str, float]:
    """Return how far the processes' run is from one process's; what reports say counts too."""
    found = {"parameters": max(largest(part.parameters, expected.parameters) for part in parts)}
    for name in ("scores", "weights"):
        steps = zip(*(getattr(part, name) for part in parts), getattr(expected, name), strict=True)
        found[name] = max(largest(torch.cat(step[:-1]), step[-1]) for step in steps)
    told = [torch.tensor(part.told, dtype=torch.float64) for part in (*parts, expected)]
    found["reports"] = max(largest(one, told[-1]) for one in told)
    return found


def runs(rank: int, processes: int, names: list[tuple[str, str]]) -> dict[tuple[str, str], Any]:
    """Run cases on engines, one after the other."""
    found: dict[tuple[str, str], Any] = {}
    for case, engine in names:
        try:
            found[case, engine] = run(CASES[case], engine, rank, processes)
        except Exception:
            found[case, engine] = traceback.format_exc()
    return found
