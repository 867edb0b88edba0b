"""Forward passes in fewer digits, and what a rounding of the parameters does to the losses."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._pytree import tree_map

from lai_core._adapters import rounding_bound
from lai_torch._model.walk import Held


@contextmanager
def lower_precision(model: nn.Module, kind: torch.dtype | None) -> Iterator[None]:
    """Let a model's forward pass compute by autocast; what it returns, and what follows, has all digits.

    As trainers of mixed precision do it: the forward function is another one meanwhile.
    """
    if kind is None:
        yield
        return
    own, before = model.forward, vars(model).get("forward")  # where somebody has put another one before

    def forward(*inputs: Any, **named: Any) -> Any:
        with torch.autocast(next(model.parameters()).device.type, kind):
            outputs = own(*inputs, **named)
        return raise_precision(outputs, kind)

    try:
        model.forward = forward
        yield
    finally:
        if before is None:
            vars(model).pop("forward", None)
        else:
            model.forward = before


def raise_precision(outputs: Any, kind: torch.dtype | None) -> Any:
    """Return what a model returned, tensors of a type of fewer digits in full precision."""
    return tree_map(
        lambda leaf: leaf.float() if isinstance(leaf, Tensor) and leaf.dtype == kind else leaf, outputs
    )


def float8_linear() -> type[nn.Module] | None:
    """Return the class of torchao's layers that train in float8; None where it is not loaded."""
    return getattr(sys.modules.get("torchao.float8.float8_linear"), "Float8Linear", None)


def _find_float8(held: Held) -> list[Any]:
    kind = float8_linear() or ()
    return [one for one in held.modules if isinstance(one, kind)]


@contextmanager
def float8_layers(held: Held, *, trained: bool) -> Iterator[None]:
    """Let torchao's float8 layers of a model compute as they are `trained`, or without float8's rounding.

    Without it they are products that a recorder reads: a layer's own forward function casts and multiplies
    inside of a `torch.autograd.Function`, which hides them.
    """
    layers = held.memoise(_find_float8)
    if not layers:
        yield
        return
    kind: Any = float8_linear()
    before = [vars(one).get("forward") for one in layers]
    for own in before:
        # what is put in its place would leave out what that one does
        if own is not None and getattr(own, "func", None) not in {_compute_unrounded, kind.forward}:
            msg = (
                "model: expected float8 layers that run torchao's forward function, got one with a forward "
                "function of its own; put the layer in a module that wraps it"
            )
            raise ValueError(msg)
    try:
        forward = kind.forward if trained else _compute_unrounded
        for one in layers:
            one.forward = partial(forward, one)
        yield
    finally:
        for one, own in zip(layers, before, strict=True):
            # the class's own is found again once the instance has none
            if own is None:
                vars(one).pop("forward", None)
            else:
                one.forward = own


def _compute_unrounded(layer: Any, input: Tensor) -> Tensor:
    if any(map(sys.modules[type(layer).__module__].tensor_already_casted_to_fp8, (input, layer.weight))):
        msg = (
            "model: expected float8 layers that cast inputs and weights by themselves, got one that is "
            "given float8; shard by fully_shard in place of torchao's float8 tensor parallelism"
        )
        raise ValueError(msg)
    return functional.linear(input, layer.weight, layer.bias)


@contextmanager
def zeros_filled(parameters: Iterable[Tensor]) -> Iterator[None]:
    """Put random values into parameters that are zero everywhere.

    A gate or a head that starts at zero hides what it multiplies until the first step. DTensors stay as they
    are.
    """
    zeros = [one for one in parameters if one.is_floating_point() and one.numel()]
    zeros = [one for one in zeros if not hasattr(one, "device_mesh") and not bool(one.detach().any())]
    generator = torch.Generator().manual_seed(0)
    try:
        for one in zeros:
            one.data.copy_(torch.randn(one.shape, generator=generator, device="cpu"))
        yield
    finally:
        for one in zeros:
            one.data.zero_()


def differ(found: Tensor, expected: Tensor, within: float | Tensor) -> bool:
    """Whether two arrays differ by more than `within` where what is expected is finite."""
    same = (found - expected).abs() <= within
    return not bool((same | ~torch.isfinite(expected)).all())


DRAWS = 3
"""How many times parameters are moved: by chance, one move may leave a loss where it is."""


def measure_roundings(losses: Callable[[], Tensor], parameters: Iterable[Tensor], precision: float) -> Tensor:
    """Return by how much rounding may move each sample's loss; zeros where two runs do not agree.

    It is measured, for losses near zero do not tell: one of (o - t)^2 is off by 2 |o - t| times what the
    output o is off by, and by the square of that.

    A layer's rounded output is the exact one of parameters that are off by a rounding each (Higham, Accuracy
    and Stability of Numerical Algorithms, section 3.5: the backward error of a product). So the losses at
    parameters that are moved by `precision` at random, to either side, show what one rounding does to each
    loss, and `rounding_bound` how much more all of them may do. Where every draw happens to move a loss by
    little, the root mean square over the samples counts. A logarithm near one, in which a cross-entropy ends,
    is rounded to units of one.

    Parameters
    ----------
    losses
        Runs the model on one batch: `(n,)`, the same random numbers at every call.
    parameters
        What the model reads; they are put back.
    precision
        Distance from 1 to the next number, of the coarsest type that the model computes in.
    """
    moved = [one for one in parameters if one.is_floating_point()]
    start, generator = [one.detach().clone() for one in moved], torch.Generator("cpu").manual_seed(0)
    own, again = losses().detach(), losses().detach()
    found = torch.zeros_like(own, dtype=torch.float64)
    if differ(again, own, rounding_bound(precision, float(torch.nan_to_num(own).abs().max()))):
        return found  # what changes from call to call shows no rounding
    try:
        for _ in range(DRAWS):
            for one, held in zip(moved, start, strict=True):
                signs = torch.randint(2, held.shape, generator=generator, device="cpu").to(held) * 2 - 1
                one.data.copy_(held * (1 + precision * signs))
            found = torch.maximum(found, (losses().detach().double() - own.double()).abs())
    finally:
        for one, held in zip(moved, start, strict=True):
            one.data.copy_(held)
    found = torch.where(torch.isfinite(found), found, 0.0)
    typical = found.square().mean().sqrt().clamp(min=torch.finfo(own.dtype).eps)
    return rounding_bound(1.0, 1.0) * torch.maximum(found, typical)
