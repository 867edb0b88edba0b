"""An optimizer's next step, and its derivative in the gradient, pulled back by autograd."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lai_torch._model.function import Function, Point, view_real

Pull = Callable[[Point], Point]
SUPPORTED = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)
CLIP_EPSILON = 1e-6
"""What `torch.nn.utils.clip_grad_norm_` adds to the norm."""


def check_optimizer(optimizer: Any) -> None:
    if type(optimizer) not in SUPPORTED:
        names = ", ".join(kind.__name__ for kind in SUPPORTED)
        msg = f"optimizer: expected one of {names} of torch.optim, got {type(optimizer).__name__}"
        raise TypeError(msg)


def take_step(
    function: Function,
    point: Point,
    gradients: Point,
    optimizer: torch.optim.Optimizer,
    max_norm: float | None,
) -> tuple[Point, Pull]:
    """Return the parameters after the optimizer's next step, and how a gradient there comes back.

    It steps on the parameters that have a gradient. What comes back is minus the derivative of that step, per
    unit of the largest learning rate, in the batch's gradient.
    """
    names = {id(parameter): name for name, parameter in function.parameters().items()}
    stepped = {
        names[id(parameter)]: (group, optimizer.state.get(parameter, {}))
        for group in optimizer.param_groups
        for parameter in group["params"]
        if names.get(id(parameter)) in gradients
    }
    if not stepped:
        msg = (
            "optimizer: expected one that steps on parameters that the batch's losses depend on, got one "
            "that holds none of them"
        )
        raise ValueError(msg)
    with torch.inference_mode(mode=False), torch.enable_grad():
        leaves = {name: gradients[name].clone().requires_grad_() for name in stepped}
        clipped = leaves
        if max_norm is not None:
            norms = torch.stack([one.norm() for one in leaves.values()])
            factor = max_norm / (norms.norm() + CLIP_EPSILON)  # as `clip_grad_norm_` has it
            # not of a norm that is NaN
            if float(factor.detach()) < 1.0:
                clipped = {name: one * factor for name, one in leaves.items()}
        directions = {
            name: _find_direction(optimizer, *options, clipped[name], point[name])
            for name, options in stepped.items()
        }
    after = dict(point)
    for name, (group, _) in stepped.items():
        start, decay = view_real(point[name]), 0.0
        if _is_decoupled(optimizer, group):
            decay = float(group["weight_decay"])
        moved = start - float(group["lr"]) * (directions[name].detach() + decay * start)
        after[name] = torch.view_as_complex(moved) if point[name].is_complex() else moved
    largest = max(float(group["lr"]) for group in optimizer.param_groups)

    def vjp(target: Point) -> Point:
        shares = [float(group["lr"]) / largest if largest > 0 else 1.0 for group, _ in stepped.values()]
        targets = [share * view_real(target[name]) for share, name in zip(shares, stepped, strict=True)]
        found = torch.autograd.grad([*directions.values()], [*leaves.values()], targets, retain_graph=True)
        direction = dict(zip(leaves, found, strict=True))
        return {name: direction.get(name, torch.zeros_like(value)) for name, value in point.items()}

    return after, vjp


def measure_step(optimizer: torch.optim.Optimizer) -> float:
    """Return the length of the step that an optimizer would take on `.grad`, without its weight decay."""
    lengths = []
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                state = optimizer.state.get(parameter, {})
                step = _find_direction(optimizer, group, state, parameter.grad)
                lengths.append(float(group["lr"]) * torch.linalg.vector_norm(step.double()))
    if not lengths:
        return 0.0
    return read_norm(torch.linalg.vector_norm(torch.stack(lengths)))


def read_norm(norm: Any) -> float:
    """Return a norm as a number, also where each process holds a part of it."""
    if hasattr(norm, "full_tensor"):
        norm = norm.full_tensor()
    return float(norm)


def _is_decoupled(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> bool:
    """Whether weight decay is a part of the step, as AdamW's is, and not of the gradient."""
    return isinstance(optimizer, torch.optim.AdamW) or bool(group.get("decoupled_weight_decay", False))


def _find_direction(
    optimizer: torch.optim.Optimizer,
    group: dict[str, Any],
    state: dict[str, Any],
    gradient: Tensor,
    value: Tensor | None = None,
) -> Tensor:
    """Return what a parameter moves by per unit of its learning rate, backwards; of complex ones, real parts.

    A `value` adds the weight decay that is within the gradient, and so goes through the moments.
    """
    gradient = view_real(gradient)
    if group["maximize"]:
        gradient = -gradient
    if value is not None and group["weight_decay"] and not _is_decoupled(optimizer, group):
        gradient = gradient + float(group["weight_decay"]) * view_real(value)
    if not isinstance(optimizer, torch.optim.SGD):
        return _adam_step(group, state, gradient)
    momentum, buffer, into = float(group["momentum"]), state.get("momentum_buffer"), gradient
    # the first step fills the buffer with the whole gradient, undamped; without momentum there is none
    if momentum and buffer is not None:
        into = momentum * view_real(buffer) + (1 - float(group["dampening"])) * gradient
    if momentum and group["nesterov"]:
        return gradient + momentum * into
    return into


def _adam_step(group: dict[str, Any], state: dict[str, Any], gradient: Tensor) -> Tensor:
    """Return Adam's direction, with the moments that it would have."""
    first, second = map(float, group["betas"])
    count = float(state.get("step", 0)) + 1
    mean, square = (1 - first) * gradient, (1 - second) * gradient**2
    # the moments start at zero
    if state:
        mean = mean + first * view_real(state["exp_avg"])
        square = square + second * view_real(state["exp_avg_sq"])
    # an older maximum does not move with this gradient
    if group["amsgrad"] and state:
        largest = view_real(state["max_exp_avg_sq"])
        square = torch.where(square > largest, square, largest)
    # a root has no derivative at zero, where the gradient has been zero so far
    some = square > 0
    root = torch.where(some, torch.where(some, square / (1 - second**count), 1.0).sqrt(), 0.0)
    return mean / (1 - first**count) / (root + float(group["eps"]))
