"""What Ghost explains of a model, and what it does not."""

from collections.abc import Callable
from math import prod
from typing import Any

import jax.numpy as jnp

from lai_core._adapters import Coverage as Coverage
from lai_jax._program.model import read
from lai_jax._recording.plan import make_plan, use_name


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
    >>> lai_jax.coverage(apply, params, lambda o, y: o.sum(-1), jnp.ones((5, 4)), jnp.zeros(5)).share
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
