"""The pairwise kernels: one number for every validation and every training sample."""

from typing import Any

from jaxtyping import Float

from lai_core._engine.checks import DEFAULT_MEMORY_BUDGET
from lai_core._engine.namespace import Array
from lai_core.estimators._sides import exact_sides, lai_sides
from lai_core.records.base import Trace


def ghost_kernel(
    validation: Trace, training: Trace, *, memory_budget: int = DEFAULT_MEMORY_BUDGET
) -> Float[Array, "n_val n_train"]:
    r"""Inner products of the samples' exact gradients over all traced parameters.

    Implements :eq:`gradient1`, :eq:`ghost-bias`, :eq:`ghost-positions` and :eq:`ghost-sharing`: without
    the printed minus and with the terms that biases, positions and shared matrices need,
    :math:`\sum_l \sum_{t,t'} \alpha^{(l)}_{tt'} \beta^{(l)}_{tt'}`.

    Parameters
    ----------
    validation, training
        Traces with the output gradients of every layer.
    memory_budget
        Bytes that temporaries may take.

    Returns
    -------
    array
        `(n_val, n_train)`, the product of two losses' units; positive where a step on the training
        sample lowers the validation sample's loss. At least float32.

    Notes
    -----
    Per layer, the cheaper of pairs of positions, `n_val n t t' (d_in + d_out)` multiply-adds, and
    built gradients, `(n_val t + n t' + n_val n) d_in d_out`.

    Examples
    --------
    >>> import numpy as np
    >>> import lai_core as lai
    >>> one = lai.Trace([lai.LayerTrace(np.array([[1.0, 2.0]]), np.array([[3.0]]))])
    >>> float(lai.ghost_kernel(one, one)[0, 0])
    45.0
    """
    return exact_sides("ghost", validation, training, False, memory_budget).kernel()


def lli_kernel(
    validation: Trace, training: Trace, *, memory_budget: int = DEFAULT_MEMORY_BUDGET
) -> Float[Array, "n_val n_train"]:
    r"""Inner products of the samples' exact gradients over the last layer's parameters.

    Implements :eq:`lli`. The gradient is that of the last layer's own use of the weight and bias that the
    samples meet there: of a matrix that is an embedding too, of this use alone; of a weight that is
    computed from parameters (a weight norm, a mask), of the weight itself.

    Parameters
    ----------
    validation, training
        Traces with the output gradients of the last layer.
    memory_budget
        Bytes that temporaries may take.

    Returns
    -------
    array
        `(n_val, n_train)`; positive where a step on the training sample, moving the last layer
        alone, lowers the validation sample's loss.
    """
    return exact_sides("lli", validation, training, False, memory_budget).kernel()


def lai_kernel(
    validation: Trace,
    training: Trace,
    *,
    layer_weights: Any = None,
    positions: str = "tokens",
    memory_budget: int = DEFAULT_MEMORY_BUDGET,
) -> Float[Array, "n_val n_train"]:
    r"""Similarity of all layers' activations times similarity of the last layer's output gradients.

    Implements :eq:`gradient2` and :eq:`virtual-readout`: without the printed minus
    :math:`(\sum_l w_l \alpha^{(l)}_{zj}) \beta^{(L)}_{zj}`. It is the exact inner product of the
    gradients of virtual linear readouts from every layer's input.

    Parameters
    ----------
    validation, training
        Traces with the output gradients of the last layer.
    layer_weights
        `(L,)`, an array of the traces' namespace or a sequence of floats: factors of each layer's
        alpha, the bias's 1 included. None: all 1.
    positions
        What the product means on layers with positions: `tokens`, `mean` or `flatten`
        (see :doc:`/guide/positions`).
    memory_budget
        Bytes that temporaries may take.

    Returns
    -------
    array
        `(n_val, n_train)`; positive where a step on the training sample, moving the virtual readouts
        alone, lowers the validation sample's loss. At least float32.

    Examples
    --------
    >>> import numpy as np
    >>> import lai_core as lai
    >>> hidden = lai.LayerTrace(np.array([[1.0, 2.0]]))
    >>> output = lai.LayerTrace(np.array([[3.0]]), np.array([[2.0]]))
    >>> trace = lai.Trace([hidden, output])
    >>> float(lai.lai_kernel(trace, trace)[0, 0])  # (5 + 9) * 4
    56.0
    """
    return lai_sides(validation, training, layer_weights, positions, False, memory_budget).kernel()
