"""Proofs that a sample's loss and its records are its own: exchanged samples, and sums of gradients.

The backward pass shows which samples a gradient is of, and nothing of what carries no gradient: a detached
statistic of the batch, an order by which samples are sorted. So the model also runs on batches in which
copies of some samples stand in for the others: the losses of the samples that stay must stay as well. And
before anything is remembered of a graph, the recorded gradients with weights of random sign must add up to
what autograd finds for the weighted losses.
"""

import warnings
from collections import defaultdict
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

import lai_core as lai
from lai_core._adapters import GRADIENT_BUDGET, Block, sum_gradients, sums_agree
from lai_torch._graph.places import Axis, list_axes
from lai_torch._graph.products import PRODUCTS, find_weight
from lai_torch._graph.saved import Saved
from lai_torch._graph.uses import CoupledError
from lai_torch._graph.walk import Edge, Graph, walk
from lai_torch._model.batch import (
    Loss,
    check_losses,
    count,
    find_unaligned,
    row_sources,
    rows,
    seed_generator,
)
from lai_torch._model.function import densify, losses_of, view_real
from lai_torch._model.precision import differ, measure_roundings
from lai_torch._model.preserve import preserve, skip_checkpoints
from lai_torch._model.snapshot import Streams
from lai_torch._model.walk import list_parameters, modules_of

Problem = tuple[nn.Module, Loss, tuple[Any, Any]]
"""A model, a loss and a batch."""
DIRECTIONS = 16
"""Number of random directions that stand for the rows of a large gradient, and for its columns."""
SMALL = 2**13
"""Number of entries up to which a gradient stands for itself."""
MOST_PARTS = 6
"""Number of parts of a batch that are exchanged beside two halves, at most."""
GRADIENTS_OF = 3
"""Number of exchanged batches of which the gradients are compared, not the losses alone."""


@dataclass(frozen=True)
class Exchange:
    """A batch, and the same batch with copies of some samples in the places of the others."""

    problem: Problem
    plain: Graph
    moved: Graph
    # which samples stand where they stood
    kept: Tensor
    # which sample stands at each place
    index: Tensor
    # other batches, and which sample of the first one each place has the gradient of; -1: of none, maybe
    others: list[tuple[Graph, Tensor]]

    def matches(self, graph: Graph) -> bool:
        return self.plain.signature == graph.signature == self.moved.signature


