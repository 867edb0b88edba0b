"""What torch itself says: one backward pass per sample, no code of this project."""

from typing import Any

import torch
from torch import Tensor, nn


def rows(tree: Any, index: slice, samples: int) -> Any:
    """Cut some samples out of a nested batch."""
    if isinstance(tree, Tensor):
        return tree[index] if tree.ndim and tree.shape[0] == samples else tree
    if isinstance(tree, dict):
        return {key: rows(value, index, samples) for key, value in tree.items()}
    return tuple(rows(part, index, samples) for part in tree) if isinstance(tree, tuple) else tree


def sample(tree: Any, index: int, samples: int) -> Any:
    """Sample `index` of a nested batch, as a batch of one."""
    return rows(tree, slice(index, index + 1), samples)


def called(model: nn.Module, inputs: Any) -> Any:
    """Call a model on a tensor, or on several by place or by name."""
    if isinstance(inputs, dict):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, tuple) else model(inputs)


def per_sample_gradients(model: nn.Module, loss: Any, inputs: Any, targets: Any, samples: int) -> Tensor:
    """`(n, parameters)`: gradients of each sample's loss for all trainable parameters, in a plain loop."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    found = []
    for index in range(samples):
        one = sample(inputs, index, samples)
        value = loss(called(model, one), sample(targets, index, samples)).sum()
        gradients = torch.autograd.grad(value, parameters, materialize_grads=True)
        found.append(torch.cat([one.flatten() for one in gradients]))
    return torch.stack(found)


def exact_kernel(model: nn.Module, loss: Any, inputs: Any, targets: Any, samples: int) -> Tensor:
    """`(n, n)` inner products of the samples' gradients."""
    gradients = per_sample_gradients(model, loss, inputs, targets, samples)
    return gradients @ gradients.T
