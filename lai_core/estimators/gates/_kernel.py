r"""The gate-corrected kernel, and its sums."""

from collections.abc import Callable, Iterator

from jaxtyping import Float

from lai_core._engine.checks import DEFAULT_MEMORY_BUDGET
from lai_core._engine.gradients import spans
from lai_core._engine.namespace import Array, cast, matmul
from lai_core._theory.algebra import dot
from lai_core.estimators.gates._inputs import GateInputs, GateTrace, gate_inputs
from lai_core.records.compatible import check_same_samples


def gate_lai_kernel(
    validation: GateTrace,
    training: GateTrace,
    *,
    memory_budget: int = DEFAULT_MEMORY_BUDGET,
) -> Float[Array, "n_val n_train"]:
    r"""LAI with each layer's alpha multiplied by the gains of the layers above it.

    Implements :eq:`gate-corrected`: :math:`\beta^{(L)}_{zj} \sum_l \alpha^{(l)}_{zj}
    \prod_{t=l}^{L-1} \gamma_t(z, j)`, without a printed minus. Given the activations, the gates, the
    column norms and the last gradients, its error against Ghost is 0 on average over column directions
    that are uniform on the sphere and independent from layer to layer. It needs each pair of samples:
    no summary of the validation side replaces them.

    Parameters
    ----------
    validation, training
        Traces of a chain of dense layers, one position a sample, with their gates; the column norms are
        the training side's, those of the weights as they are now.
    memory_budget
        Bytes that temporaries may take.

    Returns
    -------
    array
        `(n_val, n_train)`; positive helps, as Ghost's. At least float32.

    Examples
    --------
    >>> import numpy as np
    >>> import lai_core as lai
    >>> from lai_core.estimators.gates import GateTrace, gate_lai_kernel
    >>> one = np.ones((1, 1))
    >>> trace = lai.Trace([lai.LayerTrace(2.0 * one), lai.LayerTrace(one, one)])
    >>> gated = GateTrace(trace, [one], [np.array([0.25])])
    >>> gate_lai_kernel(gated, gated)  # 4 * 0.25 + 1
    array([[2.]])
    """
    inputs = gate_inputs(validation, training, memory_budget)
    xp = inputs.work.xp
    blocks = [_block(inputs, columns) for columns in _columns(inputs)]
    return blocks[0] if len(blocks) == 1 else xp.concat(blocks, axis=1)


def gate_lai_scores(
    validation: GateTrace,
    training: GateTrace,
    *,
    exclude_self: bool = False,
    memory_budget: int = DEFAULT_MEMORY_BUDGET,
) -> Float[Array, " n_train"]:
    r"""Gate-corrected influence of each training sample on the whole validation set.

    Implements :eq:`gate-corrected`, summed over validation samples.

    Parameters
    ----------
    validation, training, memory_budget
        As in `gate_lai_kernel`.
    exclude_self
        Leave sample j out of its own score: both sides are of the same batch, in the same order.

    Returns
    -------
    array
        `(n_train,)`. Positive helps: an estimate of what Ghost gives, in the same unit.
    """
    inputs = gate_inputs(validation, training, memory_budget)
    xp = inputs.work.xp
    sums = [xp.sum(_block(inputs, columns), axis=0) for columns in _columns(inputs)]
    scores = sums[0] if len(sums) == 1 else xp.concat(sums, axis=0)
    if not exclude_self:
        return scores
    check_same_samples(validation.trace, training.trace)
    dtype = inputs.work.dtype
    return scores - _correct(inputs, lambda *pair: dot(xp, *(cast(xp, side, dtype) for side in pair)))


def _columns(inputs: GateInputs) -> Iterator[slice]:
    """Cut the training samples so that every layer's block of pairs fits the budget."""
    n_val, n_train = inputs.gradients[0].shape[0], inputs.gradients[1].shape[0]
    return spans(
        n_train, inputs.work.fit((len(inputs.constants) + 2) * n_val, n_train, "one column of a kernel")
    )


def _block(inputs: GateInputs, columns: slice) -> Float[Array, "n_val chunk"]:
    xp, dtype = inputs.work.xp, inputs.work.dtype

    def products(validation: Array, training: Array) -> Array:
        right = cast(xp, training[columns, ...], dtype)
        return matmul(xp, cast(xp, validation, dtype), xp.matrix_transpose(right))

    return _correct(inputs, products)


def _correct(inputs: GateInputs, products: Callable[[Array, Array], Array]) -> Array:
    """Sum over layers from below; `products` says which pairs."""
    # sum_l alpha_l prod_{t >= l} gamma_t = (...((alpha_1 gamma_1 + alpha_2) gamma_2 + alpha_3)...) + alpha_L
    alphas = [
        products(*layer) + constant
        for *layer, constant in zip(*inputs.activations, inputs.constants, strict=True)
    ]
    corrected = alphas[0]
    for alpha, *gates in zip(alphas[1:], inputs.scaled_gates, inputs.gates, strict=True):
        corrected = corrected * products(*gates) + alpha
    return corrected * products(*inputs.gradients)
