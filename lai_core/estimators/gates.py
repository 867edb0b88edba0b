r"""Gate-corrected LAI: what one forward pass knows of the layers' gains, pair by pair.

Ghost's similarity shrinks or grows on its way down, :math:`\beta^{(t)} = \sum_i \phi'(s^{(t)}_{z,i})
\phi'(s^{(t)}_{j,i})\, (W^{(t+1)}_{:,i} \cdot g^{(t+1)}_z)(W^{(t+1)}_{:,i} \cdot g^{(t+1)}_j)`. Where
the columns of W point in no preferred direction, each product of projections is
:math:`\|W_{:,i}\|^2 \beta^{(t+1)} / d_{t+1}` on average, which needs no backward pass:
:math:`\beta^{(t)} \approx \gamma_t \beta^{(t+1)}`. Plain LAI sets every :math:`\gamma_t` to 1.

The functions take what a model's forward pass can record beside a trace: the derivatives
:math:`\phi'(s^{(t)})` of every layer but the last, `(n, d_t)`, and of the weights only the squared
norms of the columns of every matrix but the first, `(d_t,)`.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float

from lai_core._engine.axes import check_array
from lai_core._engine.checks import DEFAULT_MEMORY_BUDGET
from lai_core._engine.gradients import Workspace, spans
from lai_core._engine.namespace import Array, accumulation_dtype, cast, matmul, namespace_of, xp_of
from lai_core._theory.algebra import dot
from lai_core._theory.arrays import checked
from lai_core.estimators._arguments import check_lai_pair
from lai_core.records.base import Trace, locate
from lai_core.records.compatible import check_same_samples

__all__ = [
    "GateTrace",
    "gate_lai_scores",
    "squared_column_norms",
]


# What gate-corrected LAI takes, two traces with their gates and column norms, and the gains gates imply.


@dataclass(frozen=True, eq=False)
class GateTrace:
    r"""A trace of a chain of layers, and what the gates between them say of its gradients.

    Parameters
    ----------
    trace
        Inputs of layers, and the output gradients of the last.
    gates
        :math:`\phi'(s^{(l)})`, derivatives of what lies between one layer and the next, for every layer
        but the last, each `(n, d_l)`.
    column_norms
        :math:`\|W^{(l+1)}_{:,i}\|^2`, squared norms of the columns of every matrix but the first, each
        `(d_l,)`; see `squared_column_norms`. Of a validation set they are not read.
    """

    trace: Trace
    gates: Sequence[Array]
    column_norms: Sequence[Array] = ()


@dataclass(frozen=True)
class _GateInputs:
    """What the estimator multiplies, validation side first; every list has one entry a layer."""

    work: Workspace
    activations: tuple[list[Array], list[Array]]
    constants: list[float]
    gates: list[Array]
    scaled_gates: list[Array]
    gradients: tuple[Array, Array]


def _gate_inputs(validation: Any, training: Any, memory_budget: int) -> _GateInputs:
    """Check everything from shapes alone, and scale the validation side's gates by the column norms."""
    sides = {"validation": validation, "training": training}
    for role, side in sides.items():
        if not isinstance(side, GateTrace):
            msg = f"{role}: expected a GateTrace, got {type(side).__name__}"
            raise TypeError(msg)
    work = check_lai_pair(validation.trace, training.trace, "mean", memory_budget)
    for role, side in sides.items():
        _check_dense(role, side.trace, work)
    layers = validation.trace.layers, training.trace.layers
    activations: Any = tuple([layer.readout_input(work.xp) for layer in side] for side in layers)
    outputs: Any = tuple(side[-1].output_gradients for side in layers)
    constants = [float(layer.has_readout_bias) for layer in training.trace.layers]
    dtype = _check_gates(validation, training, work)
    gates, other, norms = (
        [cast(work.xp, array, dtype) for array in arrays]
        for arrays in (validation.gates, training.gates, training.column_norms)
    )
    # gamma_t(z, j) = sum_i |W_:,i|^2 phi'_zi phi'_ji / d_(t+1): all but phi'_j goes to the validation side.
    heights = [array.shape[-1] for array in (*norms[1:], *outputs[1:])]
    scaled = [gate * (norm / height) for gate, norm, height in zip(gates, norms, heights, strict=False)]
    wide = Workspace(work.xp, dtype, work.memory_budget)
    return _GateInputs(wide, activations, constants, other, scaled, outputs)


