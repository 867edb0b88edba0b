"""From a function and a batch to a `lai_core.Trace`, its gates, what it explains, and gradients' products."""

from collections.abc import Callable
from math import prod
from typing import Any

import jax
import jax.numpy as jnp

import lai_core as lai
from lai_core._adapters import Coverage as Coverage
from lai_core._adapters import check_batch, check_choice
from lai_core.estimators.gates import GateTrace as GateTrace
from lai_jax._program.model import read
from lai_jax._recording.plan import make_plan, use_name
from lai_jax._recording.recorders import Valid, mask_trace, record_gates, record_trace


def trace(
    apply: Callable[..., Any],
    params: Any,
    loss: Callable[..., Any],
    inputs: Any,
    targets: Any,
    *,
    gradients: str = "output",
    partial: bool = False,
    last: str | None = None,
    valid: jax.Array | Valid | None = None,
) -> lai.Trace:
    """Record one batch: every layer's input, and the gradients of the last layer's or of every output.

    The function is read as a jaxpr, so that any way to write it will do: jit, scan, remat, cond, vmap,
    any library of layers. Works inside `jax.jit`, where it is read once for each shape. What the losses
    do not depend on, such as metrics and debug prints, is not run. A program that no rule follows is read
    as that of one sample, mapped over the samples, where trying it shows that they keep apart. LAI reads no
    layer inside a function with a derivative rule of its own (`jax.custom_jvp`, `jax.custom_vjp`).

    Parameters
    ----------
    apply
        `apply(params, inputs)`: the model, a pure function.
    params
        Its parameters: any pytree; the floating-point leaves count as trainable. Arrays that `apply`
        captures, and parameters behind `stop_gradient`, are frozen: LAI reads no input of theirs.
    loss
        `loss(outputs, targets) -> (n,)`: what the model returned, and one unnormalised number a sample.
    inputs
        An array, a tuple (passed as `*`) or a mapping (passed as `**`), samples on the first axis.
    targets
        Whatever `loss` takes, samples on the first axis.
    gradients
        `output`: those of the last layer alone, for LAI and LLI; nothing before that layer is
        differentiated. `all`: those of every layer, for Ghost.
    partial
        Leave parameters that cannot be explained out of an `all` trace, rather than refuse.
    last
        Name of the final layer's weight, needed where several reach the loss side by side.
    valid
        `(n, t)`, not zero where a position counts, or a function of the inputs that returns it: for LAI,
        padding counts for nothing. None: all positions count.

    Returns
    -------
    lai_core.Trace
        A pytree of arrays in the model's own types.

    Raises
    ------
    ValueError
        If an option is unknown, the loss is not one number a sample, samples are coupled, several
        layers are final, or something cannot be explained exactly.

    Notes
    -----
    What to pass for a model of a library of layers:

    * equinox: `params, static = eqx.partition(model, eqx.is_inexact_array)`, and
      `apply = lambda params, inputs: jax.vmap(eqx.combine(params, static))(inputs)`.
    * flax linen: `params = variables["params"]`, and `apply = lambda params, inputs:
      module.apply({"params": params, "batch_stats": stored}, inputs)`, with running statistics.
    * flax nnx: `graph, params = nnx.split(model, nnx.Param)`, and
      `apply = lambda params, inputs: nnx.merge(graph, params)(inputs)`, in evaluation mode.
    * haiku: `apply = hk.without_apply_rng(hk.transform(forward)).apply`.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import lai_jax
    >>> def apply(params, inputs):
    ...     return jnp.tanh(inputs @ params["hidden"]) @ params["out"]
    >>> params = {"hidden": jnp.ones((4, 8)), "out": jnp.ones((8, 3))}
    >>> trace = lai_jax.trace(apply, params, lambda o, y: (o**2).sum(-1), jnp.ones((5, 4)), jnp.zeros(5))
    >>> [layer.name for layer in trace.layers]
    ['hidden', 'out']
    """
    check_choice("gradients", gradients, ("output", "all"))
    everything = gradients == "all"
    model = read(apply, params, loss, inputs, targets, partial=partial)
    plan = make_plan(model, last, partial=partial, everything=everything)
    found = record_trace(model, plan, everything=everything)[1]
    return mask_trace(found, valid, inputs)


def trace_gates(
    apply: Callable[..., Any],
    params: Any,
    loss: Callable[..., Any],
    inputs: Any,
    targets: Any,
    *,
    last: str | None = None,
) -> GateTrace:
    """Record one batch for gate-corrected LAI: inputs of layers, gates between them, the output's gradients.

    The model is a chain: linear layers on `(n, d)`, each with a matrix of its own, and between two of
    them any function that works entry by entry (an activation, a gain, normalisation by stored
    statistics). That it does is decided when the program is read, from its operations and those of its
    derivative, so that it holds for every batch.

    Parameters
    ----------
    apply, params, loss, inputs, targets, last
        As for `trace`.

    Returns
    -------
    GateTrace
        A pytree; costs two forward passes, which a compiler merges, and one elementwise backward pass.

    Raises
    ------
    ValueError
        If the model is no such chain, naming the layer; else as in `trace`.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import lai_jax
    >>> from lai_core.estimators.gates import gate_lai_scores
    >>> def apply(params, inputs):
    ...     return jnp.tanh(inputs @ params["hidden"]) @ params["out"]
    >>> params = {"hidden": jnp.ones((4, 8)), "out": jnp.ones((8, 3))}
    >>> loss = lambda outputs, targets: (outputs**2).sum(-1)
    >>> found = lai_jax.trace_gates(apply, params, loss, jnp.ones((5, 4)), jnp.zeros(5))
    >>> gate_lai_scores(found, found).shape
    (5,)
    """
    model = read(apply, params, loss, inputs, targets)
    return record_gates(model, make_plan(model, last))[1]


