"""The networks of the studies: perceptrons, a convolutional one, a small GPT."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional


def chain(widths: Sequence[int]) -> nn.Sequential:
    """Return linear layers of these widths, inputs and outputs included, with ReLU between them."""
    layers = [layer for pair in pairwise(widths) for layer in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def uniform(seed: int, widths: Sequence[int]) -> nn.Sequential:
    """Return a chain whose weights and biases are drawn uniformly within `1/sqrt(d_in)`, by numpy."""
    random, model = np.random.default_rng((seed, 1)), chain(widths)
    for layer in model:
        if isinstance(layer, nn.Linear):
            bound = layer.in_features**-0.5
            for parameter in (layer.weight, layer.bias):
                drawn = random.uniform(-bound, bound, tuple(parameter.shape))
                parameter.data.copy_(torch.from_numpy(drawn))
    return model


def convolutional(seed: int) -> nn.Sequential:
    """Return two convolutions and a linear layer on digits."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip


class Block(nn.Module):
    """Attention to what came before, and two linear layers; normalised before."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Add what attention and the layers say."""
        n, t, d = x.shape
        q, k, v = (
            self.project(self.first(x)).view(n, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        )
        similarity = (q @ k.transpose(2, 3)) / (d // self.heads) ** 0.5
        similarity = similarity + torch.full((t, t), -torch.inf, dtype=x.dtype).triu(1)
        seen = similarity.softmax(3) @ v
        x = x + self.out(seen.transpose(1, 2).reshape(n, t, d))
        return x + self.down(functional.gelu(self.up(self.second(x))))


class GPT(nn.Module):
    """A small GPT: learned positions, an untied head."""

    def __init__(self, vocabulary: int, context: int, *, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.word, self.place = nn.Embedding(vocabulary, 32), nn.Embedding(context, 32)
        self.blocks = nn.ModuleList(Block(32, 4) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, vocabulary, bias=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.05)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the next characters' logits, `(n, t, vocabulary)`."""
        return self.head(self.norm(self.hidden(ids)))

    def hidden(self, ids: Tensor) -> Tensor:
        """Return what the last block says of each position."""
        x = self.word(ids) + self.place(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return x


class Classifier(nn.Module):
    """A small GPT with a prediction layer on its last position."""

    def __init__(self, text: GPT, classes: int, *, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.text = text
        text.head = nn.Linear(text.head.in_features, classes)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the classes' logits, `(n, classes)`."""
        return self.text.head(self.text.norm(self.text.hidden(ids))[:, -1])


def next_loss(logits: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(logits.transpose(1, 2), targets, reduction="none").mean(1)
