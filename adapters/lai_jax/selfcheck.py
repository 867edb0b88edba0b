"""Ghost and exact scores against one gradient a sample, on the user's own model and batch."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

import lai_core as lai
from lai_core._adapters import SelfCheck as SelfCheck
from lai_core._adapters import agreements, check_agreement, check_batch, relative_error
from lai_jax._curation.options import EstimatorName
from lai_jax._exact.methods import method_for
from lai_jax._program.leaves import find_floating, leaf_names, real_leaves, split_leaves
from lai_jax._program.losses import batch_size, losses_of_leaves, take
from lai_jax._program.model import read
from lai_jax._recording.assemble import records_leaves
from lai_jax._recording.plan import make_plan
from lai_jax._recording.recorders import record_trace
from lai_jax.curated_update import score
from lai_jax.summarize import summarize


def selfcheck(
    apply: Callable[..., Any],
    params: Any,
    loss: Callable[..., Any],
    inputs: Any,
    targets: Any,
    *,
    last: str | None = None,
    float32: EstimatorName | None = None,
) -> SelfCheck:
    """Compare Ghost's kernel of a batch with itself to `jax.grad` of one sample at a time, in a plain loop.

    And exact scores to the inner products of the same gradients.

    Parameters
    ----------
    apply, params, loss, inputs, targets, last
        As for `trace`; a few samples are enough.
    float32
        An estimator, as for `curated_update`: also compare its scores, and those of plain gradients, with
        those of params and batch in float32; three samples at least, many for a correlation that tells. An
        `apply` that casts by itself does so there, too. None: no such comparison.

    Returns
    -------
    SelfCheck
        Errors near the precision of the model's type: 1e-6 in float32, 1e-15 in float64.

    Raises
    ------
    ValueError
        If the model cannot be traced, or does not accept a batch of one sample.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import lai_jax
    >>> params = {"w": jnp.ones((4, 3)), "b": jnp.ones(3)}
    >>> apply = lambda p, x: x @ p["w"] + p["b"]
    >>> check = lai_jax.selfcheck(apply, params, lambda o, y: (o**2).sum(-1), jnp.ones((5, 4)), jnp.zeros(5))
    >>> check.relative_error < 1e-5
    True
    """
    model = read(apply, params, loss, inputs, targets)
    plan = make_plan(model, last, everything=True)
    traced = record_trace(model, plan, everything=True)[1]
    gradients = _sample_gradients(apply, params, loss, inputs, targets)
    expected: Any = sum(part @ part.T for part in gradients.values())
    rounding = float(jnp.finfo(expected.dtype).eps * jnp.max(jnp.abs(expected)))
    layers = {}
    explained = records_leaves(plan)
    for leaves in _join(explained):
        names = [model.names[leaf] for leaf in sorted(leaves)]
        part = lai.Trace([traced.layers[index] for index, own in enumerate(explained) if own & leaves])
        reference = sum(gradients[name] @ gradients[name].T for name in names)
        layers["+".join(names)] = relative_error(lai.ghost_kernel(part, part), reference, rounding)
    ghost = relative_error(lai.ghost_kernel(traced, traced), expected)
    # along the batch's own summed gradient, by the method that is chosen without running anything
    moving, losses = losses_of_leaves(apply, loss, params)
    summed = [own.sum(0).reshape(leaf.shape) for own, leaf in zip(gradients.values(), moving, strict=True)]
    given = losses, moving, (inputs, targets)
    scores = method_for(*given)(*given, summed)[1]
    error = relative_error(scores, expected.sum(0), rounding, terms=expected)
    agreed = None if float32 is None else _agreements(apply, params, loss, (inputs, targets), float32, last)
    return SelfCheck(ghost, layers, error, agreed)


def check_per_sample_gradients(
    apply: Callable[..., Any], params: Any, loss: Callable[..., Any], batch: Any
) -> SelfCheck:
    """Raise unless a model's per-sample gradients are well defined on a batch, and computed right.

    Well defined: no sample's loss or gradient moves with the other samples. Right: Ghost's inner products,
    over all parameters and over each record's, and exact scores agree with `jax.grad` of one sample at a time
    to half of the digits of the parameters' type. It is `selfcheck` with a verdict.

    Parameters
    ----------
    apply, params, loss
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
        If samples are coupled, naming the operation and its line; if a parameter cannot be explained; or if
        numbers disagree, naming the parameters.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import lai_jax
    >>> loss = lambda outputs, targets: (outputs - targets) ** 2
    >>> batch = jnp.arange(6.0).reshape(3, 2), jnp.ones(3)
    >>> apply = lambda params, inputs: inputs @ params
    >>> lai_jax.check_per_sample_gradients(apply, jnp.ones(2), loss, batch).relative_error < 1e-4
    True
    """
    check_batch("batch", batch)
    found = selfcheck(apply, params, loss, *batch)
    eps = max(float(jnp.finfo(leaf.dtype).eps) for leaf in split_leaves(params)[0])
    check_agreement(found, eps, "please report the model")
    return found


def _sample_gradients(
    apply: Callable[..., Any], params: Any, loss: Callable[..., Any], inputs: Any, targets: Any
) -> dict[str, jax.Array]:
    """Return each sample's gradient of each parameter, `(n, size)`, one sample at a time."""
    names, moving = leaf_names(params), find_floating(real_leaves(params)[0])
    values, losses = losses_of_leaves(apply, loss, params)
    gradient = jax.grad(lambda values, single: losses(values, single)[0])
    rows = [gradient(values, take((inputs, targets), slice(j, j + 1))) for j in range(batch_size(inputs))]
    return {names[i]: jnp.stack([row[k].reshape(-1) for row in rows]) for k, i in enumerate(moving)}


def _agreements(
    apply: Callable[..., Any],
    params: Any,
    loss: Callable[..., Any],
    batch: Any,
    estimator: EstimatorName,
    last: str | None,
) -> dict[str, float]:
    """Return the correlations with params in float32: of an estimator's scores, and of plain gradients'."""
    options: Any = {"estimator": estimator, "last": last}
    found = []
    for own, given in ((params, batch), jax.tree.map(_raise, (params, batch))):
        summary = summarize(apply, own, loss, *given, **options)
        scores = score(apply, own, loss, summary, *given, **options)[1].scores
        gradients = [one.astype(jnp.float32) for one in _sample_gradients(apply, own, loss, *given).values()]
        found.append((scores, sum(part @ part.sum(0) for part in gradients)))
    return agreements(*found)


def _raise(leaf: Any) -> Any:
    """Return an array of a floating type in float32, anything else as it is."""
    return leaf.astype(jnp.float32) if jnp.issubdtype(jnp.result_type(leaf), jnp.floating) else leaf


def _join(leaves_of: Sequence[frozenset[int]]) -> list[frozenset[int]]:
    """Put the parameters of records together that share one."""
    found: list[frozenset[int]] = []
    for leaves in filter(None, leaves_of):
        joined = leaves.union(*(group for group in found if group & leaves))
        found = [*(group for group in found if not group & leaves), joined]
    return found
