"""The routes by which LAI scores a model with positions: what each means, and what it takes."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax

from lai_core.estimators.costs import Route as Route
from lai_core.estimators.costs import list_routes
from lai_jax._program.losses import arrays_of, call
from lai_jax._program.program import find_needed, programs_of
from lai_jax.trace import trace


def routes(
    apply: Callable[..., Any],
    params: Any,
    loss: Callable[..., Any],
    inputs: Any,
    targets: Any,
    *,
    sketches: Sequence[int] = (16, 32, 64, 128),
    last: str | None = None,
) -> tuple[Route, ...]:
    """List what LAI's routes take on a batch, from its shapes: nothing is run, scored or compiled.

    Tracing and the gradient of the output, the same for all routes, are not in the figures. The forward
    pass is counted from its jaxpr: products of arrays and convolutions.

    Parameters
    ----------
    apply, params, loss, inputs, targets, last
        As for `trace`; arrays may be `jax.ShapeDtypeStruct`.
    sketches
        Widths to list; those that are not narrower than the output are left out.

    Returns
    -------
    tuple of Route
        Those that fit the model, the most exact first, then sketches of that one: `positions` and
        `sketch` of `summarize`.

    Raises
    ------
    ValueError
        As `trace` does; or if a width is no positive whole number.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import lai_jax
    >>> apply = lambda params, inputs: jnp.tanh(inputs @ params["w"]) @ params["o"]
    >>> params = {"w": jnp.ones((4, 8)), "o": jnp.ones((8, 50))}
    >>> loss = lambda outputs, targets: (outputs**2).sum((1, 2))
    >>> found = lai_jax.routes(apply, params, loss, jnp.ones((2, 6, 4)), jnp.zeros(2), sketches=[5])
    >>> [(route.positions, route.sketch, round(route.forwards, 2)) for route in found]
    [('tokens', None, 1.39), ('mean', None, 0.23), ('flatten', None, 0.29), ('tokens', 5, 0.14)]
    """
    found: list[Route] = []
    forward = forward_cost(apply, params, inputs)
    arrays, restored = arrays_of((inputs, targets))

    def fill(params: Any, arrays: list[Any]) -> None:
        traced = trace(apply, params, loss, *restored(arrays), last=last)
        found.extend(list_routes(traced, forward, sketches=sketches))

    jax.eval_shape(fill, params, arrays)
    return tuple(found)


def forward_cost(apply: Callable[..., Any], params: Any, inputs: Any) -> int:
    """Count the multiply-adds of one forward pass: its products of arrays and convolutions."""
    # Scans count as often as they run, branches by the dearest, the body of a loop of unknown length once.
    arrays, restored = arrays_of(inputs)
    closed = jax.make_jaxpr(lambda params, arrays: call(apply, params, restored(arrays)))(params, arrays)
    return _multiply_adds(closed.jaxpr)


def _multiply_adds(jaxpr: Any) -> int:
    return sum(_count_equation(eqn) for eqn in find_needed(jaxpr))


def _count_equation(eqn: Any) -> int:
    name, params = eqn.primitive.name, eqn.params
    if name == "dot_general":
        (contracted, _), _ = params["dimension_numbers"]
        left = eqn.invars[0].aval.shape
        return math.prod(eqn.outvars[0].aval.shape) * math.prod(left[axis] for axis in contracted)
    if name == "conv_general_dilated":
        kernel = eqn.invars[1].aval.shape
        outputs = kernel[params["dimension_numbers"].rhs_spec[0]]
        return math.prod(eqn.outvars[0].aval.shape) * math.prod(kernel) // outputs
    if name == "cond":
        return max(_multiply_adds(branch) for branch in programs_of(eqn))
    inner = sum(_multiply_adds(jaxpr) for jaxpr in programs_of(eqn))
    return inner * (int(params["length"]) if name == "scan" else 1)
