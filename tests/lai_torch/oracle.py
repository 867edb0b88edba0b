"""What torch itself says: one backward pass per sample, no code of ours."""

from typing import Any

import torch
from torch import Tensor, nn


def sample(tree: Any, index: int, samples: int) -> Any:
    """Sample `index` of a nested batch, as a batch of one."""
    if isinstance(tree, Tensor):
        return tree[index : index + 1] if tree.ndim and tree.shape[0] == samples else tree
    if isinstance(tree, dict):
        return {key: sample(value, index, samples) for key, value in tree.items()}
    return tuple(sample(part, index, samples) for part in tree) if isinstance(tree, tuple) else tree


def per_sample_gradients(model: nn.Module, loss: Any, inputs: Any, targets: Any, samples: int) -> Tensor:
    """`(n, parameters)`: gradients of each sample's loss for all trainable parameters, in a plain loop."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    found = []
    for index in range(samples):
        one = sample(inputs, index, samples)
        outputs = (
            model(one) if isinstance(one, Tensor) else model(**one) if isinstance(one, dict) else model(*one)
        )
        value = loss(outputs, sample(targets, index, samples)).sum()
        gradients = torch.autograd.grad(value, parameters, allow_unused=True)
        pairs = zip(gradients, parameters, strict=True)
        found.append(torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for g, p in pairs]))
    return torch.stack(found)


def exact_kernel(model: nn.Module, loss: Any, inputs: Any, targets: Any, samples: int) -> Tensor:
    """`(n, n)` inner products of the samples' gradients."""
    gradients = per_sample_gradients(model, loss, inputs, targets, samples)
    return gradients @ gradients.T
