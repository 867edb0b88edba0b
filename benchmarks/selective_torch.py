"""Selective backward, model by model: against the masked gradient, its operations, how often it compiles.

Every model trains in its own mode, dropout included, for 20 steps whose kept counts and last batch vary.
"""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from lai_torch._curation.passes.selective import Selective
from lai_torch._model.batch import call, rows
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from benchmarks import exactness_torch, transformer_models
from benchmarks.machine import machine
from benchmarks.meters_torch import Operations
from benchmarks.torch_models import CLASSES, Case, classification, labels, next_token

OUT = Path("build/bench/selective-torch.json")
SAMPLES, STEPS = 12, 20
ERROR_BOUND = 1e-12
COARSE_BOUND = 1e-9
COMPUTES_IN_FLOAT32 = ("gpt_neo",)
"""Models whose attention casts to float32, whatever their own type."""


def mlp(n: int) -> Case:
    """Linear layers, LayerNorm, an in-place activation."""
    return replace(exactness_torch.mlp(), inputs=torch.randn(n, 6), targets=labels(n))


def mlp_dropout(n: int) -> Case:
    """Dropout in training mode."""
    layers = [nn.Linear(6, 16), nn.GELU(), nn.Dropout(0.3), nn.Linear(16, 12), nn.Tanh(), nn.Dropout(0.2)]
    return Case(nn.Sequential(*layers, nn.Linear(12, CLASSES)), classification, torch.randn(n, 6), labels(n))


def cnn(n: int) -> Case:
    """Group and stride convolutions; GroupNorm, pooling."""
    layers = [
        nn.Conv2d(3, 8, 3, padding=1),
        nn.GroupNorm(2, 8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 12, 3, stride=2, padding=1, groups=4),
        nn.GELU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(12, CLASSES),
    ]
    return Case(nn.Sequential(*layers), classification, torch.randn(n, 3, 12, 12), labels(n))


