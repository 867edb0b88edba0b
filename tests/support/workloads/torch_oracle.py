"""What torch itself says: one forward and one backward pass per sample, no code of this project."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only


def rows(tree: Any, index: Tensor | slice | list[int], samples: int) -> Any:
    cut = lambda one: one[index] if one.ndim and one.shape[0] == samples else one  # noqa: E731
    return tree_map_only(Tensor, cut, tree)


def called(model: nn.Module, inputs: Any) -> Any:
    """Call a model on a tensor, or on several by place or by name."""
    if isinstance(inputs, dict):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, tuple) else model(inputs)


def sample_gradients(
    model: nn.Module,
    loss: Any,
    inputs: Any,
    targets: Any,
    samples: int,
    *,
    copies: int = 1,
    read: Callable[[Any], Sequence[Tensor]] = lambda outputs: (),
) -> Iterator[tuple[Tensor | None, ...]]:
    """Yield each sample's gradients of the trainable parameters, and of what `read` of the outputs returns.

    A sample may go through the model beside copies of itself. None stands for a gradient that is zero because
    the loss does not depend on the tensor.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    for index in range(samples):
        given, expected = (rows(side, [index] * copies, samples) for side in (inputs, targets))
        outputs = called(model, given)
        value = loss(outputs, expected).sum() / copies
        wanted = [*parameters, *read(outputs)]
        if value.requires_grad:
            yield torch.autograd.grad(value, wanted, allow_unused=True)
        else:
            yield (None,) * len(wanted)


def per_sample_gradients(model: nn.Module, loss: Any, inputs: Any, targets: Any, samples: int) -> Tensor:
    """`(n, parameters)`: gradients of each sample's loss for all trainable parameters, in a plain loop."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    found = []
    for gradients in sample_gradients(model, loss, inputs, targets, samples):
        pairs = zip(gradients, parameters, strict=True)
        found.append(torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for g, p in pairs]))
    return torch.stack(found)


def exact_kernel(model: nn.Module, loss: Any, inputs: Any, targets: Any, samples: int) -> Tensor:
    """`(n, n)` inner products of the samples' gradients."""
    gradients = per_sample_gradients(model, loss, inputs, targets, samples)
    return gradients @ gradients.T
