"""What tests of the torch adapter are built on: a loss, batches, a small network, a curator around it."""

import lai_torch
import torch
from torch import nn

from tests.support.fixtures import HALF as HALF
from tests.support.torch_modules import held, holding
from tests.support.workloads.torch_oracle import per_sample_gradients

LOSS = nn.CrossEntropyLoss(reduction="none")


def randn(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def labels(n):
    return torch.arange(n) % 3


def batch(n, *shape):
    return randn(n, *shape), labels(n)


def data(n):
    """Draw vectors of four, whose class can be learnt from them."""
    inputs = randn(n, 4)
    return inputs, inputs[:, :3].argmax(1)


def drawn(n, seed=1):
    """Draw vectors of four by a seed, each with one of three classes."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(n, 4, generator=generator, dtype=torch.float64)
    return inputs, torch.randint(3, (n,), generator=generator)


def plain(tree):
    """Return nested containers with lists for tensors, which compare bit for bit."""
    if isinstance(tree, torch.Tensor):
        return str(tree.dtype), str(tree.tolist())  # in words NaN is NaN
    if isinstance(tree, dict):
        return {key: plain(value) for key, value in tree.items()}
    return [plain(part) for part in tree] if isinstance(tree, list | tuple) else tree


def drawn_sketch(seed, outputs):
    """Return signs and permutation of the sketch of a seed."""
    generator = torch.Generator().manual_seed(seed)
    signs = torch.randint(2, (outputs,), generator=generator) * 2 - 1
    return signs, torch.randperm(outputs, generator=generator)


def network(*between, outputs=3):
    return nn.Sequential(nn.Linear(4, 8), *between, nn.ReLU(), nn.Linear(8, outputs)).double()


def sgd(model, lr=0.1):
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)


def curated(model, validation, loss=LOSS, lr=0.1, **options):
    return lai_torch.Curator(model, loss, sgd(model, lr), validation, **options)


def by_autograd(model, validation, training, loss=LOSS):
    """Return exact scores by one reverse pass a sample."""
    sides = (per_sample_gradients(model, loss, *side, len(side[1])) for side in (validation, training))
    of_validation, of_training = sides
    return of_training @ of_validation.sum(0)


@holding(lambda model: held(model=model))
def in_bfloat16(own, inputs):
    """Apply a model that switches autocast on by itself, and returns float32."""
    with torch.autocast("cpu", torch.bfloat16):
        outputs = own.model(inputs)
    return outputs.float()


@holding(lambda: held(memory=nn.GRU(4, 5, batch_first=True), head=nn.Linear(5, 3)))
def recurrent(own, inputs):
    """Classify a sequence by a recurrent layer, which no trace follows."""
    return own.head(own.memory(inputs)[0][:, -1])
