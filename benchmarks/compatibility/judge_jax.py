"""One JAX case against what a loop over its samples gives: `jax.grad` of one sample's loss at a time."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import lai_jax
import numpy as np

import lai_core as lai
from benchmarks.compatibility.verdicts import (
    NEGLIGIBLE,
    Errors,
    Row,
    UnfitError,
    WrongError,
    judged,
    relative_error,
)
from tests.support.workloads.jax_oracle import one

BOUND = 1e-6
LAYERS = ("embed/w", "head/w")
"""What LAI sees around what a case is about; the last one is the last layer."""
Batch = tuple[Any, Any]


@dataclass
class Case:
    """A function, its parameters, two batches, and what the case is about.

    `seen(params, inputs)` returns of one sample's program the input of each of `LAYERS`, which LAI should
    see, each with a bias; None: LAI is not judged.
    """

    apply: Callable[..., Any]
    params: dict[str, Any]
    loss: Callable[[Any, Any], Any]
    training: Batch
    validation: Batch
    about: tuple[str, ...] = ()  # keys of the parameters that the error is set beside; empty: all
    seen: Callable[[Any, Any], Sequence[Any]] | None = None
    only: bool = False  # LAI is judged on these layers alone
    bound: float = BOUND  # the largest relative error of a right answer

    def losses(self, params: Any, inputs: Any, targets: Any) -> Any:
        """Return each sample's loss."""
        return self.loss(self.apply(params, inputs), targets)


def judge(case: Case) -> Row:
    """Return the verdicts on Ghost, the exact scores and LAI."""
    return judged(case, gradients_of, _check, _errors)


def _errors(case: Case, *sides: dict[str, Any]) -> Errors:
    found: Errors = {"ghost": partial(_ghost, case, *sides), "exact": partial(_exact, case, *sides)}
    return found if case.seen is None else found | {"lai": partial(_lai, case, *sides)}


def gradients_of(case: Case, batch: Batch) -> dict[str, Any]:
    """Return each sample's gradient, `(n, size)`, of every entry of the parameters."""
    single = jax.grad(lambda *given: case.losses(*given)[0])
    gradient = jax.jit(single)
    rows = [gradient(case.params, *one(batch, i)) for i in range(len(batch[1]))]
    return {
        key: np.stack([np.concatenate([_reals(part) for part in jax.tree.leaves(row[key])]) for row in rows])
        for key in case.params
        if jax.tree.leaves(case.params[key])
    }


def _reals(gradient: Any) -> Any:
    flat = gradient.ravel()
    return np.concatenate([flat.real, flat.imag]) if np.iscomplexobj(flat) else flat.astype(float)


def _matrix(gradients: dict[str, Any], about: tuple[str, ...] = ()) -> Any:
    return np.concatenate([rows for key, rows in gradients.items() if key in (about or gradients)], 1)


def _sizes(gradients: dict[str, Any], about: tuple[str, ...]) -> Any:
    """Return the norm of each sample's gradient: beside two of them an inner product has its rounding."""
    return np.linalg.norm(_matrix(gradients, about), axis=1)


def _check(case: Case, training: dict[str, Any], validation: dict[str, Any]) -> None:
    whole = [_matrix(side) for side in (training, validation)]
    part = [_matrix(side, case.about) for side in (training, validation)]
    if not all(np.isfinite(side).all() for side in whole):
        raise UnfitError("gradients are not finite")
    largest = max(np.abs(side).max() for side in whole)
    if min(np.abs(side).max() for side in part) <= max(NEGLIGIBLE, case.bound / 64) * largest:
        raise UnfitError("no gradient")
    inputs, targets = case.training
    losses = jax.jit(case.losses)
    together = losses(case.params, inputs, targets)
    apart = [losses(case.params, one(inputs, i), one(targets, i)) for i in range(len(targets))]
    if not np.allclose(together, np.concatenate(apart), rtol=case.bound, atol=case.bound / 100):
        raise UnfitError("samples are coupled: a batch's losses are not those of its samples")
    single = jax.jit(jax.value_and_grad(lambda *given: case.losses(*given)[0]))
    value, _ = single(case.params, one(inputs, 0), one(targets, 0))
    if not np.allclose(value, apart[0], rtol=case.bound, atol=case.bound / 100):
        raise UnfitError(
            "another value where JAX differentiates it, so that no gradient is that of the value"
        )


def _ghost(case: Case, training: dict[str, Any], validation: dict[str, Any]) -> float:
    traces = [_traced(case, batch, gradients="all") for batch in (case.validation, case.training)]
    exact = _matrix(validation) @ _matrix(training).T
    part = _sizes(validation, case.about)[:, None] * _sizes(training, case.about)
    return _error(lai.ghost_kernel(*traces), exact, part, case.bound)


def _traced(case: Case, batch: Batch, **options: Any) -> lai.Trace:
    def trace(params: Any, inputs: Any, targets: Any) -> lai.Trace:
        return lai_jax.trace(case.apply, params, case.loss, inputs, targets, **options)

    return jax.jit(trace)(case.params, *batch)


def _exact(case: Case, training: dict[str, Any], validation: dict[str, Any]) -> float:
    def scored(params: Any, validation: Batch, training: Batch) -> Any:
        return lai_jax.exact_scores(case.apply, params, case.loss, validation, training)

    exact = _matrix(training) @ _matrix(validation).sum(0)
    part = _sizes(training, case.about) * _sizes(validation, case.about).sum()
    found = jax.jit(scored)(case.params, case.validation, case.training)
    error = _error(np.asarray(found), exact, part, case.bound)
    if error <= case.bound:
        return error
    # of what is traced no identity can be checked: only outside of jit do the scores promise to be right
    # where an operation's reverse mode is not its derivative
    scores = scored(case.params, case.validation, case.training)
    return _error(np.asarray(scores), exact, part, case.bound)


def _lai(case: Case, *gradients: dict[str, Any]) -> float:
    """Compare with the sum of the alphas of all layers that have a gradient, times the last layer's beta."""
    assert case.seen is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traces = [_traced(case, batch) for batch in (case.validation, case.training)]
    sides = []
    for inputs, targets in (case.validation, case.training):
        seen = jax.jit(case.seen)
        rows = [seen(case.params, one(inputs, i)) for i in range(len(targets))]
        outputs = jax.jit(case.apply)(case.params, inputs)
        last = jax.jit(jax.grad(lambda o, t: case.loss(o, t).sum()))(outputs, targets)
        sides.append(([np.concatenate(layer) for layer in zip(*rows, strict=True)], last))
    if traces[0].layers[-1].name != LAYERS[-1]:
        msg = f"the last layer is {LAYERS[-1]!r}, not {traces[0].layers[-1].name!r}"
        raise WrongError(msg)
    if case.only:
        traces = [lai.Trace([layer for layer in trace.layers if layer.name in LAYERS]) for trace in traces]
    (here, beta), (there, other) = sides
    # LAI reads no input of a layer that is frozen or reaches no loss
    moves = [
        any(side.get(name.removesuffix("/w"), np.zeros(1)).any() for side in gradients) for name in LAYERS
    ]
    alpha = sum(moved * (left @ right.T + 1.0) for moved, left, right in zip(moves, here, there, strict=True))
    exact = alpha * (beta @ other.T)
    return _error(lai.lai_kernel(*traces), exact, exact, case.bound)


def _error(found: Any, exact: Any, part: Any, bound: float) -> float:
    return relative_error(found, exact, part, float(np.finfo(exact.dtype).eps), bound)
