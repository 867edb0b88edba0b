"""LAI on frozen and adapted models, against the exact scores."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import lai_torch
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks import report
from benchmarks.methods import CACHED, curator
from benchmarks.models import ENDS, Work
from workloads.counts import counted
from workloads.transformer_models import transformer

SEEDS, MOMENTS, WORDS, LENGTH, CLASSES = 3, (0, 60), 64, 12, 4
ATTENTION = ("c_attn", "query", "value")
LINEAR = (*ATTENTION, "c_proj", "c_fc", "key", "dense")
MODELS = {"gpt2, tokens": "tokens", "gpt2, mean": "mean", "bert, mean": "mean"}
WAYS = ("everything", "lora on attention", "lora on all layers", "top block")
READ = ("lai", "lli", "calibrated_lai", "ghost")


class Adapted(nn.Module):
    """A frozen linear layer with a low-rank addition, `W a + B A a`, as LoRA has it."""

    def __init__(self, base: Any, rank: int = 4) -> None:
        super().__init__()
        inside, outside = base.weight.shape if type(base).__name__ == "Conv1D" else base.weight.shape[::-1]
        self.base = base
        self.down, self.up = nn.Linear(inside, rank, bias=False), nn.Linear(rank, outside, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, inputs: Tensor) -> Tensor:
        """Add twice the low-rank product."""
        found: Tensor = self.base(inputs) + 2 * self.up(self.down(inputs))
        return found


def adapt(model: nn.Module, way: str) -> None:
    """Freeze what does not train, and put adapters in; the head of a classifier trains."""
    if way == "everything":
        return
    top = ("transformer.h.2", "bert.encoder.layer.2", "bert.pooler") if way == "top block" else ()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.startswith((*top, "classifier")))
    names = {"lora on attention": ATTENTION, "lora on all layers": LINEAR}.get(way, ())
    for name, module in list(model.named_modules()):
        parent, _, own = name.rpartition(".")
        if own in names and hasattr(module, "weight"):
            setattr(model.get_submodule(parent), own, Adapted(module))


class Task:
    """A small model, what it was trained on before, and what it is to learn now, four in ten of it noise."""

    def __init__(self, model: str, seed: int) -> None:
        torch.manual_seed(seed)
        self.classifies = model.startswith("bert")
        self.classes = torch.randint(CLASSES, (2, WORDS))
        name = "BertForSequenceClassification" if self.classifies else "GPT2LMHeadModel"
        more = {"intermediate_size": 64, "num_labels": CLASSES} if self.classifies else ENDS
        self.model: Any = transformer(name, 32, 3, 2, LENGTH, WORDS, dropout=False, **more)

    def loss(self, outputs: Any, targets: Tensor) -> Tensor:
        """Return one loss a sample: of its class, or the mean over its next words."""
        if self.classifies:
            return functional.cross_entropy(outputs.logits, targets, reduction="none")
        words = outputs.logits[:, :-1].transpose(1, 2)
        return functional.cross_entropy(words, targets[:, 1:], reduction="none").mean(1)

    def batch(self, samples: int, *, before: bool = False, noise: float = 0.0) -> tuple[Any, Tensor]:
        """Draw samples of what came before, or of what is new."""
        noisy = torch.rand(samples) < noise
        if self.classifies:
            words = torch.randint(WORDS, (samples, LENGTH))
            counts = functional.one_hot(self.classes[int(before)][words], CLASSES).sum(1)
            return {"input_ids": words}, torch.where(
                noisy, torch.randint(CLASSES, (samples,)), counts.argmax(1)
            )
        steps = torch.tensor([1, 2, 3] if before else [5, 7])
        steps = steps[torch.randint(len(steps), (samples, 1))]
        words = (torch.randint(WORDS, (samples, 1)) + steps * torch.arange(LENGTH)) % WORDS
        words = torch.where(noisy[:, None], torch.randint(WORDS, (samples, LENGTH)), words)
        return {"input_ids": words, "use_cache": False}, words

    def train(self, steps: int, **drawn: Any) -> None:
        """Take so many steps of Adam on what trains."""
        optimizer = torch.optim.AdamW([p for p in self.model.parameters() if p.requires_grad], lr=2e-3)
        self.model.train()
        for _ in range(steps):
            inputs, targets = self.batch(32, **drawn)
            optimizer.zero_grad()
            self.loss(self.model(**inputs), targets).mean().backward()
            optimizer.step()
        self.model.eval()


def correlations(task: Task, positions: str) -> dict[str, float]:
    """Return each estimator's correlation with the exact scores on one batch; no LLI of a frozen head."""
    validation, training = task.batch(48), task.batch(48, noise=0.4)
    exact = lai_torch.exact_scores(task.model, task.loss, validation, training)
    estimators = [lai_torch.LAI(positions=positions), lai_torch.CalibratedLAI(positions=positions)]
    head = task.model.classifier if task.classifies else task.model.lm_head
    found = {}
    for estimator in [*estimators, lai_torch.Ghost(), *[lai_torch.LLI()] * head.weight.requires_grad]:
        curator = lai_torch.Curator(task.model, task.loss, None, validation, estimator=estimator)
        scores: Any = curator.score(*training)[1].scores
        found[estimator.name] = float(torch.corrcoef(torch.stack([scores, exact]))[0, 1])
    return found