def run_again(problem: Problem, *, gradients: bool) -> tuple[Tensor, Streams | None]:
    """Return the losses of a pass that leaves nothing behind, and the random streams after it if it drew."""
    model, loss, batch = problem
    with preserve(model, loss, hooks=True) as before, skip_checkpoints(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # a pass writes to copies of the buffers, for other graphs may have saved the buffers themselves
        copies: dict[int, Tensor] = {}
        for module in modules_of(model, loss):
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    module._buffers[name] = copies.setdefault(id(buffer), buffer.detach().clone())
        with torch.enable_grad():  # a model may take gradients in its forward pass
            losses = check_losses(losses_of(model, loss, batch), count(*batch))
        if not gradients:
            losses = losses.detach()
        return losses, Streams(modules_of(model, loss)) if before.has_moved() else None


def run_part(
    problem: Problem, index: Tensor | slice, samples: int, *, gradients: bool
) -> tuple[Tensor, Streams | None] | Exception:
    """Return what `run_again` does of other rows of the batch, or the error of a batch that does not run."""
    model, loss, batch = problem
    try:
        return run_again((model, loss, rows(batch, index, samples)), gradients=gradients)
    # memory says nothing about the samples
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        return error


def exchange_samples(problem: Problem, *, by_rows: bool = True) -> Exchange | None:
    """Return a batch beside an exchanged one; None where the batch does not run with copies of its samples.

    Raises
    ------
    CoupledError
        If the loss of a sample that stays changes, or, `by_rows`, that of a copy is not its sample's.
    """
    samples = count(*problem[2])
    before = plain, drawn = run_again(problem, gradients=True)
    graph, eps = None, 0.0
    # the coarsest type in the graph sets how far two passes may differ
    if plain.requires_grad:
        graph = walk(plain)
        eps = graph.coarsest()
    found: Exchange | None = None
    others: list[tuple[Graph, Tensor]] = []
    for number, part in enumerate(list_parts(samples)):
        run = partial(_run_exchanged, problem, before, part, eps, number=number, by_rows=by_rows)
        ran = None
        # A division by the number of samples shows in a batch of another size alone; fewer rows draw other
        # random numbers. Two samples are three then: of a batch of one, torch's normalisation has a wrong
        # gradient on a CPU.
        if number == 1 and drawn is None:
            try:
                ran = run(3 if samples == 2 else samples - 1)
            except CoupledError as error:
                run(samples)  # raises if it is not the size
                msg = (
                    "model: expected every sample's loss to be its own, got one that moves with the number "
                    "of samples: do not divide by the batch's size"
                )
                raise CoupledError(msg) from error
        if ran is None or isinstance(ran, Exception):  # whatever the error is, it is about the size
            ran = run(samples)
        if isinstance(ran, Exception):  # whatever it is, it is about samples that stand there twice
            compare_halves(problem, plain, drawn, eps)
            return None
        moved, index, stays, owners = ran
        if graph is not None and moved.requires_grad:
            others.append((walk(moved), owners))
            if found is None:
                found = Exchange(problem, graph, others[0][0], stays, index, others)
    return found


def list_parts(samples: int) -> list[Tensor]:
    """Return parts of a batch: of any two samples, up to 40, each is once in one without the other.

    The first two are halves, so that each sample is in one of them, and replaced in the other. In each half
    every sample has a set of further parts, all of one size, so that none holds another one (Sperner).
    """
    half, parts = (samples + 1) // 2, 0
    # of few samples more parts than would do, and others in each half: they tell more of what sorts or ranks
    if samples > 2:
        parts = 3
    while len(sets := [*combinations(range(2, 2 + parts), parts // 2)]) < half and parts < MOST_PARTS:
        parts += 1
    # the last sample is in the first half: the second stays whole in a batch of one sample less
    order = [*(1 + torch.randperm(samples - 1, generator=seed_generator(), device="cpu")).tolist(), 0]
    places = [divmod(place, half) for place in order]
    own = [{side, *sets[(place * len(sets) // half + 2 * side) % len(sets)]} for side, place in places]
    masks = dict.fromkeys(tuple(part in one for one in own) for part in range(2 + parts))
    return [torch.tensor(mask, device="cpu") for mask in masks if any(mask)]


def _run_exchanged(
    problem: Problem,
    before: tuple[Tensor, Streams | None],
    part: Tensor,
    eps: float,
    size: int,
    *,
    number: int,
    by_rows: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor] | Exception:
    """Run a batch in which copies of a part's samples stand for the others, and compare its losses.

    Of the first part each sample has as many copies, of the others the last one has all: else a rank, or a
    median, might stay.

    Returns
    -------
    tuple
        The losses; the sample at each place; which places have their own sample; and the sample of which
        each place has the gradient (-1: maybe of none). Or the error of a batch that does not run.
    """
    samples, drawn = len(part), before[1]
    # Copies in another order, where that is the same: a batch that is in order tells nothing of a model that
    # sorts. What is drawn may depend on the row.
    orders = [row_sources(part)]
    if drawn is None:
        turned, own = torch.arange(samples, device="cpu"), part.nonzero().squeeze(1).flip(0)
        if number:
            own = own[:1]
        turned[~part] = own.repeat(samples)[: int((~part).sum())]
        orders.insert(0, turned)
    places = torch.arange(size, device="cpu").clamp(max=samples - 1)
    for order in orders:
        ran = run_part(problem, order[places], samples, gradients=number < GRADIENTS_OF)
        if isinstance(ran, Exception):
            failed = ran
            continue
        try:
            return _compare(problem, ran, before, order[places].to(ran[0].device), eps, by_rows=by_rows)
        except CoupledError:
            if order is orders[-1]:
                raise
    return failed


def _compare(
    problem: Problem,
    ran: tuple[Tensor, Streams | None],
    before: tuple[Tensor, Streams | None],
    index: Tensor,
    eps: float,
    *,
    by_rows: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compare the losses of the samples at `index`; return what `_run_exchanged` does."""
    (moved, after), (plain, drawn) = ran, before
    # Of passes that drew other random numbers no two losses can be compared.
    alike = drawn is after or (drawn is not None and after is not None and drawn.equal(after))
    stays = (index == torch.arange(len(index), device=index.device)) & alike
    check_unmoved(problem, moved[stays], plain, index[stays], eps)
    if not (by_rows and drawn is None and after is None):
        return moved, index, stays, torch.where(stays, index, -1)
    if _differ(problem, moved, plain[index], index, eps):
        # A sample's rows do not carry its loss to another place.
        unaligned = find_unaligned(problem[2], len(plain))
        shapes = [tuple(one.shape) for one in unaligned if isinstance(one, Tensor)]
        held = ""
        if shapes:
            held = f"; {shapes[:1]} holds samples in another way (offsets, packed sequences): pad it"
        msg = (
            "model: expected rows that can be exchanged, got losses that do not move with their samples' "
            f"rows: samples are coupled, or no rows of the batch{held}"
        )
        raise CoupledError(msg)
    # a copy has its sample's gradient where it has its loss
    return moved, index, stays, index


def compare_halves(problem: Problem, plain: Tensor, drawn: Streams | None, eps: float) -> None:
    """Compare the losses with those of four parts of the batch, each by itself."""
    for half in list_parts(len(plain))[:4]:
        alone = run_part(problem, half.nonzero().squeeze(1), len(plain), gradients=False)
        if isinstance(alone, Exception):
            msg = f"model: it does not run on the batch's samples in another order ({alone})"
            raise CoupledError(msg) from alone
        # random numbers would be others for half of the rows
        if drawn is None and alone[1] is None:
            check_unmoved(problem, alone[0], plain, half.to(plain.device), eps)


def check_alone(
    problem: Problem, graph: Graph, parameters: Mapping[str, Tensor], last: list[Edge], *, redraws: bool
) -> None:
    """Raise unless a sample has by itself the loss and the gradient that it has beside a copy of itself.

    One row draws other random numbers than two, which shows nothing where a score may draw anew: `redraws`.

    Raises
    ------
    CoupledError
        If it has others.
    """
    ran = run_part(problem, torch.zeros(1, dtype=torch.long, device="cpu"), len(graph.losses), gradients=True)
    if isinstance(ran, Exception) or (redraws and ran[1] is not None):
        return
    # both from the same buffers, which the first pass may have written
    losses, (beside, _), eps = ran[0], run_again(problem, gradients=True), graph.coarsest()
    first = torch.arange(len(beside), device=losses.device) == 0
    moved = _differ(problem, losses, beside[first], first, eps)
    if not moved and losses.requires_grad:
        others = [(walk(losses), torch.zeros(1, dtype=torch.long, device=losses.device))]
        trained = {name: one for name, one in parameters.items() if one.requires_grad}
        pair = walk(beside)
        exchange = Exchange(problem, pair, pair, first, first.long(), others)
        moved = bool(find_moved(exchange, trained, eps, last if exchange.matches(graph) else []))
    if moved:
        msg = (
            "model: expected a sample whose loss and gradient are its own, got others in a batch of one than "
            "beside a copy of itself: do not divide by the batch's size, or take one row for none"
        )
        raise CoupledError(msg)


def check_unmoved(problem: Problem, moved: Tensor, plain: Tensor, kept: Tensor, eps: float) -> None:
    """Raise if the losses of the samples that are kept have changed: `moved` holds those alone."""
    moved, expected = moved.detach(), plain.detach()[kept]
    if not _differ(problem, moved, expected, kept, eps):
        return
    change = moved - expected
    place = int(change.abs().nan_to_num().argmax())
    samples = torch.arange(len(plain), device=kept.device)[kept]
    msg = (
        f"model: the loss of sample {int(samples[place])} is {float(expected[place]):.6g} in this "
        f"batch and moves by {float(change[place]):.1e} among other samples: samples are coupled, so that no "
        "sample has a gradient of its own; call model.eval() where a normalisation couples them, or score "
        "what is coupled as one sample (the sum of its rows' losses)"
    )
    raise CoupledError(msg)


def _differ(problem: Problem, found: Tensor, expected: Tensor, kept: Tensor, eps: float) -> bool:
    """Whether losses of the samples that are kept differ by more than rounding explains."""
    found, expected = found.detach(), expected.detach()
    if are_close(found, expected, eps=eps):
        return False
    # What one rounding does to each loss is measured only where it matters: a loss near zero may be off by
    # more.
    parameters = list_parameters(*problem[:2]).values()
    within = measure_roundings(lambda: run_again(problem, gradients=False)[0], parameters, eps)
    return differ(found, expected, within.to(found)[kept])


def are_close(left: Tensor, right: Tensor, *, eps: float = 0.0, factor: float = 1.0) -> bool:
    """Whether two tensors are equal but for rounding, of a model that computes in a type of this epsilon."""
    left, right = left.detach(), right.detach()
    if left.shape != right.shape:
        return False
    if torch.equal(left, right):
        return True
    if not (left.is_floating_point() or left.is_complex()):
        return False
    precision = max(eps, torch.finfo(left.dtype).eps) ** 0.7 * factor
    scale = float(right.abs().nan_to_num(0.0, 0.0, 0.0).max())
    return torch.allclose(left, right, rtol=precision, atol=precision * scale, equal_nan=True)


def locate_samples(
    plain: Graph, moved: Graph, index: Tensor, saved: Saved, node: int, made: Container[int]
) -> Axis | None:
    """Return where the samples lie in a product's input, by which rows it has in another pass.

    The samples of the other pass are those of the plain one at `index`; where it is the same pass, equal
    ones. `made` has the nodes that were computed from parameters alone.
    """
    product = PRODUCTS[plain.names[node]]
    slot = find_weight(plain, node, lambda edge: edge[0] in made)
    for own, name in zip(product.slots, product.saved, strict=True):
        pair = [saved(one.nodes[node], name) for one in (plain, moved)]
        if own == slot or not all(isinstance(one, Tensor) for one in pair) or pair[0].shape != pair[1].shape:
            continue
        # equal in both passes, it does not depend on which sample stands where
        if plain is not moved and torch.equal(*pair):
            continue
        axes = [one for one in list_axes(pair[0].shape, plain.samples) if _is_moved(pair, one, index)]
        if len(axes) > 1:  # copies of the input that are not samples, which other gradients reach
            arrived = [one.gradients([(node, 0)], torch.ones_like(one.losses))[0] for one in (plain, moved)]
            axes = [one for one in axes if _is_moved(arrived, one, index)]
        if len(axes) == 1:
            return axes[0]
    return None


def _is_moved(pair: Sequence[Tensor | None], axis: Axis, index: Tensor) -> bool:
    """Whether a tensor has its samples at `index` in another pass; a tensor that does not fit has not."""
    plain, moved = pair
    if plain is None or moved is None or not axis.fits(plain.shape):
        return False
    return are_close(axis.split(plain).index_select(axis.axis + 1, index), axis.split(moved))


def draw_weights(losses: Tensor, kept: Tensor) -> Tensor:
    """Return weights of random sign for the samples that are kept, zero for others and for infinite losses.

    Sums do not cancel with random signs where the batch's gradient nearly vanishes, as it does in a trained
    model.
    """
    generator = torch.Generator().manual_seed(len(losses))
    size = 0.5 + torch.rand(len(losses), generator=generator, dtype=torch.float64, device="cpu")
    sign = 1.0 - 2.0 * torch.randint(2, (len(losses),), generator=generator, device="cpu")
    weights = (size * sign).to(losses)
    return torch.where(kept & torch.isfinite(losses), weights, 0.0).detach()


def find_moved(
    exchange: Exchange, parameters: Mapping[str, Tensor], eps: float, last: list[Edge]
) -> list[str]:
    """Return the parameters of which samples give another gradient in another batch.

    The gradient at the last layer's outputs, which `last` are, is what others are sums of.
    """
    # A gradient is linear in the weights: one of the batch, with the sum of theirs, goes with those of all
    # other batches. A sample has another weight in each of them, so that no two errors cancel.
    losses, drawn = exchange.plain.losses.detach(), []
    weights, squares = torch.zeros_like(losses), 0.0
    for number, (graph, owners) in enumerate(exchange.others):
        own = owners.clamp(min=0)
        each = (1.0 + number / 2) * draw_weights(losses[own], owners >= 0)
        drawn.append((graph, each))
        weights.index_add_(0, own, each)
        squares += float(each.double().square().sum())
    here = _sketch_gradients([(exchange.plain, weights)], parameters)
    there = _sketch_gradients(drawn, parameters)
    # A gradient has its parameter's type, which may be coarser than all that the model computes in.
    coarsest = {name: max(eps, torch.finfo(one.dtype).eps) for name, one in parameters.items()}
    blocks = [
        Block(here[name].distance(there[name]), here[name].size(), coarsest[name]) for name in parameters
    ]
    magnitude = sum(map(norm, exchange.plain.gradients(last, weights)))
    agreed = sums_agree(blocks, squares, magnitude)
    # Beside other samples a product may be rounded otherwise, which turns units on and off at a kink.
    return [
        name
        for name, block, agrees in zip(parameters, blocks, agreed, strict=True)
        if not agrees and block.error > _measure_kinks(exchange.problem, name, parameters, weights, eps)
    ]


def _measure_kinks(
    problem: Problem, name: str, parameters: Mapping[str, Tensor], weights: Tensor, eps: float
) -> float:
    """Return how far roundings of the parameters may move the gradient of the weighted losses to one."""

    def recompute() -> Tensor:
        losses, _ = run_again(problem, gradients=True)
        (found,) = torch.autograd.grad(losses, [parameters[name]], weights, materialize_grads=True)
        return torch.view_as_real(densify(found).to(torch.complex128)).flatten()

    return norm(measure_roundings(recompute, parameters.values(), eps))


@dataclass(frozen=True)
class Sketch:
    """A gradient, or random projections of a large one, which keep its norm within a third or so.

    So two gradients are compared though one of them alone is held while a backward pass runs: a process with
    shards of a model has memory for their gradients, not for all of them.
    """

    values: Tensor | None = None
    shape: tuple[int, ...] = ()

    @classmethod
    def project_gradient(cls, gradient: Tensor) -> "Sketch":
        """Return that of a dense gradient; stacked matrices have one each."""
        real = view_real(gradient)
        return cls(_project(real, real.shape), real.shape)

    def size(self) -> float:
        return norm(self.values)

    def distance(self, other: "Sketch") -> float:
        """Return the norm of the difference from another gradient of the same parameter."""
        if self.values is None or other.values is None:
            return self.size() + other.size()
        return norm(self.values - other.values)

    def compare(self, recorded: Tensor, key: str) -> float:
        """Return the distance of a recorded sum; a matrix may be recorded transposed."""
        values, shape = self.values, self.shape
        if values is None:
            return norm(recorded)
        if key.endswith("]") and len(shape) == 3 and recorded.numel() < prod(shape):  # one of several
            values, shape = values[int(key[key.rindex("[") + 1 : -1])], shape[1:]
        if recorded.numel() != prod(shape):
            return abs(norm(recorded) - norm(values))
        ways = [recorded]
        if recorded.ndim > 1:
            ways.append(recorded.mT)
        if recorded.ndim == 2 and len(shape) == 3 and len(recorded) % shape[0] == 0:
            ways.append(recorded.unflatten(0, (shape[0], -1)).mT)  # of matrices one below the other
        found = [_project(way.reshape(shape), self.shape) for way in ways]
        return min(norm(one - values.to(one)) for one in found)


def _project(gradient: Tensor, shape: Sequence[int]) -> Tensor:
    """Return projections of a gradient, or of one of the matrices in it; small ones as they are."""
    if prod(shape) <= SMALL or len(shape) < 2:
        return gradient
    wide = gradient.double()  # in which its own roundings count, not those of the projections
    if wide.ndim >= 4:
        wide = wide.flatten(1)
    return _directions(wide, wide.shape[-2]) @ wide @ _directions(wide, wide.shape[-1]).mT


def _directions(like: Tensor, size: int) -> Tensor:
    """Return random directions in a space of some dimensions, the same ones at every call; all if few."""
    if size <= DIRECTIONS:
        return torch.eye(size, dtype=like.dtype, device=like.device)
    generator = torch.Generator().manual_seed(size)
    drawn = torch.randn(DIRECTIONS, size, generator=generator, device="cpu")
    return (drawn / DIRECTIONS**0.5).to(like)


def _sketch_gradients(
    passes: Iterable[tuple[Graph, Tensor]], parameters: Mapping[str, Tensor]
) -> defaultdict[str, Sketch]:
    """Return sketches of the gradients of the weighted losses of all passes, and keep the graphs."""
    found: defaultdict[str, Sketch] = defaultdict(Sketch)

    def sketch(name: str, gradient: Tensor | None) -> Tensor | None:
        if gradient is None:  # a custom function gave none
            return None
        own = Sketch.project_gradient(densify(gradient.detach()))
        before = found[name].values
        if before is not None and own.values is not None:
            own = replace(own, values=before + own.values)
        found[name] = own
        # What autograd then holds to the end of the pass takes no memory.
        if type(gradient) is not Tensor or gradient.layout != torch.strided:
            return None
        return gradient.new_zeros(()).expand_as(gradient)

    hooks: list[Any] = []
    try:
        # in here: one that stayed would take training's gradients away
        hooks.extend(one.register_hook(partial(sketch, name)) for name, one in parameters.items())
        for graph, weights in passes:
            torch.autograd.grad(
                graph.losses, [*parameters.values()], weights, retain_graph=True, allow_unused=True
            )
    finally:
        for hook in hooks:
            hook.remove()
    return found


def find_data(exchange: Exchange, nodes: Iterable[int]) -> int | None:
    """Return the first of nodes behind a sum over samples that kept something of the batch; None without one.

    What a use reads is computed from parameters alone. A product of the batch whose rows were mixed on their
    way to the losses has a gradient that is such a sum, too.
    """
    for node in nodes:
        here, there = exchange.plain.nodes[node], exchange.moved.nodes[node]
        for name in (name for name in dir(here) if name.startswith("_saved_")):
            pair = [getattr(one, name) for one in (here, there)]
            if all(isinstance(one, Tensor) for one in pair) and not are_close(*map(densify, pair)):
                return node
    return None


def find_wrong(
    graph: Graph,
    kept: Tensor,
    records: Sequence[Any],
    explained: Mapping[Hashable, list[str]],
    parameters: Mapping[str, Tensor],
    eps: float,
) -> list[str]:
    """Return the parameters whose recorded gradients do not add up to those of the weighted losses.

    For weights w of the samples, the sum of w_j times the recorded gradient of sample j is the gradient of
    the weighted losses for almost all w only if every recorded gradient is right. Both are compared as
    vectors.
    """
    wrong: dict[str, None] = {}
    # A hook that clips may leave small gradients as they are.
    scales = (1.0, 1024.0) if any(one._backward_hooks for one in parameters.values()) else (1.0,)
    groups: dict[Hashable, list[Any]] = defaultdict(list)
    for record in records:
        if not parameters.keys().isdisjoint(explained.get(record.weight, ())):
            groups[record.weight].append(record)
    missing = set(parameters) - {name for weight in groups for name in explained[weight]}
    # A gradient has its parameter's type, which may be coarser than all that the model computes in.
    coarsest = {name: max(eps, torch.finfo(one.dtype).eps) for name, one in parameters.items()}
    for scale in scales:
        weights = scale * draw_weights(graph.losses, kept)
        plain = _sketch_gradients([(graph, weights)], parameters)
        squares = dict.fromkeys(parameters, 0.0) | {name: plain[name].size() ** 2 for name in missing}
        for weight, own in groups.items():
            sums = sum_gradients(lai.Trace([_weigh(one, weights) for one in own]), GRADIENT_BUDGET)
            for (_, part), given in sums.items():
                name = explained[weight][-1 if part == "bias" else 0]
                whole = given[0] if len(given) == 1 else torch.stack(list(given), -1)
                squares[name] += plain[name].compare(whole, str(weight)) ** 2
        blocks = [Block(squares[name] ** 0.5, plain[name].size(), coarsest[name]) for name in parameters]
        magnitude = norm(_weigh(records[-1], weights).output_gradients)
        agreed = sums_agree(blocks, float(weights.double().square().sum()), magnitude)
        wrong |= {name: None for name, agrees in zip(parameters, agreed, strict=True) if not agrees}
    return list(wrong)


def _weigh(record: Any, weights: Tensor) -> Any:
    gradients = record.output_gradients
    factors = weights.to(gradients).reshape(-1, *[1] * (gradients.ndim - 1))
    # A weight of zero leaves a sample out, also one whose gradient is not finite.
    return replace(record, output_gradients=torch.where(factors != 0, gradients * factors, 0.0))


def norm(gradient: Tensor | None) -> float:
    if gradient is None:
        return 0.0
    real = view_real(densify(gradient.detach()))
    return float(torch.linalg.vector_norm(real, dtype=torch.float64))