def _check_gates(validation: GateTrace, training: GateTrace, work: Workspace) -> Any:
    """Raise unless every layer but the last has its gates and its norms, of the widths of the next input.

    Returns
    -------
    dtype
        In which to compute.
    """
    inputs: list[Any] = [layer.readout_input(work.xp) for layer in training.trace.layers[1:]]
    widths = [int(array.shape[-1]) for array in inputs]
    expected = {
        "validation.gates": (validation.gates, (validation.trace.layers[0].samples(),)),
        "training.gates": (training.gates, (training.trace.layers[0].samples(),)),
        "training.column_norms": (training.column_norms, ()),
    }
    named: dict[str, Any] = {"training": training.trace.layers[-1].output_gradients}
    for name, (arrays, samples) in expected.items():
        if len(arrays) != len(widths):
            msg = (
                f"{name}: expected {len(widths)} arrays, one for every layer but the last, got {len(arrays)}"
            )
            raise ValueError(msg)
        for index, (array, width) in enumerate(zip(arrays, widths, strict=True)):
            here = f"{name}[{index}]"
            named[here] = array
            check_array(here, array, " ".join(map(str, (*samples, width))))
    xp = namespace_of(named)
    return accumulation_dtype(xp, work.dtype, *(array.dtype for array in named.values()))


def _check_dense(role: str, trace: Trace, work: Workspace) -> None:
    """Raise unless every layer is dense, without positions, with a matrix of its own."""
    keys: set[Hashable] = set()
    for index, layer in enumerate(trace.layers):
        read: Any = layer.readout_input(work.xp)
        here = locate(role, index, layer)
        if read is None or read.ndim != 2 or getattr(layer, "groups", 1) != 1:
            got = "none" if read is None else f"shape {tuple(read.shape)}"
            msg = (
                f"{here}: expected a dense layer with activations (n, d) and groups=1, got {got}; "
                "lai_kernel knows positions and groups"
            )
            raise ValueError(msg)
        if layer.weight is not None and layer.weight in keys:
            msg = f"{here}: expected a matrix of its own, got the key {layer.weight!r} of an earlier layer"
            raise ValueError(msg)
        keys.add(layer.weight)


@checked
def squared_column_norms(weight: Float[Array, "d_above d_below"], /) -> Float[Array, " d_below"]:
    r"""Compute the squared norms of a matrix's columns, what the gates need to know of the layer above.

    Parameters
    ----------
    weight
        :math:`W^{(t+1)}`.

    Returns
    -------
    array
        :math:`\|W^{(t+1)}_{:,i}\|^2`.
    """
    return xp_of(weight).sum(weight * weight, axis=0)


def gate_lai_scores(
    validation: GateTrace,
    training: GateTrace,
    *,
    exclude_self: bool = False,
    memory_budget: int = DEFAULT_MEMORY_BUDGET,
) -> Float[Array, " n_train"]:
    r"""LAI with each layer's alpha multiplied by the gains of the layers above it.

    Implements :eq:`gate-corrected`: :math:`\beta^{(L)}_{zj} \sum_l \alpha^{(l)}_{zj}
    \prod_{t=l}^{L-1} \gamma_t(z, j)`, summed over validation samples, without a printed minus. Given the
    activations, the gates, the column norms and the last gradients, its error against Ghost is 0 on average
    over column directions that are uniform on the sphere and independent from layer to layer. It needs each
    pair of samples: no summary of the validation side replaces them.

    Parameters
    ----------
    validation, training
        Traces of a chain of dense layers, one position a sample, with their gates; the column norms are
        the training side's, those of the weights as they are now.
    exclude_self
        Leave sample j out of its own score: both sides are of the same batch, in the same order.
    memory_budget
        Bytes that temporaries may take.

    Returns
    -------
    array
        `(n_train,)`. Positive helps: an estimate of what Ghost gives, in the same unit. At least float32.

    Examples
    --------
    >>> import numpy as np
    >>> import lai_core as lai
    >>> from lai_core.estimators.gates import GateTrace, gate_lai_scores
    >>> one = np.ones((1, 1))
    >>> trace = lai.Trace([lai.LayerTrace(2.0 * one), lai.LayerTrace(one, one)])
    >>> gated = GateTrace(trace, [one], [np.array([0.25])])
    >>> gate_lai_scores(gated, gated)  # 4 * 0.25 + 1
    array([2.])
    """
    inputs = _gate_inputs(validation, training, memory_budget)
    xp = inputs.work.xp
    n_val, n_train = (int(side.shape[0]) for side in inputs.gradients)
    fitting = inputs.work.fit((len(inputs.constants) + 2) * n_val, n_train, "one column of a kernel")
    sums, dtype = [], inputs.work.dtype
    for columns in spans(n_train, fitting):

        def products(validation: Array, training: Array, columns: slice = columns) -> Array:
            right = cast(xp, training[columns, ...], dtype)
            return matmul(xp, cast(xp, validation, dtype), xp.matrix_transpose(right))

        sums.append(xp.sum(_correct(inputs, products), axis=0))
    scores = sums[0] if len(sums) == 1 else xp.concat(sums, axis=0)
    if not exclude_self:
        return scores
    check_same_samples(validation.trace, training.trace)
    return scores - _correct(inputs, lambda *pair: dot(xp, *(cast(xp, side, dtype) for side in pair)))


def _correct(inputs: _GateInputs, products: Callable[[Array, Array], Array]) -> Array:
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
