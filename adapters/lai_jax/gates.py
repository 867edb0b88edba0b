"""From a function, its parameters and a batch to what gate-corrected LAI takes."""

from collections.abc import Callable
from typing import Any

from lai_core.estimators.gates import GateTrace as GateTrace
from lai_jax._program.model import read
from lai_jax._recording.plan import make_plan
from lai_jax._recording.recorders import GateRecorder


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
        A pytree; costs one forward pass and one elementwise backward pass.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If the model is no such chain, naming the layer; else as in `trace`.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import lai_jax
    >>> from lai_core.estimators.gates import gate_lai_kernel
    >>> def apply(params, inputs):
    ...     return jnp.tanh(inputs @ params["hidden"]) @ params["out"]
    >>> params = {"hidden": jnp.ones((4, 8)), "out": jnp.ones((8, 3))}
    >>> loss = lambda outputs, targets: (outputs**2).sum(-1)
    >>> found = lai_jax.trace_gates(apply, params, loss, jnp.ones((5, 4)), jnp.zeros(5))
    >>> gate_lai_kernel(found, found).shape
    (5, 5)
    """
    model = read(apply, params, loss, inputs, targets)
    return GateRecorder().run(model, make_plan(model, last))[1]
