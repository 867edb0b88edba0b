"""Ghost, and the passes of a curator, against plain autograd on the user's own batch."""

import copy
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

import lai_core as lai
from lai_core import _adapters
from lai_core._adapters import agreements, check_agreement, check_batch, relative_error
from lai_torch._curation.estimators import make_scorer
from lai_torch._curation.passes.selective import SelectivePass
from lai_torch._curation.scoring import Passes
from lai_torch._curation.state import ValidationSide
from lai_torch._curation.validation import make_generator
from lai_torch._curation.weigh import read_weights
from lai_torch._graph.assemble import TRANSPOSED
from lai_torch._graph.prove import draw_weights, run_again
from lai_torch._graph.record import Reader
from lai_torch._model.batch import Loss, count, map_tensors, rows
from lai_torch._model.function import Function, losses_of, view_real
from lai_torch._model.precision import float8_layers
from lai_torch._model.preserve import preserve, run_alone, undo
from lai_torch._model.walk import collect_held, list_parameters
from lai_torch.curator import Weigher
from lai_torch.exact import exact_scores
from lai_torch.options import LAI, Estimator, EstimatorName, KeptOptions
from lai_torch.trace import check_explained

PASSES = ("selective", "whole")


@dataclass(frozen=True)
class SelfCheck(_adapters.SelfCheck):
    """How far Ghost, exact scores and a curator's passes are from plain autograd.

    Attributes
    ----------
    relative_error
        `max |K - K_ref| / max |K_ref|` of Ghost's kernel K over all parameters.
    layers
        The same over each record's parameters.
    exact
        `max |s - s_ref| / size` of the batch's `exact_scores` along its own summed gradient; `size` is the
        largest of `|s_ref|` and of the roots of the sum of squares of K_ref's columns, which s_ref adds up.
    backward
        `max |g - g_ref| / size` of each trainable parameter, the largest over several sets of kept samples:
        the gradient that a pass of `Curator` leaves in `.grad` against the masked gradient. A sum of the
        samples' gradients nearly cancels where a model is trained: `size` is the largest entry of g_ref, or
        of the sum with random signs. Where that is below half the digits of the largest (attention's
        key bias has none but rounding), it is these. None where no pass was named.
    float32
        Correlation over the samples with a float32 copy of the model: `scores`, of the batch's scores by an
        estimator along the batch itself, as a curator takes them; `gradients`, of the same sums by plain
        autograd of one sample at a time, in the format in which the model trains: bfloat16, or float8 of
        torchao's layers. None where no estimator was named.
    """

    backward: Mapping[str, float] | None = None


