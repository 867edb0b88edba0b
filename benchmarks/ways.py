"""Ways to score a batch: this library's, other packages', and what one would write by hand.

All but LAI give the same number, the inner product of each sample's gradient with the summed validation
gradient, and are compared with a loop over the samples.
"""

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import lai_torch
import torch
from lai_torch._curation.tracer import Tracer
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._pytree import tree_map_only

import lai_core as lai
from benchmarks.methods import CACHED, bytes_in, curator, summary_bytes
from benchmarks.models import Work, parts

AT_ONCE = 8
"""Samples whose gradients exist at once, where a way makes them."""
Direction = dict[str, Tensor]


@dataclass(frozen=True)
class Way:
    """A way to score the batch of some work: `(n,)` scores."""

    fresh: Callable[[], Tensor]  # goes through the validation set anew
    cached: Callable[[], Tensor]  # from what is held of it
    held: int  # the bytes of that
    exact: bool | None = True  # inner products of gradients; None: about, by how much is not told


def _of(prepare: Callable[[], Any], score: Callable[[Any], Tensor]) -> Way:
    """Return the way that prepares something of the validation set, and scores from that."""
    found = prepare()
    held = list(found.layers) if isinstance(found, lai.Trace) else found
    return Way(lambda: score(prepare()), lambda: score(found), bytes_in(held))


def curated(work: Work, estimator: Any) -> Way:
    """Score by curators of this library, which have proved their way on a batch before."""
    cached, fresh = (curator(work, None, estimator, refresh=refresh) for refresh in (CACHED, 1))
    for one in (cached, fresh) * 3:
        one.score(*work.batch)
    calls = (lambda one=one: one.score(*work.batch)[1].scores for one in (fresh, cached))
    return Way(*calls, summary_bytes(cached), not isinstance(estimator, lai_torch.LAI))


def loop(work: Work) -> Way:
    """Differentiate one sample at a time."""

    def score(direction: Direction) -> Tensor:
        gradients = (_gradient(work, work.losses(*part).sum()) for part in parts(work.batch, 1))
        return torch.stack([_product(each, direction) for each in gradients])

    return _of(lambda: _direction(work), score)


def vectorised(work: Work) -> Way:
    """Differentiate `AT_ONCE` samples at a time, by `vmap` of `grad`."""
    buffers, inputs = dict(work.model.named_buffers()), work.batch[0]
    named = inputs.items() if isinstance(inputs, dict) else ()
    constants = {name: one for name, one in named if not isinstance(one, Tensor)}

    def loss(parameters: Direction, inputs: Any, targets: Tensor) -> Tensor:
        one = tree_map_only(Tensor, lambda each: each.unsqueeze(0), inputs)
        given = ((one,), {}) if isinstance(one, Tensor) else ((), {**one, **constants})
        outputs = functional_call(work.model, (parameters, buffers), *given)
        return work.loss(outputs, targets.unsqueeze(0)).squeeze(0)

    def score(direction: Direction) -> Tensor:
        parameters = {name: one.detach() for name, one in work.model.named_parameters()}
        found = []
        for inputs, targets in parts(work.batch, AT_ONCE):
            mapped = inputs
            if isinstance(inputs, dict):
                mapped = {name: one for name, one in inputs.items() if name not in constants}
            gradients = vmap(grad(loss), (None, 0, 0))(parameters, mapped, targets)
            products = (gradients[name].flatten(1) @ one.flatten() for name, one in direction.items())
            found.append(sum(products))
        return torch.cat(found)

    return _of(lambda: _direction(work), score)


def twice(work: Work) -> Way:
    """Differentiate the gradient's product with the direction by the losses' weights."""

    def score(direction: Direction) -> Tensor:
        losses = work.losses(*work.batch)
        weights = torch.ones_like(losses, requires_grad=True)
        gradients = _gradient(work, (weights * losses).sum(), create_graph=True)
        return torch.autograd.grad(_product(gradients, direction), weights)[0]

    return _of(lambda: _direction(work), score)


def difference(work: Work) -> Way:
    """Take the central difference of the losses along the direction."""

    def score(direction: Direction) -> Tensor:
        named, sides = dict(work.model.named_parameters()), []
        with torch.no_grad():
            size, length = (float(_product(one, one)) ** 0.5 for one in (direction, named))
            step = torch.finfo(torch.float32).eps ** (1 / 3) * max(length, 1.0) / size
            before = {name: one.clone() for name, one in named.items()}
            for sign in (1.0, -1.0):
                for name, one in named.items():
                    one.copy_(before[name]).add_(direction[name], alpha=sign * step)
                sides.append(work.losses(*work.batch))
            for name, one in named.items():
                one.copy_(before[name])
        return (sides[0] - sides[1]) / (2 * step)

    return replace(_of(lambda: _direction(work), score), exact=None)


