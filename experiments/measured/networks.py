"""Small networks of the paper's shapes, trained for some seconds each."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from experiments.figures.trained import digits
from experiments.methods.base import LOSS, descend
from experiments.networks import perceptron
from workloads.torch_parts import resnet18

STEPS, BATCH, COMPARED = 150, 32, 48


@dataclass(frozen=True)
class Trained:
    """A network, its optimizer, its loss and two batches to compare."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    loss: Callable[..., Tensor]
    validation: tuple[Any, Tensor]
    training: tuple[Any, Tensor]
    batches: list[tuple[Any, Tensor]]


def networks(only: str = "") -> Iterator[tuple[str, Trained]]:
    """Train and yield each network whose name begins so, from the same seed."""
    for name, make in BUILDERS.items():
        if name.startswith(only):
            torch.manual_seed(0)
            yield name, make()


def _perceptron() -> Trained:
    return _trained(perceptron((64, 32, 32, 32, 10)), LOSS, *digits())


def _resnet() -> Trained:
    data, held = ((x.reshape(-1, 1, 8, 8).repeat(1, 3, 1, 1), y) for x, y in digits())
    return _trained(resnet18(width=8, stem="3x3"), LOSS, data, held)


def _trained(model: nn.Module, loss: Any, data: tuple[Any, Tensor], held: tuple[Any, Tensor]) -> Trained:
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    batches = []
    for _ in range(STEPS):
        rows = torch.randint(len(data[1]), (BATCH,))
        batches.append((data[0][rows], data[1][rows]))
        descend(model, optimizer, batches[-1], torch.full((BATCH,), 1 / BATCH), loss)
    optimizer.zero_grad()
    model.eval()
    (x, y), (u, v) = ((inputs[:COMPARED], labels[:COMPARED]) for inputs, labels in (held, data))
    return Trained(model, optimizer, loss, (x, y), (u, v), batches[-10:])


def _of_logits(outputs: Any, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs.logits, targets, reduction="none")


def _next(outputs: Any, ids: Tensor) -> Tensor:
    logits = outputs.logits[:, :-1].transpose(1, 2)
    return nn.functional.cross_entropy(logits, ids[:, 1:], reduction="none").mean(1)


def _bert() -> nn.Module:
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=32, hidden_size=32, num_hidden_layers=4, num_attention_heads=4, intermediate_size=64,
        max_position_embeddings=16, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=4,
    )  # fmt: skip
    return BertForSequenceClassification(config)


def _gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=64, n_positions=16, n_embd=32, n_layer=4, n_head=4, bos_token_id=0, eos_token_id=0,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    return GPT2LMHeadModel(config)


def _parity(count: int) -> tuple[Tensor, Tensor]:
    """Sequences whose label is the most frequent of four words; a fifth of the labels are wrong."""
    ids = torch.randint(4, 32, (count, 12))
    labels = torch.randint(4, (count,))
    chosen = torch.rand(count, 12) < 0.4
    ids = torch.where(chosen, labels[:, None], ids)
    wrong = torch.rand(count) < 0.2
    return ids, torch.where(wrong, torch.randint(4, (count,)), labels)


def _sequences(count: int) -> tuple[Tensor, Tensor]:
    """Arithmetic sequences, of which a fifth are random words."""
    ids = (torch.randint(64, (count, 1)) + torch.randint(1, 4, (count, 1)) * torch.arange(12)) % 64
    noise = torch.rand(count, 1) < 0.2
    ids = torch.where(noise, torch.randint(64, (count, 12)), ids)
    return ids, ids


BUILDERS: dict[str, Callable[[], Trained]] = {
    "perceptron, 4 layers": _perceptron,
    "ResNet-18, width 8": _resnet,
    "BERT, 4 layers of width 32": lambda: _trained(_bert(), _of_logits, _parity(1024), _parity(256)),
    "GPT-2, 4 layers of width 32": lambda: _trained(_gpt2(), _next, _sequences(1024), _sequences(256)),
}
