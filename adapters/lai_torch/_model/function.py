"""The losses of a batch, and their function of everything that trains, on the user's own parameters."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from lai_torch._model.batch import Loss, call, check_losses, count, rows, tensors, usable
from lai_torch._model.modes import renew
from lai_torch._model.preserve import preserve
from lai_torch._model.snapshot import check_returned, count_writes
from lai_torch._model.walk import list_parameters, modules_of


def losses_of(model: nn.Module, loss: Loss, batch: tuple[Any, Any]) -> Any:
    """Return what a loss makes of a batch; lists and dictionaries of it may be taken apart.

    Raises
    ------
    ValueError
        If the model or the loss writes to a tensor of the batch, as autograd counts writes.
    """
    before = _versions(batch)
    inputs, targets = _copy_containers(batch)
    losses = loss(call(model, inputs), targets)
    # the next pass would see another batch
    if before != _versions(batch):
        msg = (
            "inputs, targets: expected a model and a loss that leave the batch as it is, got ones that write "
            "to it in place; write to a copy (x = x.clone())"
        )
        raise ValueError(msg)
    return losses


def _copy_containers(tree: Any) -> Any:
    """Copy the lists and dictionaries of a batch, not the tensors, so that a model may pop entries."""
    if type(tree) is dict:
        return {key: _copy_containers(part) for key, part in tree.items()}
    if type(tree) in {list, tuple}:
        return type(tree)(_copy_containers(part) for part in tree)
    return tree


def _versions(batch: Any) -> list[int]:
    """Count the writes to each tensor of a batch; those made in inference mode are not counted."""
    with torch._C.DisableTorchFunction():  # a recorder would look at each of these questions
        return [count_writes(one) for one in tensors(batch)]


Point = dict[str, Tensor]
"""One tensor per trainable parameter, by name."""


class UnusableError(ValueError):
    """A validation batch that no summary can be made of, though the next one may do."""


class Function:
    """The losses of a batch, and what they are a function of.

    Nothing is called on stand-ins: parameters are moved, or carry tangents, where they are, so that the
    model, the loss, and whatever else holds one of them see the same. What trains is asked anew at each
    use, for parameters are frozen and unfrozen during training.
    """

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        self.model, self.loss = model, loss

    def parameters(self) -> dict[str, nn.Parameter]:
        """Return what trains, by name; the loss's own are called `loss.NAME`."""
        named = list_parameters(self.model, self.loss)
        trainable = {name: parameter for name, parameter in named.items() if parameter.requires_grad}
        for name, parameter in trainable.items():
            if parameter.layout != torch.strided:
                msg = (
                    f"model: expected dense parameters, got {name!r} of layout {parameter.layout}; make its "
                    "values the parameter, and the sparse matrix of them in forward"
                )
                raise ValueError(msg)
        if not trainable:
            msg = "model: expected at least one trainable parameter, got none"
            raise ValueError(msg)
        return trainable

    def point(self) -> Point:
        return {name: parameter.detach().clone() for name, parameter in self.parameters().items()}

    @contextmanager
    def set_parameters(self, point: Point) -> Iterator[None]:
        """Run the body with the parameters at `point`, then put them back to the bit."""
        parameters, start = self.parameters(), self.point()
        try:
            for name, value in point.items():
                parameters[name].data.copy_(value)  # graphs that saved it never see it there
            renew(self.model)
            yield
        finally:
            for name, value in start.items():
                parameters[name].data.copy_(value)
            renew(self.model)

    @contextmanager
    def preserve(self) -> Iterator[None]:
        """Leave nothing of the body behind; hooks run, as in training, and attention is not fused.

        Raises
        ------
        ValueError
            If a reverse pass writes `.grad` by itself, where it cannot be told whose it is.
        """
        fast = torch.backends.mha.get_fastpath_enabled()
        # fused kernels have no forward mode
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            with preserve(self.model, self.loss, hooks=True), sdpa_kernel(SDPBackend.MATH):
                yield
                check_returned(list_parameters(self.model, self.loss))
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)

    def __call__(self, batch: tuple[Any, Any]) -> Tensor:
        """Return the losses `(n,)`."""
        batch = usable(batch)
        return check_losses(losses_of(self.model, self.loss, batch), count(*batch))