def grams(work: Work) -> Way:
    """Add up every pair of a validation and a training sample, layer by layer, as GhostSuite does."""
    tracer = Tracer(work.model, work.loss, every_layer=True)  # proves what it records once
    for side in (work.validation, work.batch) * 2:
        tracer(side)

    def score(validation: lai.Trace) -> Tensor:
        return lai.ghost_kernel(validation, tracer(work.batch)[0]).sum(0)

    return _of(lambda: tracer(work.validation)[0], score)


def opacus(work: Work) -> Way | None:
    """Score by opacus' gradient of each sample; None where it is not installed or refuses the model."""
    normalised = any(isinstance(module, _BatchNorm) for module in work.model.modules())
    if find_spec("opacus") is None or normalised:
        return None
    from benchmarks.peer_torch import Peer

    own = copy.deepcopy(work.model).train()  # it records nothing in eval mode; hooks slow no other way down
    peer = Peer(replace(work, model=own))
    return _of(peer.direction, peer.along)


def backpack(work: Work) -> Way | None:
    """Score by BackPACK's gradient of each sample; None where it is not installed or has no rules."""
    if find_spec("backpack") is None or not isinstance(work.model, nn.Sequential):
        return None
    from backpack import backpack as extended
    from backpack import extend
    from backpack.extensions import BatchGrad

    model, summed = extend(copy.deepcopy(work.model)), extend(nn.CrossEntropyLoss(reduction="sum"))

    def score(direction: Direction) -> Tensor:
        found = []
        for inputs, targets in parts(work.batch, AT_ONCE):
            with extended(BatchGrad()), warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Full backward hook is firing")
                summed(model(inputs), targets).backward()
            named = model.named_parameters()
            found.append(sum(one.grad_batch.flatten(1) @ direction[name].flatten() for name, one in named))
        model.zero_grad(set_to_none=True)
        return torch.cat(found)

    return _of(lambda: _direction(work), score)


def dattri_llm(work: Work) -> Way | None:
    """Score by dattri-llm's factors of each sample's gradient; None where it is not installed.

    A weight that two modules share is two weights to it, and what has no axis for the samples (GPT's
    positions) is each sample's own: how far its scores are off is told, and not judged.
    """
    if find_spec("dattri_llm") is None:
        return None
    from dattri_llm import HookManager, HookManagerCallback

    class Kept(HookManagerCallback):
        """Holds the gradients of the backward pass that ran last."""

        def on_step_end(self, record: Any) -> None:
            """Take a batch's gradients."""
            self.gradient = record.gradient

    kept = Kept()
    own = replace(work, model=copy.deepcopy(work.model))  # whose hooks slow no other way's calls down
    manager = HookManager(own.model, callbacks=[kept])

    def gradient(side: Any) -> Any:
        with manager.collect(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Full backward hook is firing|.*broadcast")
            own.losses(*side).sum().backward()
        own.model.zero_grad(set_to_none=True)
        return kept.gradient

    def score(validation: Any) -> Tensor:
        found: Tensor = gradient(own.batch).similarity(validation, reduce="all").sum(1)
        return found

    held = gradient(own.validation)
    return Way(lambda: score(gradient(own.validation)), lambda: score(held), held.nbytes, exact=None)


WAYS: dict[str, Callable[[Work], Way | None]] = {
    "LAI": lambda work: curated(work, lai_torch.LAI()),
    "Ghost": lambda work: curated(work, lai_torch.Ghost()),
    "exact": lambda work: curated(work, lai_torch.Exact()),
    "pairs, layer by layer": grams,
    "vmap of grad": vectorised,
    "opacus": opacus,
    "BackPACK": backpack,
    "dattri-llm": dattri_llm,
    "double backward": twice,
    "difference by hand": difference,
    "loop": loop,
}


def _direction(work: Work) -> Direction:
    """Return the gradient of the summed validation loss, a batch at a time."""
    size = len(work.batch[1])
    found: Direction = {}
    for part in parts(work.validation, size):
        for name, one in _gradient(work, work.losses(*part).sum()).items():
            found[name] = found[name] + one if name in found else one
    return found


def _product(one: Direction, other: Direction) -> Any:
    return sum((one[name] * each).sum() for name, each in other.items())


def _gradient(work: Work, total: Tensor, *, create_graph: bool = False) -> Direction:
    named = dict(work.model.named_parameters())
    found = torch.autograd.grad(total, list(named.values()), create_graph=create_graph, allow_unused=True)
    pairs = zip(named.items(), found, strict=True)
    return {name: torch.zeros_like(one) if gradient is None else gradient for (name, one), gradient in pairs}
