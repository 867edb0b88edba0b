"""An optimizer's next step, and its derivative in the gradient, pulled back."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lai_torch._model.function import Function, Point, inner, view_real

Pull = Callable[[Point], Point]
SUPPORTED = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)
CLIP_EPSILON = 1e-6
"""What `torch.nn.utils.clip_grad_norm_` adds to the norm."""


def check_optimizer(optimizer: Any) -> None:
    """Raise unless the optimizer's step is known."""
    if type(optimizer) not in SUPPORTED:
        names = ", ".join(kind.__name__ for kind in SUPPORTED)
        msg = f"optimizer: expected one of {names} of torch.optim, got {type(optimizer).__name__}"
        raise TypeError(msg)


@dataclass(frozen=True)
class _Moved:
    """One parameter, its group's options, its state before the step, its clipped gradient."""

    name: str
    value: Tensor
    group: dict[str, Any]
    state: dict[str, Any]
    gradient: Tensor


def take_step(
    function: Function,
    point: Point,
    gradients: Point,
    optimizer: torch.optim.Optimizer,
    max_norm: float | None,
) -> tuple[Point, Pull]:
    """Return the parameters after the optimizer's next step, and how a gradient there comes back.

    The step is taken by an optimizer of the same class on copies. What comes back is minus the
    derivative of that step, per unit of the largest learning rate, in the batch's gradient.
    """
    names = {id(parameter): name for name, parameter in function.parameters().items()}
    stepped = [
        (names[id(parameter)], parameter, group)
        for group in optimizer.param_groups
        for parameter in group["params"]
        if id(parameter) in names
    ]
    if not stepped:
        msg = "optimizer: expected one that steps on parameters of the model, got one that holds none of them"
        raise ValueError(msg)
    clipped, unclip = _clip({name: gradients[name] for name, _, _ in stepped}, max_norm)
    after = {**point, **_take(optimizer, names, point, clipped)}
    moved = [
        _Moved(name, point[name], group, optimizer.state.get(parameter, {}), clipped[name])
        for name, parameter, group in stepped
    ]
    largest = max(float(group["lr"]) for group in optimizer.param_groups)

    def vjp(target: Point) -> Point:
        through = {
            one.name: _multiply(_slope(optimizer, one), target[one.name])
            * (float(one.group["lr"]) / largest if largest > 0 else 1.0)
            for one in moved
        }
        direction = unclip(through)
        return {name: direction.get(name, torch.zeros_like(value)) for name, value in point.items()}

    return after, vjp


def measure_step(optimizer: torch.optim.Optimizer) -> float:
    """Return the length of the step that an optimizer would take on `.grad`, without its weight decay."""
    lengths = []
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            state, gradient = optimizer.state.get(parameter, {}), view_real(parameter.grad)
            if group["maximize"]:
                gradient = -gradient
            if isinstance(optimizer, torch.optim.SGD):
                step = _momentum_step(group, state, gradient)
            else:
                step = _adam_step(group, state, gradient)
            lengths.append(float(group["lr"]) * torch.linalg.vector_norm(step.double()))
    if not lengths:
        return 0.0
    return read_norm(torch.linalg.vector_norm(torch.stack(lengths)))


def read_norm(norm: Any) -> float:
    """Return a norm as a number, also where each process holds a part of it."""
    if hasattr(norm, "full_tensor"):
        norm = norm.full_tensor()
    return float(norm)


def _momentum_step(group: dict[str, Any], state: dict[str, Any], gradient: Tensor) -> Tensor:
    """Return SGD's direction, with the momentum that it would have."""
    momentum, buffer = float(group["momentum"]), state.get("momentum_buffer")
    if momentum == 0.0:
        return gradient
    into = gradient
    # the first step fills the buffer with the whole gradient, undamped
    if buffer is not None:
        into = momentum * view_real(buffer) + (1 - float(group["dampening"])) * gradient
    return gradient + momentum * into if group["nesterov"] else into


def _adam_step(group: dict[str, Any], state: dict[str, Any], gradient: Tensor) -> Tensor:
    """Return Adam's direction, with the moments that it would have."""
    first, second = map(float, group["betas"])
    count = float(state.get("step", 0)) + 1
    mean, square = (1 - first) * gradient, (1 - second) * gradient**2
    # the moments start at zero
    if state:
        mean = mean + first * view_real(state["exp_avg"])
        square = square + second * view_real(state["exp_avg_sq"])
    if group["amsgrad"] and state:
        square = torch.maximum(square, view_real(state["max_exp_avg_sq"]))
    root = (square / (1 - second**count)).sqrt() + float(group["eps"])
    return mean / (1 - first**count) / root


