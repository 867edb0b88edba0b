"""One torch case against what a loop over its samples gives."""

import warnings
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import lai_torch
import torch
from torch import Tensor

import lai_core as lai
from benchmarks.compatibility.oracle_torch import (
    BOUND,
    Case,
    Gradients,
    gradients_of,
    one,
    torch_gradient,
)
from benchmarks.compatibility.verdicts import (
    NEGLIGIBLE,
    REASON_LENGTH,
    Errors,
    Row,
    UnfitError,
    WarnedError,
    WrongError,
    judged,
    relative_error,
    unfit,
)
from tests.support.workloads.torch_oracle import called


def judge(case: Case) -> Row:
    """Return the verdicts on Ghost, the exact scores and LAI."""
    return judged(case, gradients_of, _check, _errors)


def judge_first(problem: str, builds: Iterable[Callable[[], Case]]) -> Row:
    """Judge the first case that is built; where none is, the row says what the last one raised."""
    for build in builds:
        try:
            case = build()
        except Exception as refused:  # whatever a configuration or a package says of these sizes
            problem = f"{type(refused).__name__}: {refused}"[:REASON_LENGTH]
        else:
            return judge(case)
    return unfit(f"not built: {problem}")


def _errors(case: Case, training: Gradients, validation: Gradients) -> Errors:
    sides = case, training, validation
    found: Errors = {"ghost": partial(_ghost, *sides), "exact": partial(_exact, *sides)}
    if training.last is not None and training.names == validation.names:
        found["lai"] = partial(_lai, *sides)
    return found


def _check(case: Case, training: Gradients, validation: Gradients) -> None:
    """Refuse what asks nothing: gradients that are zero, not finite, another at every call, or coupled.

    So are those of operations whose gradient of a batch is not that of its samples, though its losses are
    theirs: torch itself, which training follows, says two things there.
    """
    loose = case.bound / BOUND
    whole = [side.matrix() for side in (training, validation)]
    part = [side.matrix(case.part) for side in (training, validation)]
    if not all(bool(torch.isfinite(side).all()) for side in whole):
        raise UnfitError("gradients are not finite")
    largest = max(float(side.abs().max()) for side in whole)
    if min(float(side.abs().max()) if side.numel() else 0.0 for side in part) <= NEGLIGIBLE * largest:
        raise UnfitError("no gradient")
    again = gradients_of(case, case.training).matrix()
    if not torch.allclose(again, whole[0], rtol=loose * 1e-9, atol=loose * 1e-12 * largest):
        raise UnfitError("random: another gradient at every call")
    inputs, targets = case.training
    with torch.no_grad():
        together = case.loss(called(case.model, inputs), targets)
        rows = [case.loss(called(case.model, one(inputs, i)), one(targets, i)) for i in range(len(together))]
    if not torch.allclose(together, torch.cat(rows), rtol=case.bound, atol=case.bound / 100):
        raise UnfitError("samples are coupled: a batch's losses are not those of its samples")
    plain, added = torch_gradient(case, case.training), whole[0].sum(0)
    if not torch.allclose(plain, added, rtol=case.bound, atol=case.bound * float(added.abs().max())):
        raise UnfitError("torch's gradient of the batch is not the sum of those of its samples")


def _ghost(case: Case, training: Gradients, validation: Gradients) -> float:
    traces = [lai_torch.trace(case.model, case.loss, *b, gradients="all") for b in _batches(case)]
    exact = validation.matrix() @ training.matrix().T
    part = validation.matrix(case.part) @ training.matrix(case.part).T
    return _error(lai.ghost_kernel(*traces), exact, part, case.bound)


def _exact(case: Case, training: Gradients, validation: Gradients) -> float:
    scores = lai_torch.exact_scores(case.model, case.loss, case.validation, case.training)
    exact = training.matrix() @ validation.matrix().sum(0)
    part = training.matrix(case.part) @ validation.matrix(case.part).sum(0)
    return _error(scores, exact, part, case.bound)


def _lai(case: Case, training: Gradients, validation: Gradients) -> float:
    """Compare with the sum of all alphas times the last layer's beta."""
    assert training.last is not None
    assert validation.last is not None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        traces = [lai_torch.trace(case.model, case.loss, *b) for b in _batches(case)]
    told = [str(warning.message) for warning in caught if "LAI" in str(warning.message)]
    last, wanted = traces[0].layers[-1].name, [name for name, _ in training.names]
    if last != wanted[-1]:
        msg = f"the last layer is {wanted[-1]!r}, not {last!r}"
        raise WrongError(msg)
    if case.only:
        seen = [layer.name for layer in traces[0].layers if layer.name in wanted]
        if sorted(seen) != sorted(wanted) and set(seen) == set(wanted):
            raise UnfitError("a weight is also used outside its module, where no hook reads its input")
        traces = [lai.Trace([layer for layer in trace.layers if layer.name in wanted]) for trace in traces]
    alpha: Any = 0.0
    layers = zip(training.names, validation.activations, training.activations, strict=True)
    for (_, bias), first, second in layers:
        alpha = alpha + first @ second.T + float(bias)
    exact = alpha * (validation.last @ training.last.T)
    # over one position, every meaning of positions is the same
    placed = any(layer.activations.ndim > 2 for trace in traces for layer in trace.layers)
    error = _error(
        lai.lai_kernel(*traces, positions="mean" if placed else "tokens"), exact, exact, case.bound
    )
    said = [layer.name for layer in traces[0].layers] + told
    used = [name for name in case.matrices if bool(validation.of[name].any())]
    unsaid = [name for name in used if not any(name in text for text in said)]
    if unsaid:
        msg = f"leaves out {unsaid[0]!r}, which multiplies something of the batch, and does not say so"
        raise WrongError(msg)
    if (error > case.bound or used) and told:
        raise WarnedError(told[0])
    return error


def _batches(case: Case) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    return case.validation, case.training


def _error(found: Tensor, exact: Tensor, part: Tensor, bound: float) -> float:
    return relative_error(found, exact, part, torch.finfo(exact.dtype).eps, bound)
