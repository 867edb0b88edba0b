"""One case against what a loop over its samples gives: right, wrong, refused by name, or a crash."""

import traceback
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import lai_core as lai

Array = np.ndarray[Any, Any]
Batch = tuple[Any, Any]
OWN = ("lai_core", "lai_torch", "lai_jax")
"""The packages whose own ValueError or TypeError is a refusal."""
ESTIMATORS = ("ghost", "exact", "lai")
VERDICTS = ("exact", "refused", "wrong", "crash", "unfit")
REASON_LENGTH = 300
BOUND = 1e-6
"""Relative error allowed in float64: operations lose digits by their condition, errors of meaning do not."""
ROUNDINGS = 8192
"""An inner product of gradients has thousands of terms."""
NEGLIGIBLE = 1e-4
"""Below this share of all gradients, those that a case is about are taken for zero."""


class UnfitError(Exception):
    """A case that asks nothing: no samples' axis, no gradient, or a random or non-finite one."""


class WrongError(Exception):
    """A wrong answer that is no number."""


class WarnedError(Exception):
    """A number that came with a warning naming what it leaves out."""


@dataclass
class Side:
    """What plain differentiation says of each sample of a batch, and what LAI should see of it."""

    gradients: dict[str, Array]  # (n, size) by parameter
    names: Sequence[tuple[str, bool]] = ()  # of each layer that LAI should see, and whether it has a bias
    inputs: Sequence[Array] = ()  # (n, d) of each, means over positions
    last: Array | None = None  # (n, d) with respect to the last layer's output; None: LAI is not judged

    def matrix(self, about: tuple[str, ...] = ("",)) -> Array:
        """Return the gradients of the parameters whose names begin so, `(n, all)`."""
        rows = [rows for name, rows in self.gradients.items() if name.startswith(about)]
        return np.concatenate(rows, 1) if rows else np.zeros((1, 1))


@dataclass(kw_only=True)
class Case:
    """A model's loss, two batches, and what the case is about.

    A framework's class says what a loop over a batch's samples gives (`differentiate`), a batch's `losses` in
    one call, `one` sample as a batch, whether the framework has two gradients of a batch (`check`), and what
    this library says: its `trace` of a batch and `exact_scores`.
    """

    loss: Callable[[Any, Any], Any]
    training: Batch
    validation: Batch
    about: tuple[str, ...] = ("",)  # the error is set beside the parameters whose names begin so
    matrices: Sequence[str] = ()  # parameters, too, that LAI has to see or to name
    only: bool = False  # LAI is judged on the layers of `Side` alone, without the case's own operation
    bound: float = BOUND  # the largest relative error of a right answer


def judge(build: Callable[[], Any]) -> dict[str, Any]:
    """Build a case, and return what it came to as it is written: one of `VERDICTS` an estimator.

    Beside these the largest relative error, and why the case is not exact, where it is not. An estimator that
    the case does not judge is left out.
    """
    try:
        case = build()
        training, validation = (case.differentiate(side) for side in (case.training, case.validation))
        _check(case, training, validation)
    except UnfitError as problem:
        return _unfit(str(problem))
    except Exception as problem:  # what a package says of its own layer: nothing to compare with
        return _unfit(f"fails by itself: {type(problem).__name__}: {problem}"[:REASON_LENGTH])
    found = {"ghost": _judge_ghost, "exact": _judge_exact, "lai": _judge_lai}
    if training.last is None or training.names != validation.names:
        del found["lai"]
    row: dict[str, Any] = {}
    reasons, errors = [], []
    for estimator, find in found.items():
        row[estimator], reason = judge_error(partial(find, case, training, validation), case.bound, errors)
        reasons += [f"{estimator}: {reason}"] * bool(reason)
    row |= {"relative_error": max(errors)} if errors else {}
    return row | ({"reason": "; ".join(reasons)} if reasons else {})


def judge_error(find: Callable[[], float], bound: float, errors: list[float]) -> tuple[str, str]:
    """Return the verdict on what finds a relative error, or raises, and the reason if it is not exact."""
    try:
        error = find()
    except WarnedError as problem:
        return "refused", f"warned: {problem}"[:REASON_LENGTH]
    except UnfitError as problem:
        return "unfit", str(problem)
    except WrongError as problem:
        return "wrong", str(problem)
    except Exception as problem:  # refused where this library raises it itself
        text = f"{type(problem).__name__}: {problem}"[:REASON_LENGTH].replace("\n", " ")
        packages = [
            (next((name for name in OWN if name in Path(frame.filename).parts), ""), frame)
            for frame in traceback.extract_tb(problem.__traceback__)
        ]
        if isinstance(problem, ValueError | TypeError) and packages[-1][0]:
            return "refused", text
        inside = next((frame for package, frame in reversed(packages) if package), None)
        where = "" if inside is None else f" at {Path(inside.filename).name}:{inside.lineno}"
        return "crash", text + where
    errors.append(error)
    # a NaN is no number that came out right
    return ("exact", "") if error <= bound else ("wrong", f"relative error {error:.1e}")