@run_alone
def selfcheck(
    model: nn.Module,
    loss: Loss,
    inputs: Any,
    targets: Any,
    *,
    last: str | None = None,
    backward: str | None = None,
    float32: EstimatorName | Estimator | None = None,
) -> SelfCheck:
    """Compare Ghost's kernel of a batch with itself, and exact scores, to one backward pass per sample.

    With `backward`, also compare the gradients that this pass of a `Curator` leaves in `.grad` to those
    of the whole batch's weighted losses by plain eager autograd, for a single kept sample, every
    second one, the later half, and all but the first, unequally weighted. Model, `.grad`, buffers and
    random state are afterwards as before, also when something raises.

    Parameters
    ----------
    model, loss, inputs, targets, last
        As for `trace`; a few samples are enough, for `backward` at least two.
    backward
        `selective` or `whole`, as for `Curator`; None: no such comparison.
    float32
        An estimator, as for `Curator`: also compare its scores, and plain autograd's, with those of a float32
        copy of model, loss and batch; three samples at least, many for a correlation that tells. A model that
        casts inside of its forward function does so in the copy. None: no such comparison.

    Returns
    -------
    SelfCheck
        Errors near the precision of the model's type: 1e-6 in float32, 1e-15 in float64.

    Raises
    ------
    ValueError
        If the model has no trainable parameter, cannot be traced, does not accept a batch of one
        sample, or does not allow the pass `backward` (samples are coupled, it does not compile in one graph).

    Examples
    --------
    >>> import torch
    >>> import lai_torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 3)).double()
    >>> loss = torch.nn.CrossEntropyLoss(reduction="none")
    >>> batch = torch.randn(5, 4, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1])
    >>> lai_torch.selfcheck(model, loss, *batch).relative_error < 1e-12
    True
    """
    if backward not in {None, *PASSES}:
        msg = f"backward: expected None or one of {', '.join(map(repr, PASSES))}, got {backward!r}"
        raise ValueError(msg)
    if not any(one.requires_grad for one in list_parameters(model).values()):
        msg = "model: expected at least one trainable parameter, got none"
        raise ValueError(msg)
    recording = Reader(model, loss, every=True, last=last).record((inputs, targets))
    check_explained(recording.plan.unexplained)
    trace = recording.trace
    gradients = _differentiate_each(model, loss, (inputs, targets), len(recording.losses))
    exact = _kernel(list(gradients.values()))  # the loss's own parameters included
    # a layer whose part is below the roundings of the whole is not held to its own size
    floor = torch.finfo(exact.dtype).eps * float(exact.abs().max())
    layers = {}
    keys: dict[tuple[str, ...], list[Any]] = defaultdict(list)  # of the matrices of one parameter all
    for key, names in recording.explained.items():
        keys[tuple(names)].append(key)
    for together, found in keys.items():
        part = lai.Trace(layer for layer in trace.layers if layer.weight in found)
        own = _kernel([gradients[name] for name in together])
        name = found[0].removesuffix(TRANSPOSED) if len(found) == 1 else together[0]
        layers[name] = relative_error(lai.ghost_kernel(part, part), own, floor)
    passed = None
    if backward is not None:
        passed = _backward_errors(model, loss, (inputs, targets), last, backward)
    ghost = relative_error(lai.ghost_kernel(trace, trace), exact, floor)
    scores = exact_scores(model, loss, (inputs, targets), (inputs, targets))
    error = relative_error(scores, exact.sum(0), floor, terms=exact)
    agreed = None
    if float32 is not None:
        agreed = _agreements(model, loss, (inputs, targets), float32)
    return SelfCheck(ghost, layers, error, agreed, passed)


@run_alone
def check_per_sample_gradients(model: nn.Module, loss: Loss, batch: Any) -> SelfCheck:
    """Raise unless a model's per-sample gradients are well defined on a batch, and computed right.

    Well defined: no sample's loss or gradient moves with the other samples. Right: Ghost's inner products,
    over all parameters and over each layer's, and exact scores agree with plain autograd of one sample at a
    time to half of the digits of the parameters' type. It is `selfcheck` with a verdict.

    Parameters
    ----------
    model
        In the mode (train or eval) in which it is meant; dropout off, for a sample alone draws other numbers.
    loss
        As for `trace`.
    batch
        `(inputs, targets)`; a few samples are enough, two at least to see what couples them.

    Returns
    -------
    SelfCheck
        How large the errors are.

    Raises
    ------
    ValueError
        If samples are coupled; if a parameter cannot be explained; or if numbers disagree, naming the layer.

    Examples
    --------
    >>> import torch
    >>> import lai_torch
    >>> loss = torch.nn.CrossEntropyLoss(reduction="none")
    >>> batch = torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 3))
    >>> lai_torch.check_per_sample_gradients(model.eval(), loss, batch).relative_error < 1e-4
    True
    >>> try:
    ...     lai_torch.check_per_sample_gradients(model.train(), loss, batch)
    ... except ValueError as error:
    ...     print(str(error)[:65])
    model: BatchNorm '1' normalises with the statistics of the batch,
    """
    check_batch("batch", batch)
    found = selfcheck(model, loss, *batch)
    draws = run_again((model, loss, batch), gradients=False)[1] is not None
    remark = "the model draws random numbers, others for a sample alone: call model.eval(), or set p=0"
    trainable = [one for one in list_parameters(model, loss).values() if one.requires_grad]
    eps = max(torch.finfo(one.dtype).eps for one in trainable)
    check_agreement(found, eps, remark if draws else "please report the model")
    return found


def _kernel(gradients: list[Tensor]) -> Tensor:
    with torch.autocast(gradients[0].device.type, enabled=False):
        return torch.stack([part @ part.T for part in gradients]).sum(0)


