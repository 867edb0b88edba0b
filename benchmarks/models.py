"""The models that benchmarks train, each with a batch and a validation set, and by which benchmark."""

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

import lai_core as lai
from tests.support.workloads.torch_oracle import called
from tests.support.workloads.torch_parts import classification, labels, resnet18
from tests.support.workloads.torch_parts import next_token as summed_over_tokens
from tests.support.workloads.transformer_models import transformer

HALF = functools.partial(lai.keep_top, fraction=0.5)
"""How many samples curated steps keep."""
ENDS = {"bos_token_id": 0, "eos_token_id": 0}
PLAIN: dict[str, Any] = {"dropout": False, "attn_implementation": "eager"}
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
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        return torch.optim.SGD(trained, lr=1e-4, momentum=0.9)

    def losses(self, inputs: Any, targets: Any) -> Tensor:
        return self.loss(called(self.model, inputs), targets)


def next_token(outputs: Any, targets: Tensor) -> Tensor:
    """Mean cross-entropy of each sequence's next tokens."""
    return summed_over_tokens(outputs, targets) / (targets.shape[1] - 1)


def mlp(*widths: int, samples: int, validation: int) -> Work:
    """Build linear layers with ReLU between them, on normal inputs."""
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    sides = [(torch.randn(n, widths[0]), torch.arange(n) % widths[-1]) for n in (samples, validation)]
    return Work(nn.Sequential(*layers[:-1]), classification, *sides)


def resnet(samples: int, validation: int) -> Work:
    """ResNet-18 with the 7x7/2 stem and max-pool on 32x32 images: the paper's setting."""
    return Work(resnet18(), classification, *images(samples, validation))


def images(*sizes: int) -> list[Side]:
    return [(torch.randn(n, 3, 32, 32), torch.arange(n) % 10) for n in sizes]


def bert(width: int, depth: int, heads: int, length: int, samples: int, vocabulary: int) -> Work:
    """BERT for classification, without dropout."""
    drawn = [torch.randint(1, vocabulary, (n, length)) for n in (samples, 2 * samples)]
    more = {"intermediate_size": 4 * width, "num_labels": 5} | PLAIN
    model = transformer("BertForSequenceClassification", width, depth, heads, length, vocabulary, **more)
    return Work(model, classification, *(({"input_ids": ids}, labels(len(ids))) for ids in drawn))


def gpt(*sizes: int, samples: int, validation: int | None = None) -> Work:
    """GPT-2 by width, depth, heads, length, vocabulary; without dropout."""
    return language_model("GPT2LMHeadModel", sizes, samples, validation, **ENDS | PLAIN)


def vit(width: int, depth: int, heads: int, samples: int) -> Work:
    """Build a ViT on 32x32 images in patches of 4: 65 positions."""
    sides = images(samples, 2 * samples)
    more = {"intermediate_size": 4 * width, "image_size": 32, "patch_size": 4, "num_labels": 10} | PLAIN
    return Work(transformer("ViTForImageClassification", width, depth, heads, **more), classification, *sides)


def gpt_neo_small() -> Work:
    """GPT-Neo: 4 layers of width 128, 64 positions, 1,000 outputs."""
    more = {"attention_types": [[["global", "local"], 2]], "window_size": 32} | ENDS | PLAIN
    work = language_model("GPTNeoForCausalLM", (128, 4, 4, 64, 1000), 16, **more)
    return replace(work, loss=summed_over_tokens)


def llama() -> Work:
    """Llama at 1B: 16 layers of 2,048, vocabulary 128,256, tied; 8 sequences of 512 tokens."""
    more = {"max_position_embeddings": 2048, "tie_word_embeddings": True}
    more |= {"intermediate_size": 8192, "num_key_value_heads": 8}
    return language_model("LlamaForCausalLM", (2048, 16, 32, 512, 128_256), 8, 16, **more)


def language_model(
    name: str, sizes: tuple[int, ...], samples: int, validation: int | None = None, **more: Any
) -> Work:
    """Build a model by name and width, depth, heads, length, vocabulary; LAI by the `mean` route."""
    length, vocabulary = sizes[3:]
    drawn = [torch.randint(1, vocabulary, (n, length)) for n in (samples, validation or 2 * samples)]
    sides = [({"input_ids": ids, "use_cache": False}, ids) for ids in drawn]
    return Work(transformer(name, *sizes, **more), next_token, *sides, positions="mean")


COSTED: dict[str, Callable[[], Work]] = {
    "resnet18": lambda: resnet(512, 1000),
    "bert_small": lambda: bert(128, 4, 4, 32, 32, 2000),
    "gpt_neo_small": gpt_neo_small,
}
"""By name: what `benchmarks cost` trains, at the paper's sizes."""

TIMED: dict[str, Callable[[], Work]] = {
    "tiny_mlp": lambda: mlp(20, 64, 64, 10, samples=32, validation=64),
    "mlp": lambda: mlp(784, 512, 512, 10, samples=128, validation=256),
    "bert_12_launches": lambda: bert(12, 12, 2, 8, 4, 100),
    "gpt_12_launches": lambda: gpt(12, 12, 2, 8, 100, samples=4),
    "resnet18": lambda: resnet(128, 256),
    "bert_small": lambda: bert(512, 4, 8, 64, 16, 30_522),
    "gpt_small": lambda: gpt(256, 4, 4, 64, 8192, samples=8),
    "vit_tiny": lambda: vit(192, 12, 3, 32),
}
"""By name. `launches`: real depth at a width where a step is all calls, as a GPU's host sees it."""
FOR_GPU: dict[str, Callable[[], Work]] = {
    "resnet18_512": lambda: resnet(512, 1000),
    "bert_base": lambda: bert(768, 12, 12, 128, 64, 30_522),
    "gpt2": lambda: gpt(768, 12, 12, 256, 50_257, samples=16),
    # what dattri-llm reports its overhead on
    "gpt2_1024": lambda: gpt(768, 12, 12, 1024, 50_257, samples=16, validation=8),
    "llama_1b": llama,
}
"""By name: models of usual size, which a CPU takes hours to time."""


def built(build: Callable[[], Work]) -> Work:
    """Return a model, its batch and its validation set on the GPU, if there is one."""
    torch.manual_seed(0)
    work, device = build(), "cuda" if torch.cuda.is_available() else "cpu"
    batch, validation = tree_map_only(Tensor, lambda one: one.to(device), (work.batch, work.validation))
    return replace(work, model=work.model.to(device).train(), batch=batch, validation=validation)