def per_sample_norms(
    apply: Callable[..., Any], params: Any, loss: Callable[..., Any], batch: Any
) -> jax.Array:
    """Compute the norm of each sample's gradient over all floating-point parameters.

    The root of `lai_core.self_influence` of a trace with all gradients. Works inside `jax.jit`.

    Parameters
    ----------
    apply, params, loss
        As for `trace`.
    batch
        `(inputs, targets)`.

    Returns
    -------
    jax.Array
        `(n,)`, of each sample's own, unnormalised loss.

    Raises
    ------
    ValueError
        As `trace` does: if samples are coupled, so that none has a gradient of its own, or a parameter cannot
        be explained.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import lai_jax
    >>> apply = lambda params, inputs: inputs @ params
    >>> loss = lambda outputs, targets: (outputs - targets) ** 2 / 2
    >>> batch = jnp.array([[3.0, 4.0]]), jnp.array([2.0])
    >>> print(lai_jax.per_sample_norms(apply, jnp.zeros(2), loss, batch))
    [10.]
    """
    check_batch("batch", batch)
    return jnp.sqrt(lai.self_influence(trace(apply, params, loss, *batch, gradients="all"), "ghost"))


def per_sample_inner_products(
    apply: Callable[..., Any], params: Any, loss: Callable[..., Any], first: Any, second: Any
) -> jax.Array:
    """Compute the inner products of the per-sample gradients of two batches, over all parameters.

    They are `lai_core.ghost_kernel` of two traces with all gradients. For their sums over the first batch
    alone, `exact_scores` takes one forward-mode pass.

    Parameters
    ----------
    apply, params, loss
        As for `trace`.
    first, second
        `(inputs, targets)` each; the same batch twice is traced once.

    Returns
    -------
    jax.Array
        `(n_first, n_second)`.

    Raises
    ------
    ValueError
        As `per_sample_norms` does.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import lai_jax
    >>> apply, loss = lambda params, inputs: inputs @ params, lambda outputs, targets: outputs * targets
    >>> batch = jnp.array([[1.0], [2.0]]), jnp.array([1.0, -1.0])
    >>> print(lai_jax.per_sample_inner_products(apply, jnp.zeros(1), loss, batch, batch).tolist())
    [[1.0, -2.0], [-2.0, 4.0]]
    """
    for role, batch in (("first", first), ("second", second)):
        check_batch(role, batch)
    left = trace(apply, params, loss, *first, gradients="all")
    right = left if second is first else trace(apply, params, loss, *second, gradients="all")
    return lai.ghost_kernel(left, right)


def coverage(
    apply: Callable[..., Any],
    params: Any,
    loss: Callable[..., Any],
    inputs: Any,
    targets: Any,
    *,
    last: str | None = None,
) -> Coverage:
    """Say which parameters `trace(..., gradients="all")` explains exactly. Nothing is computed.

    Parameters
    ----------
    apply, params, loss, inputs, targets, last
        As for `trace`.

    Returns
    -------
    Coverage
        A parameter that the losses do not depend on counts as explained: its gradient is zero.

    Raises
    ------
    ValueError
        If samples are coupled, or the batch does not fit: then nothing is explained.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import lai_jax
    >>> params = {"w": jnp.ones((4, 3)), "b": jnp.ones(3)}
    >>> apply = lambda p, x: x @ p["w"] + p["b"]
    >>> lai_jax.coverage(apply, params, lambda o, y: o.sum(-1), jnp.ones((5, 4)), jnp.zeros(5)).fraction
    1.0
    """
    model = read(apply, params, loss, inputs, targets, partial=True)
    plan = make_plan(model, last, partial=True, everything=True)
    sizes = {leaf: prod(jnp.shape(model.parameters[leaf])) for leaf in model.trainable}
    users: dict[int, set[str]] = {leaf: set() for leaf in model.trainable}
    for use in model.program.uses():
        for leaf in use.operand.leaves:
            users[leaf].add(use.eqn.primitive.name)
    total = sum(sizes.values())
    missing = sum(sizes[leaf] for leaf in plan.left_out)
    return Coverage(
        1.0 if total == 0 else (total - missing) / total,
        total,
        {model.names[leaf]: tuple(sorted(users[leaf])) for leaf in sizes if leaf not in plan.left_out},
        {model.names[leaf]: reason for leaf, reason in plan.left_out.items()},
        tuple(use_name(model, use) for use in model.program.uses() if use.frozen),
    )