def _agreements(
    model: nn.Module, loss: Loss, batch: tuple[Any, Any], estimator: EstimatorName | Estimator
) -> dict[str, float]:
    """Return the correlations with a float32 copy: of an estimator's scores, and of plain autograd's."""
    own = _scores(model, loss, batch, estimator, trained=True)
    model, loss = copy.deepcopy((model, loss))
    for one in (model, loss):
        if isinstance(one, nn.Module):
            one.float()
    batch = map_tensors(batch, lambda tensor: tensor.float() if tensor.is_floating_point() else tensor)
    if isinstance(estimator, Estimator) and getattr(estimator, "autocast", None):
        estimator = replace(estimator, autocast=None)  # type: ignore[call-arg]  # of those that have it
    return agreements(own, _scores(model, loss, batch, estimator, trained=False))


def _scores(
    model: nn.Module, loss: Loss, batch: Any, estimator: EstimatorName | Estimator, *, trained: bool
) -> tuple[Tensor, Tensor]:
    """Return a batch's scores along itself: by a weigher, and by plain autograd of one sample at a time."""
    scores = Weigher(model, loss, batch, estimator=estimator).score(*batch)[1].scores
    gradients = _differentiate_each(model, loss, batch, count(*batch), trained=trained).values()
    return scores, _kernel([part.float() for part in gradients]).sum(0)


def _differentiate_each(
    model: nn.Module, loss: Loss, batch: tuple[Any, Any], samples: int, *, trained: bool = False
) -> dict[str, Tensor]:
    """Return each sample's gradient of each trainable parameter, `(n, size)`; `trained`: in float8, too."""
    function = Function(model, loss)
    trainable = function.parameters()
    found: dict[str, list[Tensor]] = {name: [] for name in trainable}
    for sample in range(samples):
        one = rows(batch, slice(sample, sample + 1), samples)
        with function.preserve(), float8_layers(collect_held(model, loss), trained=trained):
            gradients = torch.autograd.grad(
                function(one).sum(), list(trainable.values()), materialize_grads=True
            )
        for name, gradient in zip(trainable, gradients, strict=True):
            found[name].append(view_real(gradient).flatten())
    return {name: torch.stack(parts) for name, parts in found.items()}


def _backward_errors(
    model: nn.Module, loss: Loss, batch: tuple[Any, Any], last: str | None, backward: str
) -> dict[str, float]:
    """Return each parameter's largest relative error over several sets of kept samples."""
    scorer = make_scorer(model, loss, None, LAI(last=last), make_generator())
    taken = Passes(scorer, backward, KeptOptions()).shared
    if isinstance(taken, SelectivePass):
        taken.proves = False  # the comparison here is stronger than its own
    found: dict[str, float] = {}
    samples = count(*batch)
    index = torch.arange(samples, device=next(model.parameters()).device)
    unequal = (index + 1.0) / samples
    for kept in (index == samples - 1, index % 2 == 0, index >= samples // 2, index > 0):
        weights = torch.where(kept, unequal, 0.0)
        with undo(model, loss):
            forward = taken.forward(batch, ValidationSide(()))
            name = forward.backward(read_weights(weights, weights), 1).name
            # the pass handed the batch on to another one
            if name != backward:
                msg = (
                    f"inputs: expected at least two samples to check {backward!r} on; this batch is trained "
                    f"by the pass {name!r}"
                )
                raise ValueError(msg)
            gradients = {name: p.grad for name, p in list_parameters(model, loss).items()}
        masked = _differentiate(model, loss, batch, weights)
        signs = draw_weights(weights, torch.isfinite(weights)).sign()
        signed = _differentiate(model, loss, batch, weights * signs)
        sizes = {name: float(one.abs().max()) for name, one in signed.items()}
        largest = max(*sizes.values(), *(float(one.abs().max()) for one in masked.values()))
        for name, exact in masked.items():
            gradient = gradients[name]
            if gradient is None:
                gradient = torch.zeros_like(exact)
            least = max(sizes[name], torch.finfo(exact.dtype).eps ** 0.5 * largest)
            error = relative_error(gradient, exact, least)
            found[name] = max(found.get(name, 0.0), error)
    return found


def _differentiate(
    model: nn.Module, loss: Loss, batch: tuple[Any, Any], weights: Tensor
) -> dict[str, Tensor]:
    trainable = {name: p for name, p in list_parameters(model, loss).items() if p.requires_grad}
    with preserve(model, loss), float8_layers(collect_held(model, loss), trained=True):
        values = losses_of(model, loss, batch)
        total = (values * weights.to(values)).sum()
        found = torch.autograd.grad(total, list(trainable.values()), materialize_grads=True)
    return dict(zip(trainable, found, strict=True))
