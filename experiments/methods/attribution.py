"""Attribution at a fitted network: gradients, solves by a curvature, votes of neighbours, sure labels."""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jvp, vjp, vmap

from experiments.data.digits import Batch
from experiments.methods.base import LOSS


def sample_gradients(model: nn.Module, loss: Callable[..., Tensor], batch: Batch) -> dict[str, Tensor]:
    """Return each sample's gradient of each parameter, `(n, ...)`."""
    point = {name: value.detach() for name, value in model.named_parameters()}

    def one(at: dict[str, Tensor], inputs: Tensor, targets: Tensor) -> Any:
        return loss(functional_call(model, at, (inputs[None],)), targets[None])[0]

    return vmap(grad(one), in_dims=(None, 0, 0))(point, *batch)


def flat_gradients(model: nn.Module, batch: Batch, loss: Callable[..., Tensor] = LOSS) -> Tensor:
    """Return each sample's gradient of all parameters, `(n, p)`."""
    return torch.cat([each.flatten(1) for each in sample_gradients(model, loss, batch).values()], 1)


def curvature_product(model: nn.Module, batch: Batch) -> Callable[[Tensor], Tensor]:
    """Return the product with the Gauss-Newton matrix of the mean loss: the Hessian's part with no sign."""
    point = {name: value.detach() for name, value in model.named_parameters()}

    def outputs(at: dict[str, Tensor]) -> Any:
        return functional_call(model, at, (batch[0],))

    def product(direction: Tensor) -> Tensor:
        parts = direction.split([value.numel() for value in point.values()])
        moved = {name: part.view_as(value) for (name, value), part in zip(point.items(), parts, strict=True)}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*torch.jit.script.*", DeprecationWarning)  # torch's own rules
            logits, change = jvp(outputs, (point,), (moved,))
        p = logits.softmax(1)
        turned = p * (change - (p * change).sum(1, keepdim=True)) / len(logits)
        (found,) = vjp(outputs, point)[1](turned)
        return torch.cat([found[name].flatten() for name in point])

    return product


def series(product: Callable[[Tensor], Tensor], direction: Tensor, *, damping: float, steps: int) -> Tensor:
    """Solve `(C + damping) x = direction` by the Neumann series, scaled by C's largest eigenvalue."""
    vector = direction
    for _ in range(10):  # the power method: a little below the largest eigenvalue
        vector = product(vector / vector.norm())
    scale = 1.2 * float(vector.norm()) + damping
    found = direction / scale
    for _ in range(steps):
        found = found + (direction - product(found) - damping * found) / scale
    return found


def mean_of_inverses(direction: Tensor, gradients: Tensor, *, damping: float) -> Tensor:
    """Return `direction' mean_i (g_i g_i' + damping)^-1 g_j` of each j."""
    along = gradients @ direction[:, None]
    shrunk = along / (damping + gradients.square().sum(1, keepdim=True))
    return ((along - gradients @ (gradients.T @ shrunk) / len(gradients)) / damping).squeeze(1)


def margin(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the log-odds of the labels as given, `(n,)`."""
    right = outputs.gather(1, targets[:, None])
    others = outputs.scatter(1, targets[:, None], -torch.inf).logsumexp(1)
    return right.squeeze(1) - others


def projected_values(model: nn.Module, own: Batch, held: Batch, *, width: int, seed: int) -> Tensor:
    """Return `(n,)`: TRAK of one network, what each sample adds to a validation set's summed log-odds.

    With features `F`, the projected gradients of the log-odds, it is `f' (F'F)^-1 F'`, each column times the
    chance that the label as given is wrong (Park et al. 2023).
    """
    generator = torch.Generator().manual_seed(seed)
    parameters = sum(value.numel() for value in model.parameters())
    projection = torch.randn(parameters, width, generator=generator).to(own[0])
    toward, features = (flat_gradients(model, part, margin) @ projection for part in (held, own))
    with torch.no_grad():
        doubt = (-margin(model(own[0]), own[1])).sigmoid()
    # The pseudo-inverse is (F'F)^-1 F', and defined where there are fewer samples than columns.
    return (toward @ torch.linalg.pinv(features) * doubt).sum(0)


def inverse_operations(count: int, width: int) -> int:
    """Return what TRAK's pseudo-inverse costs, which is no product (Golub and Van Loan)."""
    return 6 * count * width**2 + 20 * width**3


def neighbour_values(own: Batch, held: Batch, *, nearest: int) -> Tensor:
    """Return `(n_val, n)`: what each sample adds to the share of right votes among the nearest."""
    (inputs, labels), (x, y) = own, held
    order = (inputs.square().sum(1) - 2.0 * x @ inputs.T).argsort(1)
    right = (labels[order] == y[:, None]).double()
    count = len(labels)
    rank = torch.arange(1, count, dtype=torch.double)
    steps = (right[:, :-1] - right[:, 1:]) / nearest * rank.clamp(max=nearest) / rank
    last = right[:, -1:] * min(nearest, count) / (nearest * count)
    values = torch.cat([steps, last], 1).flip(1).cumsum(1).flip(1)
    return torch.zeros_like(values).scatter_(1, order, values)


def linear(inputs: Tensor, labels: Tensor, classes: int) -> nn.Linear:
    """Return a linear classifier, fitted with a small ridge."""
    model = nn.Linear(inputs.shape[1], classes)
    nn.init.zeros_(model.weight)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=50)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = LOSS(model(inputs), labels).mean() + 0.001 * model.weight.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return model.requires_grad_(requires_grad=False)


def confident_class(chance: Tensor, labels: Tensor) -> Tensor:
    """Return the likeliest class above its threshold, or the label as given where none is above.

    A class's threshold is its mean chance among the samples labelled so.
    """
    classes = chance.shape[1]
    thresholds = torch.stack([chance[labels == k, k].mean() for k in range(classes)])
    above = chance >= thresholds
    best = torch.where(above, chance, -1.0).argmax(1)
    return torch.where(above.any(1), best, labels)
