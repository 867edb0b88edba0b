"""One JAX case against what a loop over its samples gives: `jax.grad` of one sample's loss at a time."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import lai_jax

import lai_core as lai
from benchmarks.compatibility.verdicts import REASON_LENGTH, Row, UnfitError, WrongError, unfit

BOUND = 1e-6
NEGLIGIBLE = 1e-4
ROUNDINGS = 8192
"""An inner product of gradients has thousands of terms."""
Batch = tuple[Any, Any]


@dataclass
class Case:
    """A function, its parameters, two batches, and what the case is about.

    Attributes
    ----------
    about
        Keys of the parameters whose gradients the error is set beside; empty: all.
    seen
        `seen(params, inputs)`: of one sample's program, the input of every layer that LAI should see by the
        layer's name, each with a bias, the last layer last; None: LAI is not judged.
    only
        LAI is judged on these layers alone.
    bound
        The largest relative error of a right answer.
    """

    apply: Callable[..., Any]
    params: dict[str, Any]
    loss: Callable[[Any, Any], Any]
    training: Batch
    validation: Batch
    about: tuple[str, ...] = ()
    seen: Callable[[Any, Any], Mapping[str, Any]] | None = None
    only: bool = False
    bound: float = BOUND
    gradient: Callable[..., Any] = field(init=False)

    def __post_init__(self) -> None:
        def single(params: Any, inputs: Any, targets: Any) -> Any:
            return self.loss(self.apply(params, inputs), targets)[0]

        self.gradient = jax.jit(jax.grad(single))


def compiled(function: Callable[..., Any], *given: Any) -> Any:
    """Run a function as one program, compiled as fast as can be; operation by operation takes longer."""
    fast = {"xla_backend_optimization_level": 1, "xla_llvm_disable_expensive_passes": True}
    return jax.jit(function).lower(*given).compile(compiler_options=fast)(*given)


def squares(outputs: Any, targets: Any) -> Any:
    """Half the squared distance."""
    return ((outputs - targets) ** 2).sum(1) / 2


def judge(case: Case) -> Row:
    """Return the verdicts on Ghost, the exact scores and LAI."""
    try:
        training, validation = gradients_of(case, case.training), gradients_of(case, case.validation)
        _check(case, training, validation)
    except UnfitError as problem:
        return unfit(str(problem))
    except Exception as problem:  # plain differentiation fails: nothing to compare with
        return unfit(f"fails by itself: {type(problem).__name__}: {problem}"[:REASON_LENGTH])
    row = Row()
    row.add("ghost", lambda: _ghost(case, training, validation), case.bound)
    row.add("exact", lambda: _exact(case, training, validation), case.bound)
    if case.seen is not None:
        row.add("lai", lambda: _lai(case), case.bound)
    return row


def gradients_of(case: Case, batch: Batch) -> dict[str, Any]:
    """Return each sample's gradient, `(n, size)`, of every entry of the parameters."""
    rows = [case.gradient(case.params, *one(batch, i)) for i in range(len(batch[1]))]
    return {
        key: jnp.stack(
            [jnp.concatenate([_reals(part) for part in jax.tree.leaves(row[key])]) for row in rows]
        )
        for key in case.params
        if jax.tree.leaves(case.params[key])
    }


def one(tree: Any, index: int) -> Any:
    """Return sample `index` as a batch of one."""
    return jax.tree.map(lambda leaf: leaf[index : index + 1], tree)


def _joined(gradients: Any) -> Any:
    return jnp.concatenate([_reals(gradient) for gradient in jax.tree.leaves(gradients)])


def _reals(gradient: Any) -> Any:
    flat = gradient.ravel()
    return jnp.concatenate([flat.real, flat.imag]) if jnp.iscomplexobj(flat) else flat.astype(float)


def _matrix(gradients: dict[str, Any], about: tuple[str, ...] = ()) -> Any:
    return jnp.concatenate([rows for key, rows in gradients.items() if key in (about or gradients)], 1)


