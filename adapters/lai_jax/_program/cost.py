"""What a forward pass takes, counted from its jaxpr."""

import math
from collections.abc import Callable
from typing import Any

import jax

from lai_jax._program.losses import arrays_of, call
from lai_jax._program.program import needed, programs_of


def forward_cost(apply: Callable[..., Any], params: Any, inputs: Any) -> int:
    """Return the multiply-adds of one forward pass: its products of arrays and convolutions.

    Nothing is run or compiled. Scans count as often as they run, branches by the dearest, the body of
    a loop of unknown length once.
    """
    arrays, restored = arrays_of(inputs)
    closed = jax.make_jaxpr(lambda params, arrays: call(apply, params, restored(arrays)))(params, arrays)
    return multiply_adds(closed.jaxpr)


def multiply_adds(jaxpr: Any) -> int:
    """Return the multiply-adds of a jaxpr."""
    return sum(_of_equation(eqn) for eqn in needed(jaxpr))


def _of_equation(eqn: Any) -> int:
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
        return max(multiply_adds(branch) for branch in programs_of(eqn))
    inner = sum(multiply_adds(jaxpr) for jaxpr in programs_of(eqn))
    return inner * (int(params["length"]) if name == "scan" else 1)
