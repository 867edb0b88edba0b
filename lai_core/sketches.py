r"""Random sketches of the output gradients: LAI on exact pairs of tokens at a fraction of the outputs.

With as many outputs as a vocabulary has words, what LAI's exact pairs of positions cost is the number
of outputs: `n t d_L D` multiply-adds, `D` the layers' summed widths. A sketch adds the outputs up in
`width` random groups with random signs, the same on both sides, and `d_L` becomes `width`.
"""

from dataclasses import replace
from typing import Any

from jaxtyping import Float, Int

from lai_core._engine.namespace import Array, namespace_of
from lai_core._engine.records import Trace
from lai_core.layers import LayerTrace


def sketch_outputs(
    trace: Trace, signs: Float[Array, " d_L"], permutation: Int[Array, " d_L"], *, width: int
) -> Trace:
    r"""Replace the last layer's output gradients by a sketch of `width` numbers a position.

    The sketch :math:`S g` of a gradient is :math:`(S g)_b = \sum_{i \in b} s_i g_i` over `width`
    groups of equal size. Over random signs it is unbiased, :math:`E \langle S g, S h \rangle =
    \langle g, h \rangle`, and so is every score that is linear in these products, such as LAI's; the
    variance of one product is :math:`\sum_b \sum_{i \ne j \in b} (g_i^2 h_j^2 + g_i h_i g_j h_j)`.

    Parameters
    ----------
    trace
        A trace whose last record is a `LayerTrace` with output gradients.
    signs
        `(d_L,)`, -1 or 1 each, drawn by the caller; the same for validation and training.
    permutation
        `(d_L,)`, a permutation of the outputs; likewise.
    width
        Numbers a position to keep, at least 1.

    Returns
    -------
    Trace
        For LAI; its Ghost and LLI are no longer exact in the last layer.

    Raises
    ------
    TypeError
        If the last record is of another kind.
    ValueError
        If signs or permutation are not `(d_L,)`, the width lies outside [1, d_L], or there are no
        output gradients.

    Examples
    --------
    >>> import numpy as np
    >>> import lai_core as lai
    >>> from lai_core.sketches import sketch_outputs
    >>> trace = lai.Trace([lai.LayerTrace(np.ones((2, 3)), np.array([[1.0, 2.0, 3.0, 4.0]] * 2))])
    >>> sketched = sketch_outputs(trace, np.array([1.0, -1, 1, 1]), np.array([0, 2, 1, 3]), width=2)
    >>> sketched.layers[-1].output_gradients[0]
    array([4., 2.])
    """
    *others, last = trace.layers
    if not isinstance(last, LayerTrace):
        msg = f"trace: expected a LayerTrace as the last record, got {type(last).__name__}"
        raise TypeError(msg)
    gradients: Any = last.output_gradients
    if gradients is None:
        msg = "trace: expected the last layer's output gradients, got None"
        raise ValueError(msg)
    outputs = int(gradients.shape[-1])
    for name, array in (("signs", signs), ("permutation", permutation)):
        if tuple(array.shape) != (outputs,):
            msg = f"{name}: expected one entry per output, shape ({outputs},), got {tuple(array.shape)}"
            raise ValueError(msg)
    if not isinstance(width, int) or not 1 <= width <= outputs:
        msg = f"width: expected a whole number in [1, {outputs}], got {width!r}"
        raise ValueError(msg)
    xp = namespace_of({"output_gradients": gradients, "signs": signs, "permutation": permutation})
    mixed = xp.take(gradients * xp.astype(signs, gradients.dtype), permutation, axis=gradients.ndim - 1)
    missing = -outputs % width
    if missing:
        mixed = xp.concat([mixed, xp.zeros_like(mixed[..., :missing])], axis=-1)
    grouped = xp.reshape(mixed, (*gradients.shape[:-1], width, -1))
    return Trace([*others, replace(last, output_gradients=xp.sum(grouped, axis=-1))])