def _check(case: Case, training: dict[str, Any], validation: dict[str, Any]) -> None:
    whole = [_matrix(side) for side in (training, validation)]
    part = [_matrix(side, case.about) for side in (training, validation)]
    if not all(bool(jnp.isfinite(side).all()) for side in whole):
        raise UnfitError("gradients are not finite")
    largest = max(float(jnp.abs(side).max()) for side in whole)
    if min(float(jnp.abs(side).max()) for side in part) <= NEGLIGIBLE * largest:
        raise UnfitError("no gradient")
    inputs, targets = case.training
    losses = jax.jit(lambda params, inputs, targets: case.loss(case.apply(params, inputs), targets))
    together = losses(case.params, inputs, targets)
    apart = [losses(case.params, one(inputs, i), one(targets, i)) for i in range(len(targets))]
    if not jnp.allclose(together, jnp.concatenate(apart), rtol=case.bound, atol=case.bound / 100):
        raise UnfitError("samples are coupled: a batch's losses are not those of its samples")


def _ghost(case: Case, training: dict[str, Any], validation: dict[str, Any]) -> float:
    traces = [_traced(case, batch, gradients="all") for batch in (case.validation, case.training)]
    exact = _matrix(validation) @ _matrix(training).T
    part = _matrix(validation, case.about) @ _matrix(training, case.about).T
    return _error(lai.ghost_kernel(*traces), exact, part, case.bound)


def _traced(case: Case, batch: Batch, **options: Any) -> lai.Trace:
    def trace(params: Any, inputs: Any, targets: Any) -> lai.Trace:
        return lai_jax.trace(case.apply, params, case.loss, inputs, targets, **options)

    return compiled(trace, case.params, *batch)


def _exact(case: Case, training: dict[str, Any], validation: dict[str, Any]) -> float:
    def scored(params: Any, validation: Batch, training: Batch) -> Any:
        return lai_jax.exact_scores(case.apply, params, case.loss, validation, training)

    scores = compiled(scored, case.params, case.validation, case.training)
    exact = _matrix(training) @ _matrix(validation).sum(0)
    part = _matrix(training, case.about) @ _matrix(validation, case.about).sum(0)
    return _error(scores, exact, part, case.bound)


def _lai(case: Case) -> float:
    """Compare with the sum of all alphas times the last layer's beta."""
    assert case.seen is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traces = [_traced(case, batch) for batch in (case.validation, case.training)]
    sides = []
    for inputs, targets in (case.validation, case.training):
        rows = [case.seen(case.params, one(inputs, i)) for i in range(len(targets))]
        outputs = case.apply(case.params, inputs)
        last = jax.grad(lambda o, t=targets: case.loss(o, t).sum())(outputs)
        sides.append(({name: jnp.concatenate([row[name] for row in rows]) for name in rows[0]}, last))
    wanted = list(sides[0][0])
    if traces[0].layers[-1].name != wanted[-1]:
        msg = f"the last layer is {wanted[-1]!r}, not {traces[0].layers[-1].name!r}"
        raise WrongError(msg)
    if case.only:
        traces = [lai.Trace([layer for layer in trace.layers if layer.name in wanted]) for trace in traces]
    alpha = sum(sides[0][0][name] @ sides[1][0][name].T + 1.0 for name in wanted)
    exact = alpha * (sides[0][1] @ sides[1][1].T)
    return _error(lai.lai_kernel(*traces), exact, exact, case.bound)


def _error(found: Any, exact: Any, part: Any, bound: float) -> float:
    """Return the largest error beside the largest entry of what the case is about, roundings apart.

    An error of `bound` times the part is right; so is one of some roundings of the whole, which is that
    beside `floor` times the whole.
    """
    floor = ROUNDINGS * float(jnp.finfo(exact.dtype).eps) / bound
    scale = max(float(jnp.abs(part).max()), floor * float(jnp.abs(exact).max()))
    return float(jnp.abs(found - exact).max()) / scale