def cases() -> Iterator[tuple[str, str, int, int, dict[str, float]]]:
    """Yield model, way, seed, moment and correlations."""
    for (name, positions), way, seed in itertools.product(MODELS.items(), WAYS, range(SEEDS)):
        task = Task(name, seed)
        task.train(300, before=True)
        adapt(task.model, way)
        for before, steps in zip((0, *MOMENTS), MOMENTS, strict=False):
            task.train(steps - before, noise=0.4)
            yield name, way, seed, steps, correlations(task, positions)


def operations() -> dict[str, float]:
    """Return what a curated step on adapters costs, half of the batch kept, in plain steps on them."""
    found = {}
    for estimator in (lai_torch.LAI(positions="mean"), lai_torch.Ghost()):
        task = Task("gpt2", 0)
        adapt(task.model, "lora on attention")
        sides = task.batch(32), task.batch(32)
        work = Work(task.model, task.loss, *sides, positions="mean")
        made = curator(work, work.optimizer(), estimator, refresh=CACHED)
        made.step(*work.batch)
        plain = counted(lambda work=work: work.losses(*work.batch).mean().backward()).flops
        steps = [counted(lambda made=made, work=work: made.step(*work.batch)).flops for _ in range(3)]
        found[estimator.name] = min(steps) / plain  # of a step that proves nothing
    return found


def _means(parts: list[dict[str, list[float]]]) -> dict[str, float]:
    """Return each estimator's mean over some models, NaN where there is none."""
    values = {read: [one for part in parts for one in part[read]] for read in READ}
    return {read: sum(each) / len(each) if each else math.nan for read, each in values.items()}


def run() -> None:
    """Measure, print, and fail where Ghost is not exact."""
    found: dict[str, dict[str, list[float]]] = {}
    for name, way, _, _, values in cases():
        row = found.setdefault(f"{name}: {way}", {read: [] for read in READ})
        for read, value in values.items():
            row[read].append(value)
    costs = operations()
    means = {row: _means([reads]) for row, reads in found.items()}
    overall = _means([found[row] for row in found if not row.endswith("everything")])
    rows = [(name, *(f"{row[read]:.2f}" for read in READ)) for name, row in means.items()]
    rows.append(("mean of those with frozen layers", *(f"{overall[read]:.2f}" for read in READ)))
    remarks = [
        f"operations of a step on adapters: {name} {value:.2f} of a plain one"
        for name, value in costs.items()
    ]
    report.table("correlation with the exact scores", ("model", *READ), rows, remarks)
    failed = []
    if not min(row["ghost"] for row in means.values()) > 1 - 1e-4:
        failed.append("ghost is not exact")
    figures = {"models": means, "frozen": overall, "operations": costs}
    report.close("adapted", figures, {}, failed, packages=("torch", "transformers"))
