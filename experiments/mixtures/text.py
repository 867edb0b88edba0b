"""Six sources of text for a small GPT, one of them right and in the domain."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap

from experiments.data import prose
from experiments.mixtures.arms import Batch, Record, Task, errors, losses
from experiments.networks import GPT

CONTEXT, SAMPLES = 16, 2000
SOURCES = ("prose, scarce", "prose, 30% wrong", "prose, 60% wrong", "code", "shuffled", "loop")


def task(seeds: Sequence[int], steps: int | None = None, held: int = 64) -> Task:
    """Return the sources of some seeds: 3,000 characters of prose, and plenty of five other kinds."""
    parts = [_drawn(np.random.default_rng((seed, 31)), held) for seed in seeds]
    training, validation, test = (torch.from_numpy(np.stack(each)) for each in zip(*parts, strict=True))
    return Task(
        *_pair(training),
        SOURCES,
        (SAMPLES,) * len(SOURCES),
        (_pair(validation),),
        (_pair(test),),
        ((1, 1, 0, 1, 0, 0),),
        partial(GPTs, len(prose.alphabet()) + 1, CONTEXT, seeds),
        300 if steps is None else steps,
        batch=32,
        mixed_in=8,
        rate=3e-3,
    )


def _pair(ids: Tensor) -> Batch:
    return ids[..., :-1].contiguous(), ids[..., 1:].contiguous()


def _drawn(random: np.random.Generator, held: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the sources one after the other, the validation set and the test set."""
    text = prose.prose()
    cut = len(text) * 8 // 10

    def draw(text: str, count: int = SAMPLES) -> np.ndarray:
        return prose.windows(text, count, CONTEXT + 1, random)

    def wrong(ids: np.ndarray, share: float) -> np.ndarray:
        return np.where(random.random(ids.shape) < share, random.choice(known, ids.shape), ids)

    known = np.unique(prose.numbers(text))
    start, line = random.integers(0, cut - 3000, 2)
    found = [
        draw(text[start : start + 3000]),
        wrong(draw(text[:cut]), 0.3),
        wrong(draw(text[:cut]), 0.6),
        draw(prose.code()),
        random.permuted(draw(text[:cut]), axis=1),
        draw(text[line : line + 63] * 10),
    ]
    return np.concatenate(found), draw(text[cut:], held), draw(text[cut:], 300)


class Reader(GPT):
    """A small GPT that returns its last layer's input as well."""

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """Return the last layer's input and the logits."""
        given = self.norm(self.hidden(ids))
        return given, self.head(given)


class GPTs:
    """Small GPTs."""

    def __init__(self, vocabulary: int, context: int, seeds: Sequence[int], *, width: int = 32) -> None:
        self.module = Reader(vocabulary, context, width=width)
        made = [Reader(vocabulary, context, width=width, seed=seed) for seed in seeds]
        self.parameters, _ = stack_module_state(made)
        self.optimizer = torch.optim.Adam(self.parameters.values(), betas=(0.9, 0.95))
        self.recorded: Record = []
        blocks = sum(
            part.weight.numel() for part in self.module.modules() if isinstance(part, torch.nn.Linear)
        )
        self.costs = {"lli": width * vocabulary / blocks}

    def _forward(self, parameters: dict[str, Tensor], inputs: Tensor) -> tuple[Tensor, Tensor]:
        return functional_call(self.module, parameters, (inputs,))

    def logits(self, inputs: Tensor) -> Tensor:
        """Return outputs."""
        with torch.no_grad():
            return vmap(self._forward)(self.parameters, inputs)[1]

    def record(self, batch: Batch) -> Record:
        """Return the last layer's inputs and output gradients."""
        with torch.no_grad():
            given, outputs = vmap(self._forward)(self.parameters, batch[0])
            return [(given, errors(outputs, batch[1]))]

    def step(self, batch: Batch, weights: Tensor, rate: float) -> Tensor:
        """Take a step of Adam."""
        self.optimizer.zero_grad()
        given, outputs = vmap(self._forward)(self.parameters, batch[0])
        found = losses(outputs, batch[1])
        (found * weights).sum().backward()
        self.recorded = [(given.detach(), errors(outputs.detach(), batch[1]))]
        self.optimizer.param_groups[0]["lr"] = rate
        self.optimizer.step()
        return found.detach()