def build_first(builds: Iterable[Callable[[], Case]]) -> Case:
    """Return the first case that is built; where none is, raise what the last one raised."""
    said = "no small configuration"
    for build in builds:
        try:
            return build()
        except Exception as refused:  # whatever a configuration or a package says of these sizes
            said = f"{type(refused).__name__}: {refused}"[:REASON_LENGTH]
    raise UnfitError(f"not built: {said}")


def squares(outputs: Any, targets: Any) -> Any:
    """Half the squared distance."""
    return ((outputs - targets) ** 2).sum(1) / 2


def _unfit(reason: str) -> dict[str, Any]:
    return dict.fromkeys(ESTIMATORS, "unfit") | {"reason": reason}


def _check(case: Any, training: Side, validation: Side) -> None:
    """Refuse what asks nothing: gradients that are zero, not finite, another at every call, or coupled."""
    whole = [side.matrix() for side in (training, validation)]
    if not all(np.isfinite(side).all() for side in whole):
        raise UnfitError("gradients are not finite")
    largest = max(np.abs(side).max() for side in whole)
    least = min(np.abs(side.matrix(case.about)).max(initial=0.0) for side in (training, validation))
    if least <= max(NEGLIGIBLE, case.bound / 64) * largest:
        raise UnfitError("no gradient")
    together = case.losses(case.training)
    alone = [case.losses(case.one(case.training, i)) for i in range(len(together))]
    if not np.allclose(together, np.concatenate(alone), rtol=case.bound, atol=case.bound / 100):
        raise UnfitError("samples are coupled: a batch's losses are not those of its samples")
    case.check(training)


def _judge_ghost(case: Any, training: Side, validation: Side) -> float:
    traces = [case.trace(batch, gradients="all") for batch in (case.validation, case.training)]
    exact, part = validation.matrix() @ training.matrix().T, _sizes(case, training, validation)
    return _relative(lai.ghost_kernel(*traces), exact, part, case.bound)


def _judge_exact(case: Any, training: Side, validation: Side) -> float:
    exact, part = training.matrix() @ validation.matrix().sum(0), _sizes(case, training, validation).sum(0)
    return _relative(case.exact_scores(), exact, part, case.bound)


def _sizes(case: Case, training: Side, validation: Side) -> Array:
    """Return the products of the norms of the gradients that a case is about.

    Beside that of two gradients, an inner product of the two has its rounding.
    """
    left, right = (
        np.linalg.norm(side.matrix(case.about), axis=1, keepdims=True) for side in (validation, training)
    )
    return left @ right.T


def _judge_lai(case: Any, training: Side, validation: Side) -> float:
    """Compare with the sum of all alphas times the last layer's beta."""
    assert training.last is not None
    assert validation.last is not None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        traces = [case.trace(batch) for batch in (case.validation, case.training)]
    told = [str(warning.message) for warning in caught if "LAI" in str(warning.message)]
    said = [layer.name for layer in traces[0].layers] + told
    last, wanted = traces[0].layers[-1].name, [name for name, _ in training.names]
    if last != wanted[-1]:
        msg = f"the last layer is {wanted[-1]!r}, not {last!r}"
        raise WrongError(msg)
    if case.only:
        seen = [layer.name for layer in traces[0].layers if layer.name in wanted]
        if sorted(seen) != sorted(wanted) and set(seen) == set(wanted):
            raise UnfitError("a weight is also used outside its module, where no hook reads its input")
        traces = [lai.Trace([layer for layer in trace.layers if layer.name in wanted]) for trace in traces]
        biased = {name for name, bias in training.names if bias}
        added = [layer.name for layer in traces[0].layers if layer.bias and layer.name not in biased]
        if added:
            raise UnfitError("a parameter is added to a layer's outputs outside its module, and is its bias")
    layers = zip(training.names, validation.inputs, training.inputs, strict=True)
    alpha = sum(first @ second.T + float(bias) for (_, bias), first, second in layers)
    exact = alpha * (validation.last @ training.last.T)
    # over one position, every meaning of positions is the same
    placed = any(layer.activations.ndim > 2 for trace in traces for layer in trace.layers)
    found = lai.lai_kernel(*traces, positions="mean" if placed else "tokens")
    error = _relative(found, exact, exact, case.bound)
    used = [name for name in case.matrices if validation.gradients[name].any()]
    unsaid = [name for name in used if not any(name in text for text in said)]
    if unsaid:
        msg = f"leaves out {unsaid[0]!r}, which multiplies something of the batch, and does not say so"
        raise WrongError(msg)
    if (error > case.bound or used) and told:
        raise WarnedError(told[0])
    return error


def _relative(found: Any, exact: Array, part: Array, bound: float) -> float:
    """Return the largest error beside the largest entry of what the case is about.

    An error of `bound` times the part is right; so is one of some roundings of the whole.
    """
    rounding = ROUNDINGS * float(np.finfo(exact.dtype).eps) * float(np.abs(exact).max())
    scale = max(float(np.abs(part).max()), rounding / bound)
    return float(np.abs(np.asarray(found) - exact).max()) / scale