def _take(optimizer: torch.optim.Optimizer, names: dict[int, str], point: Point, gradients: Point) -> Point:
    """Let an optimizer of the same class and state step on copies of the parameters."""
    copies: dict[str, nn.Parameter] = {}
    groups = []
    for group in optimizer.param_groups:
        parameters = []
        for parameter in group["params"]:
            name = names.get(id(parameter), "")
            twin = nn.Parameter(point.get(name, parameter).detach().clone())
            # one without a gradient keeps its place: the state is loaded by position
            if name in gradients:
                twin.grad = gradients[name].clone()
                copies[name] = twin
            parameters.append(twin)
        groups.append({**group, "params": parameters})
    twin_optimizer: Any = type(optimizer)(groups)  # type: ignore[call-arg]  # one of SUPPORTED
    twin_optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    twin_optimizer.step()
    return {name: twin.detach() for name, twin in copies.items()}


def _clip(gradients: Point, max_norm: float | None) -> tuple[Point, Pull]:
    """Clip as `clip_grad_norm_` does; also return the transposed derivative of that."""
    if max_norm is None:
        return gradients, lambda target: target
    norm = torch.stack([gradient.norm() for gradient in gradients.values()]).norm()
    factor = max_norm / (norm + CLIP_EPSILON)
    # also of a norm that is NaN
    if not float(factor) < 1.0:
        return gradients, lambda target: target
    clipped = {name: gradient * factor for name, gradient in gradients.items()}

    def vjp(target: Point) -> Point:
        aligned = torch.stack([inner(target[name], gradient) for name, gradient in gradients.items()]).sum()
        shrink = factor / (norm + CLIP_EPSILON) * aligned / norm
        return {name: factor * target[name] - shrink * gradient for name, gradient in gradients.items()}

    return clipped, vjp


def _slope(optimizer: torch.optim.Optimizer, moved: _Moved) -> Tensor | float:
    """Return the entrywise derivative of the step direction in the gradient the optimizer is given."""
    sign = -1.0 if moved.group["maximize"] else 1.0
    if isinstance(optimizer, torch.optim.SGD):
        return sign * _momentum_slope(moved.group, moved.state)
    return sign * _adam_slope(optimizer, moved)


def _momentum_slope(group: dict[str, Any], state: dict[str, Any]) -> float:
    """SGD: `1 - dampening` into the buffer, which starts with the whole gradient; Nesterov looks ahead."""
    momentum = float(group["momentum"])
    if momentum == 0.0:
        return 1.0
    into = 1.0 if state.get("momentum_buffer") is None else 1.0 - float(group["dampening"])
    return 1.0 + momentum * into if group["nesterov"] else into


def _multiply(slope: Tensor | float, target: Tensor) -> Tensor:
    found = slope * view_real(target)
    return torch.view_as_complex(found) if target.is_complex() else found


def _adam_slope(optimizer: torch.optim.Optimizer, moved: _Moved) -> Tensor:
    r"""Adam's :math:`Q`: the first moment's share, minus what the second moment takes back."""
    group, state = moved.group, moved.state
    first_decay, second_decay = (float(decay) for decay in group["betas"])
    epsilon = float(group["eps"])
    gradient = view_real(moved.gradient)
    if group["maximize"]:
        gradient = -gradient
    decoupled = isinstance(optimizer, torch.optim.AdamW) or group.get("decoupled_weight_decay", False)
    # decay within the gradient goes through both moments; AdamW's does not
    if group["weight_decay"] and not decoupled:
        gradient = gradient + float(group["weight_decay"]) * view_real(moved.value)
    nothing = torch.zeros_like(moved.gradient)
    before = [view_real(state.get(key, nothing)) for key in ("exp_avg", "exp_avg_sq")]
    steps = float(state.get("step", 0.0)) + 1.0
    first = first_decay * before[0] + (1.0 - first_decay) * gradient
    second = second_decay * before[1] + (1.0 - second_decay) * gradient**2
    moves = torch.ones_like(second)
    if group["amsgrad"]:
        largest = view_real(state.get("max_exp_avg_sq", nothing))
        moves = (second > largest).to(second)  # an older maximum does not move with this gradient
        second = torch.maximum(second, largest)
    corrections = [1.0 - decay**steps for decay in (first_decay, second_decay)]
    root = (second / corrections[1]).sqrt()
    mean = first / corrections[0]
    share = (1.0 - first_decay) / (corrections[0] * (root + epsilon))
    taken = mean * (1.0 - second_decay) * gradient / (corrections[1] * root * (root + epsilon) ** 2)
    return share - torch.where(root > 0, taken, torch.zeros_like(taken)) * moves