def pooled_convolution(n: int) -> Case:
    """End in a 1x1 convolution, which pooling follows inside the model."""
    layers = [nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, CLASSES, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return Case(nn.Sequential(*layers), classification, torch.randn(n, 3, 8, 8), labels(n))


def convnext(n: int) -> Case:
    """ConvNeXt of transformers: depthwise convolutions, LayerNorm, layer scale."""
    case = transformer_models.convnext()
    return replace(case, inputs={"pixel_values": torch.randn(n, 3, 32, 32)}, targets=labels(n))


def vit(n: int) -> Case:
    """ViT of transformers."""
    case = transformer_models.vit()
    return replace(case, inputs={"pixel_values": torch.randn(n, 3, 16, 16)}, targets=labels(n))


def _padded(n: int, vocabulary: int, length: int = 9) -> tuple[Tensor, Tensor]:
    ids = torch.randint(1, vocabulary, (n, length))
    mask = torch.arange(length) < (length - torch.arange(n).unsqueeze(1) % 3)
    return ids * mask, mask.long()


def bert(n: int) -> Case:
    """BERT for classification, padding masked, dropout on."""
    ids, mask = _padded(n, 31)
    inputs = {"input_ids": ids, "attention_mask": mask}
    return replace(transformer_models.bert(), inputs=inputs, targets=labels(n))


def _language_model(case: Case, n: int) -> Case:
    ids, mask = _padded(n, 31)
    inputs = {"input_ids": ids, "attention_mask": mask, "use_cache": False}
    return Case(case.model, next_token, inputs, ids.masked_fill(mask == 0, -100))


def gpt2(n: int) -> Case:
    """GPT-2 of transformers: tied head and embedding, dropout on."""
    return _language_model(transformer_models.gpt2(), n)


def gpt_neo(n: int) -> Case:
    """GPT-Neo of transformers: local attention."""
    return _language_model(transformer_models.gpt_neo(), n)


def llama(n: int) -> Case:
    """Llama of transformers: rotary positions, grouped-query attention."""
    return _language_model(transformer_models.llama(), n)


def lora(n: int) -> Case:
    """GPT-2 with frozen weights and low-rank adapters."""
    return _language_model(transformer_models.lora(), n)


def t5_encoder(n: int) -> Case:
    """T5's encoder: relative positions."""
    ids, mask = _padded(n, 31)
    inputs = {"input_ids": ids, "attention_mask": mask}
    return replace(transformer_models.t5_encoder(), inputs=inputs, targets=labels(n))


class Encoder(nn.Module):
    """`nn.TransformerEncoder`, whose attention merges samples with positions, positions outermost."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 24, 0.1, batch_first=True)
        self.embed, self.place = nn.Embedding(11, 16, padding_idx=0), nn.Parameter(torch.randn(6, 16) / 4)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        """Classify the sequence from its first token."""
        hidden = self.body(self.embed(ids) + self.place, src_key_padding_mask=ids == 0)
        return self.head(hidden[:, 0])


def encoder(n: int) -> Case:
    """`nn.TransformerEncoder` with dropout."""
    return Case(Encoder(), classification, _padded(n, 11, 6)[0], labels(n))


class Several(nn.Module):
    """Returns a mapping of two differentiable tensors, one of which the loss uses."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(6, 8), nn.Linear(8, CLASSES)

    def forward(self, inputs: Tensor) -> dict[str, Tensor]:
        """Return the logits and what they are made of."""
        hidden = torch.tanh(self.body(inputs))
        return {"hidden": hidden, "logits": self.head(hidden)}


def mapping(n: int) -> Case:
    """Return a mapping from the model."""
    return Case(
        Several(), lambda out, targets: classification(out["logits"], targets), torch.randn(n, 6), labels(n)
    )


class Checkpointed(nn.Module):
    """A layer whose activations are computed again in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.more, self.head = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        """Apply the layers, the middle one checkpointed."""
        hidden = torch.tanh(self.body(inputs))
        hidden = checkpoint(
            lambda one: functional.dropout(torch.tanh(self.more(one)), 0.2), hidden, use_reentrant=False
        )
        return self.head(hidden)


def checkpointed(n: int) -> Case:
    """Activation checkpointing, with dropout inside."""
    return Case(Checkpointed(), classification, torch.randn(n, 6), labels(n))


MODELS: dict[str, Callable[[int], Case]] = {
    build.__name__: build
    for build in (
        mlp,
        mlp_dropout,
        cnn,
        pooled_convolution,
        convnext,
        vit,
        bert,
        gpt2,
        gpt_neo,
        llama,
        lora,
        t5_encoder,
        encoder,
        mapping,
        checkpointed,
    )
}


def masked(case: Case, inputs: Any, targets: Any, weights: Tensor) -> list[Tensor | None]:
    """Return the gradient of the weighted losses of the whole batch by plain autograd."""
    trainable = [p for p in case.model.parameters() if p.requires_grad]
    values = case.loss(call(case.model, inputs), targets)
    return list(torch.autograd.grad((values * weights).sum(), trainable, allow_unused=True))


def error(case: Case, exact: list[Tensor | None]) -> float:
    """Return how far `.grad` is from the exact gradient, relative to its largest entry."""
    trainable = [p for p in case.model.parameters() if p.requires_grad]
    pairs = [(p.grad, one) for p, one in zip(trainable, exact, strict=True)]
    largest = max(float(one.abs().max()) for _, one in pairs if one is not None)
    zero = torch.zeros(())
    sides = ((zero if mine is None else mine, zero if one is None else one) for mine, one in pairs)
    return max(float((mine - one).abs().max()) for mine, one in sides) / largest


def batches(case: Case, steps: int) -> list[tuple[Any, Any, Tensor]]:
    """Return batches, every fifth one smaller, each with weights that keep another number of samples."""
    result = []
    for step in range(steps):
        n = 7 if step % 5 == 4 else SAMPLES
        inputs, targets = rows((case.inputs, case.targets), slice(0, n), SAMPLES)
        weights = torch.zeros(n, dtype=torch.float64)
        weights[torch.randperm(n)[: (1, 3, n, n // 2, 2)[step % 5]]] = 1.0
        result.append((inputs, targets, weights * (torch.rand(n, dtype=torch.float64) + 0.1)))
    return result


def prepared(build: Callable[[int], Case]) -> Case:
    """Return a case in float64 and training mode."""
    torch.manual_seed(0)
    case = exactness_torch.doubled(build(SAMPLES))
    case.model.train()
    return case


def measure(build: Callable[[int], Case], steps: int = STEPS) -> dict[str, float]:
    """Return the largest relative error over the steps, operations over a plain step's, compilations."""
    with torch.random.fork_rng(devices=[]):
        case = prepared(build)
        selective, largest = Selective(case.model, case.loss), 0.0
        for inputs, targets, weights in batches(case, steps):
            state = torch.get_rng_state()
            case.model.zero_grad()
            selective.forward(inputs, targets)
            selective.backward(weights)
            torch.set_rng_state(state)
            largest = max(largest, error(case, masked(case, inputs, targets, weights)))
        half = (torch.arange(SAMPLES) % 2).double()
        with Operations() as curated:
            selective.forward(case.inputs, case.targets)
            selective.backward(half)
        with Operations() as plain:
            masked(case, case.inputs, case.targets, torch.ones_like(half))
    ratio = curated.total / plain.total
    return {"relative_error": largest, "flops_ratio": ratio, "captures": selective.captures}


def bound(name: str) -> float:
    """Relative error that a model may have."""
    return COARSE_BOUND if name in COMPUTES_IN_FLOAT32 else ERROR_BOUND


def run() -> dict[str, Any]:
    """Measure every model, print the table, write `build/bench/selective-torch.json`."""
    torch.set_num_threads(1)
    start = time.perf_counter()
    found = {name: measure(build) for name, build in MODELS.items()}
    title = f"selective backward in {STEPS} steps, operations at half kept"
    table = Table("model", "relative error", "operations / plain", "compilations", title=title)
    for name, row in found.items():
        table.add_row(name, f"{row['relative_error']:.1e}", f"{row['flops_ratio']:.3f}", str(row["captures"]))
    Console().print(table)
    Console().print(f"{time.perf_counter() - start:.0f} s")
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(
        json.dumps({"models": found, "machine": machine("torch", "transformers")}, indent=2) + "\n"
    )
    failed = [
        name for name, row in found.items() if row["relative_error"] > bound(name) or row["captures"] != 1
    ]
    if failed:
        raise SystemExit(f"selective torch: not the masked gradient by one capture: {', '.join(failed)}")
    return found
