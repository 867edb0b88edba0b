"""Ghost, and exact scores, against plain autograd on the user's own batch."""

import copy
from collections import defaultdict
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

import lai_core as lai
from lai_core._adapters import SelfCheck as SelfCheck
from lai_core._adapters import agreements, check_agreement, check_batch, relative_error
from lai_torch._graph.assemble import TRANSPOSED
from lai_torch._graph.prove import run_again
from lai_torch._graph.record import Reader
from lai_torch._model.batch import Loss, count, map_tensors, rows
from lai_torch._model.function import Function, view_real
from lai_torch._model.precision import float8_layers
from lai_torch._model.preserve import run_alone
from lai_torch._model.walk import collect_held, list_parameters
from lai_torch.curator import Weigher
from lai_torch.exact import exact_scores
from lai_torch.options import Estimator, EstimatorName
from lai_torch.trace import check_explained


@run_alone
def selfcheck(
    model: nn.Module,
    loss: Loss,
    inputs: Any,
    targets: Any,
    *,
    last: str | None = None,
    float32: EstimatorName | Estimator | None = None,
) -> SelfCheck:
    """Compare Ghost's kernel of a batch with itself, and exact scores, to one backward pass per sample.

    Model, `.grad`, buffers and random state are afterwards as before, also when something raises.

    Parameters
    ----------
    model, loss, inputs, targets, last
        As for `trace`; a few samples are enough.
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
        If the model has no trainable parameter, cannot be traced, or does not accept a batch of one sample.

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
    ghost = relative_error(lai.ghost_kernel(trace, trace), exact, floor)
    scores = exact_scores(model, loss, (inputs, targets), (inputs, targets))
    error = relative_error(scores, exact.sum(0), floor, terms=exact)
    agreed = None
    if float32 is not None:
        agreed = _agreements(model, loss, (inputs, targets), float32)
    return SelfCheck(ghost, layers, error, agreed)


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
