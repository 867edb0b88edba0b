"""Attribution at a fitted network: gradients, solves by a curvature, votes of neighbours, sure labels."""

import warnings
from collections.abc import Callable
from typing import Any

import lai_torch
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jvp, vjp, vmap
from torch.nn import functional

import lai_core as lai
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


def last_layer(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return each sample's gradient of the last layer, `(n, p)`, and the Hessian of their summed loss."""
    layer = lai_torch.trace(model, LOSS, *batch).layers[-1]
    a = functional.pad(layer.activations, (0, 1), value=1.0) if layer.bias else layer.activations
    with torch.no_grad():
        p = model(batch[0]).softmax(1)
    curvature = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    hessian = torch.einsum("nij,na,nb->iajb", curvature, a, a)
    gradients = (layer.output_gradients[:, :, None] * a[:, None, :]).flatten(1)
    return gradients, hessian.reshape(gradients.shape[1], -1)


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


def projected_kernel(model: nn.Module, own: Batch, held: Batch, *, width: int, seed: int) -> Tensor:
    """Return `(n_val, n)`: TRAK of one network, what each sample adds to each validation sample's log-odds.

    With features `F`, the projected gradients of the log-odds, it is `f' (F'F)^-1 F'`, each column times the
    chance that the label as given is wrong (Park et al. 2023).
    """
    generator = torch.Generator().manual_seed(seed)
    parameters = sum(value.numel() for value in model.parameters())
    projection = torch.randn(parameters, width, generator=generator).to(next(model.parameters()))
    toward, features = (flat_gradients(model, part, margin) @ projection for part in (held, own))
    with torch.no_grad():
        doubt = (-margin(model(own[0]), own[1])).sigmoid()
    # The pseudo-inverse is (F'F)^-1 F', and defined where there are fewer samples than columns.
    return toward @ torch.linalg.pinv(features) * doubt


def projected_values(model: nn.Module, own: Batch, held: Batch, *, width: int, seed: int) -> Tensor:
    """Return `(n,)`: TRAK of one network, of the summed log-odds of a validation set."""
    return projected_kernel(model, own, held, width=width, seed=seed).sum(0)


def inverse_operations(count: int, width: int) -> int:
    """Return what TRAK's pseudo-inverse costs, which is no product (Golub and Van Loan)."""
    return 6 * count * width**2 + 20 * width**3


def kronecker_kernel(
    model: nn.Module, own: Batch, held: Batch, *, damping: float, summed: bool = False
) -> Tensor:
    """Return `(n_val, n)`: influence by a curvature that is diagonal in its Kronecker factors' eigenbasis.

    EKFAC of dense layers and convolutions, each by itself (George et al. 2018; Grosse et al. 2023). Labels
    are not drawn from the network: what their draw would give on average is summed over the classes.
    `damping` is a share of the mean eigenvalue of each layer. `summed` adds the validation gradients up
    first, which leaves one row.
    """
    with torch.no_grad():
        chance = model(own[0]).softmax(1)
    labelled = [(own[0], torch.full_like(own[1], label)) for label in range(chance.shape[1])]
    validation, training, *by_class = (
        _dense(lai_torch.trace(model, LOSS, *part, gradients="all")) for part in (held, own, *labelled)
    )
    total = 0.0
    for at, (a, own_g) in enumerate(training):
        a_held, g_held = validation[at]
        g = torch.stack([of[at][1] for of in by_class], 1)  # (n, classes, positions, d_out)
        left = torch.linalg.eigh(torch.einsum("nc,ncti,nctj->ij", chance, g, g) / len(a))[1]
        right = torch.linalg.eigh(torch.einsum("nti,ntj->ij", a, a) / len(a))[1]
        spectrum = _second_moment(g @ left, a @ right, chance)
        toward = torch.einsum("zto,zti->zoi", g_held, a_held)
        toward = left.T @ (toward.sum(0, keepdim=True) if summed else toward) @ right
        solved = left @ (toward / (spectrum + damping * spectrum.mean())) @ right.T
        gradients = torch.einsum("nto,nti->noi", own_g, a)
        total = total + solved.flatten(1) @ gradients.flatten(1).T
    return total


def kronecker_values(model: nn.Module, own: Batch, held: Batch, *, damping: float) -> Tensor:
    """Return `(n,)`: EKFAC, of the summed validation loss."""
    return kronecker_kernel(model, own, held, damping=damping, summed=True)[0]


def eigenvector_operations(model: nn.Module) -> int:
    """Return what EKFAC's eigenvectors cost, which are no product."""
    sides = (1 + side for value in model.parameters() if value.dim() == 2 for side in value.shape)
    return sum(9 * side**3 for side in sides)


def _dense(trace: lai.Trace) -> list[tuple[Tensor, Tensor]]:
    """Return activations, 1 behind them where there is a bias, and output gradients, `(n, positions, d)`."""
    found = []
    for record in trace.layers:
        layer = record.unfolded() if isinstance(record, lai.ConvolutionTrace) else record
        a = functional.pad(layer.activations, (0, int(layer.bias)), value=1.0)
        vector = a.dim() == 2
        found.append(tuple(of[:, None] if vector else of for of in (a, layer.output_gradients)))
    return found


def _second_moment(g: Tensor, a: Tensor, chance: Tensor) -> Tensor:
    """Return the mean square of each entry of `sum_t g_t a_t'` over samples and their chances of classes."""
    if a.shape[1] == 1:  # one position: the square of a product is that of its factors
        squares = (chance[:, :, None] * g.squeeze(2).square()).sum(1)
        return squares.T @ a.squeeze(1).square() / len(a)
    each = (torch.einsum("nto,nti->noi", of, a).square() for of in g.unbind(1))
    return sum(torch.einsum("n,noi->oi", p, of) for p, of in zip(chance.T, each, strict=True)) / len(a)


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