def gradient(function: Function, batch: tuple[Any, Any], **options: Any) -> Point:
    """Return the gradient of the mean or summed losses, all of which count; see `finite_gradient`."""
    found = finite_gradient(function, batch, every=True, **options)
    assert found is not None  # there is a sample
    return found


def finite_gradient(
    function: Function,
    batch: tuple[Any, Any],
    *,
    reduction: str,
    size: int | None = None,
    role: str = "validation",
    every: bool = False,
    used: bool = False,
) -> Point | None:
    """Return the gradient over the samples whose loss is finite, or `every` sample; None if there are none.

    Of the parameters that the losses depend on, if only those `used` are asked for: an optimizer leaves the
    others as they are, whose `.grad` is None.

    It is what reverse mode gives on the user's own model, hooks and custom backward passes included, `size`
    rows at a time where nothing couples them.
    """
    samples, parameters, counted = count(*batch), function.parameters(), 0
    # BatchNorm would normalise each chunk by itself, in a loss, too
    loss = function.loss if isinstance(function.loss, nn.Module) else nn.Identity()
    in_loss = loss.training and next(loss.buffers(), None) is not None
    if size is None or in_loss or any(module.training for module in modules_of(function.model)):
        size = samples
    total = {name: torch.zeros_like(parameter) for name, parameter in parameters.items()}
    reached = set()
    for start in range(0, samples, size):
        part = rows(batch, slice(start, start + size), samples)
        with function.preserve():
            losses = function(part)
            finite = torch.isfinite(losses) | every
            whole = bool(finite.all())
            if whole:
                found = vjp(losses, torch.ones_like(losses), parameters)
        kept = int(finite.sum())
        if not kept:
            continue
        counted += kept
        if not whole:  # an infinite loss would spoil the sum
            part = rows(part, finite.nonzero().squeeze(1), len(losses))
            with function.preserve():
                losses = function(part)
                found = vjp(losses, torch.ones_like(losses), parameters)
        for name, piece in zip(total, found, strict=True):
            if piece is not None:
                total[name] += densify(piece)
                reached.add(name)
    if not counted:
        return None
    if used:
        total = {name: value for name, value in total.items() if name in reached}
    for name, value in total.items():
        if not bool(torch.isfinite(value).all()):
            msg = f"{role}: expected a finite gradient of the losses, got one that is not for {name!r}"
            raise UnusableError(msg)
    if reduction == "mean":
        return {name: value / counted for name, value in total.items()}
    return total


def densify(gradient: Tensor) -> Tensor:
    if gradient.is_nested:
        return gradient.values() if gradient.layout == torch.jagged else gradient.to_padded_tensor(0.0)
    return gradient.to_dense()  # as it is where it is dense


def view_real(tensor: Tensor) -> Tensor:
    """Return a complex tensor as real and imaginary parts, each a number that moves by itself."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def vjp(
    losses: Tensor, weights: Tensor, parameters: dict[str, nn.Parameter], **options: bool
) -> tuple[Tensor | None, ...]:
    """Return the gradient of the weighted sum of the losses by one reverse pass; None where there is none."""
    if not losses.requires_grad:
        return (None,) * len(parameters)
    return torch.autograd.grad(losses, list(parameters.values()), weights, allow_unused=True, **options)


def project(pieces: Iterable[Tensor | None], directions: Iterable[Tensor]) -> tuple[float, float]:
    """Return the inner product of a gradient with a direction, and the sum of its terms' absolute values."""
    value = size = 0.0
    for piece, direction in zip(pieces, directions, strict=True):
        if piece is not None:
            products = real_product(piece, direction).double()
            value, size = value + float(products.sum()), size + float(products.abs().sum())
    return value, size


def real_product(left: Tensor, right: Tensor) -> Tensor:
    """Return the products of entries, of real and imaginary parts by themselves, never sparse."""
    left, right = densify(left), densify(right)
    if left.is_complex():
        left, right = (torch.view_as_real(one.resolve_conj()) for one in (left, right))
    return left * right
