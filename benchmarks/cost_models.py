"""What the cost benchmark trains: three models, each with a batch and a validation set."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from workloads.torch_parts import classification, labels, next_token, resnet18

Side = tuple[Any, Tensor]
"""Inputs, a tensor or keyword arguments, and targets."""


@dataclass(frozen=True)
class Work:
    """A model, its loss, a batch, a validation set, and what LAI's positions mean on it."""

    model: nn.Module
    loss: Callable[[Any, Any], Tensor]
    batch: Side
    validation: Side
    positions: str | None = None

    def optimizer(self) -> torch.optim.Optimizer:
        """Return a fresh SGD with momentum."""
        return torch.optim.SGD(self.model.parameters(), lr=1e-4, momentum=0.9)

    def losses(self, inputs: Any, targets: Any) -> Tensor:
        """Run the model and return the loss of each sample."""
        outputs = self.model(**inputs) if isinstance(inputs, dict) else self.model(inputs)
        return self.loss(outputs, targets)


def rows(side: Side, index: Tensor | slice) -> Side:
    """Return some samples of a batch."""
    inputs, targets = side
    if isinstance(inputs, Tensor):
        return inputs[index], targets[index]
    picked = {key: one[index] if isinstance(one, Tensor) else one for key, one in inputs.items()}
    return picked, targets[index]


def parts(side: Side, size: int) -> Iterator[Side]:
    """Cut a batch into consecutive parts of at most `size` samples."""
    for start in range(0, len(side[1]), size):
        yield rows(side, slice(start, start + size))


def resnet() -> Work:
    """ResNet-18 with the 7x7/2 stem and max-pool on 32x32: the paper's setting."""
    sides = [(torch.randn(n, 3, 32, 32), torch.arange(n) % 10) for n in (512, 1000)]
    return Work(resnet18(), classification, *sides)


def bert_small() -> Work:
    """BERT for classification: 4 layers of width 128, 32 positions."""
    hide_unfit_torchvision()
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=2000,
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=512,
        max_position_embeddings=32,
        num_labels=5,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        attn_implementation="eager",
    )
    sides = [({"input_ids": torch.randint(1, 2000, (n, 32))}, labels(n)) for n in (32, 64)]
    return Work(BertForSequenceClassification(config), classification, *sides)


def gpt_neo_small() -> Work:
    """GPT-Neo: 4 layers of width 128, 64 positions, 1,000 outputs; LAI by the `mean` route."""
    hide_unfit_torchvision()
    from transformers import GPTNeoConfig, GPTNeoForCausalLM

    config = GPTNeoConfig(
        vocab_size=1000,
        max_position_embeddings=64,
        hidden_size=128,
        num_layers=4,
        num_heads=4,
        attention_types=[[["global", "local"], 2]],
        window_size=32,
        resid_dropout=0.0,
        embed_dropout=0.0,
        attention_dropout=0.0,
        bos_token_id=0,
        eos_token_id=0,
        attn_implementation="eager",
    )
    sides = []
    for n in (16, 32):
        ids = torch.randint(1, 1000, (n, 64))
        sides.append(({"input_ids": ids, "use_cache": False}, ids))
    return Work(GPTNeoForCausalLM(config), next_token, *sides, positions="mean")


def hide_unfit_torchvision() -> None:
    """Keep transformers from a torchvision built for another torch, such as BackPACK may bring."""
    try:
        import torchvision  # noqa: F401
    except (ImportError, RuntimeError):
        sys.modules["torchvision"] = None


MODELS: dict[str, Callable[[], Work]] = {
    "resnet18": resnet,
    "bert_small": bert_small,
    "gpt_neo_small": gpt_neo_small,
}
