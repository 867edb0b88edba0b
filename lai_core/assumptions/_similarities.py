r"""The similarities that Ghost and LAI multiply, of every layer, validation and training sample.

They are read off one vector per layer and sample: layers with positions, shared matrices or blocks
have no single alpha and beta, and are refused. A bias counts as one more activation that is always
1, as it does in Ghost and in LAI.
"""

from dataclasses import dataclass

from jaxtyping import Float

from lai_core._engine.checks import DEFAULT_MEMORY_BUDGET
from lai_core._engine.gradients import Workspace
from lai_core._engine.namespace import Array, Namespace, cast, matmul
from lai_core.records.base import Record, Trace, locate
from lai_core.records.compatible import check_pair
from lai_core.records.dense import LayerTrace


@dataclass(frozen=True, eq=False)
class Similarities:
    """What the bounds are made of: similarities and norms of every layer, the bottom one first.

    Parameters
    ----------
    alpha, beta
        Similarities of layer inputs and of output gradients.
    validation_inputs, training_inputs
        Norms of the layers' inputs.
    validation_gradients, training_gradients
        Norms of the output gradients.
    """

    alpha: Float[Array, "L n_val n_train"]
    beta: Float[Array, "L n_val n_train"]
    validation_inputs: Float[Array, "L n_val"]
    training_inputs: Float[Array, "L n_train"]
    validation_gradients: Float[Array, "L n_val"]
    training_gradients: Float[Array, "L n_train"]


def similarities(validation: Trace, training: Trace, /) -> Similarities:
    r"""Take apart what Ghost adds up: embedding and gradient similarities of each layer.

    Implements :eq:`similarities`: :math:`\alpha^{(l)}_{zj} = \langle a^{(l-1)}_z, a^{(l-1)}_j\rangle`
    and :math:`\beta^{(l)}_{zj} = \langle g^{(l)}_z, g^{(l)}_j\rangle`.

    Parameters
    ----------
    validation, training
        Traces of dense layers without positions, with the output gradients of every layer.

    Returns
    -------
    Similarities
        In the accumulation type of the traces.

    Raises
    ------
    ValueError
        If a layer has positions, shares its matrix, is block-diagonal, or is not dense.

    Examples
    --------
    >>> import numpy as np
    >>> import lai_core as lai
    >>> from lai_core.assumptions import similarities
    >>> one = lai.Trace([lai.LayerTrace(np.array([[1.0, 2.0]]), np.array([[3.0]]))])
    >>> found = similarities(one, one)
    >>> float(found.alpha[0, 0, 0]), float(found.beta[0, 0, 0])
    (5.0, 9.0)
    """
    work = check_pair(validation, training, "all", DEFAULT_MEMORY_BUDGET)
    xp = work.xp
    vectors = []
    for role, trace in (("validation", validation), ("training", training)):
        _check_one_vector(role, trace)
        gradients = [cast(xp, layer.output_gradients, work.dtype) for layer in trace.layers]
        vectors.append(([_inputs(work, layer) for layer in trace.layers], gradients))
    (inputs_z, gradients_z), (inputs_j, gradients_j) = vectors
    norms = [xp.stack([_norm(xp, v) for v in vs]) for vs in (inputs_z, inputs_j, gradients_z, gradients_j)]
    return Similarities(_products(xp, inputs_z, inputs_j), _products(xp, gradients_z, gradients_j), *norms)


def _check_one_vector(role: str, trace: Trace) -> None:
    keys = [layer.weight for layer in trace.layers if layer.weight is not None]
    for index, layer in enumerate(trace.layers):
        reasons = {
            "is not dense": not isinstance(layer, LayerTrace),
            "has positions": any(array.ndim != 2 for array in layer.arrays().values()),
            "is block-diagonal": getattr(layer, "groups", 1) != 1,
            "shares its matrix": keys.count(layer.weight) > 1,
        }
        for reason, applies in reasons.items():
            if applies:
                msg = (
                    f"{locate(role, index, layer)}: expected a dense layer with one input and one output "
                    f"vector per sample, got one that {reason}; use ghost_kernel and lai_kernel on it"
                )
                raise ValueError(msg)


def _inputs(work: Workspace, layer: Record) -> Array:
    """Return a dense layer's input, with the activation 1 that its bias multiplies."""
    activations = cast(work.xp, layer.arrays()["activations"], work.dtype)
    if not layer.has_readout_bias:
        return activations
    return work.xp.concat([activations, work.xp.ones_like(activations[:, :1])], axis=-1)


def _norm(xp: Namespace, vectors: Array) -> Array:
    return xp.sqrt(xp.sum(vectors * vectors, axis=-1))


def _products(xp: Namespace, left: list[Array], right: list[Array]) -> Array:
    return xp.stack([matmul(xp, x, xp.matrix_transpose(y)) for x, y in zip(left, right, strict=True)])
