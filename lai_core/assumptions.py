r"""What Appendix B assumes of a network and a batch (A1 to A3), measured layer by layer and pair by pair.

* The similarities and norms that every bound is made of: `similarities`.
* A1, gradient norms decay downwards: `decay_rate`. A2, bounded activations: `activation_bound`. A3,
  gradients never oppose each other: `cosines`, `smallest_cosine`, and its non-expansive variant,
  `alignment_excess`.
* All of them at once, each with its margin: `measure_assumptions`.

Each is a statement about a network *and* a batch; measured, it gives constants with which the bounds of
`lai_core.bounds` may be evaluated. Arrays over layers have the bottom layer first. Arguments are the same
everywhere, where a function says nothing else:

Parameters
----------
beta
    Gradient similarities.
norms, validation_norms, training_norms
    Norms of the output gradients.
cosines
    What `cosines` returned.
"""

from dataclasses import dataclass

from jaxtyping import Bool, Float

from lai_core._engine.checks import DEFAULT_MEMORY_BUDGET, check_number
from lai_core._engine.gradients import Workspace
from lai_core._engine.namespace import Array, Namespace, cast, matmul, xp_of
from lai_core._theory.algebra import quotient
from lai_core._theory.arrays import Kernels, Scalar, checked
from lai_core.records.base import Record, Trace, locate
from lai_core.records.compatible import check_pair
from lai_core.records.dense import LayerTrace

__all__ = [
    "AssumptionReport",
    "Similarities",
    "activation_bound",
    "alignment_excess",
    "cosines",
    "decay_rate",
    "measure_assumptions",
    "similarities",
    "smallest_cosine",
]


# The similarities that Ghost and LAI multiply, of every layer, validation and training sample.
#
# They are read off one vector per layer and sample: layers with positions, shared matrices or blocks have no
# single alpha and beta, and are refused. A bias counts as one more activation that is always 1, as it does in
# Ghost and in LAI.


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
    """
    work = check_pair(validation, training, "all", DEFAULT_MEMORY_BUDGET)
    xp = work.xp
    vectors = []
    for role, trace in (("validation", validation), ("training", training)):
        _check_one_vector(role, trace)
        gradients = [cast(xp, layer.output_gradients, work.dtype) for layer in trace.layers]
        vectors.append(([_inputs(work, layer) for layer in trace.layers], gradients))
    (inputs_z, gradients_z), (inputs_j, gradients_j) = vectors
    stacks = [[xp.sum(v * v, axis=-1) for v in vs] for vs in (inputs_z, inputs_j, gradients_z, gradients_j)]
    norms = [xp.sqrt(xp.stack(squares)) for squares in stacks]
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


def _products(xp: Namespace, left: list[Array], right: list[Array]) -> Array:
    return xp.stack([matmul(xp, x, xp.matrix_transpose(y)) for x, y in zip(left, right, strict=True)])


# The smallest constants with which A1, A2, A3 and the non-expansive variant of A3 hold, and all at once.


@checked
def decay_rate(norms: Float[Array, "L n"], /) -> Float[Array, " n"]:
    r"""Find the smallest rho with which A1 holds for each sample.

    Implements :eq:`gradient-norm-decay`:
    :math:`\|g^{(l)}\| \le \rho^{L-l}\|g^{(L)}\|` for every l holds from
    :math:`\rho = \max_{l<L} (\|g^{(l)}\| / \|g^{(L)}\|)^{1/(L-l)}` on.

    Returns
    -------
    array
        At least 0; A1 as printed asks for less than 1. 0 where there is one layer only or nothing flows
        back, infinite where a lower gradient lives and the last one is 0.
    """
    return xp_of(norms).max(_layer_rates(norms), axis=0)


@checked
def activation_bound(norms: Float[Array, "L n"], /) -> Scalar:
    r"""Find the smallest constant with which A2 holds: the largest norm of a layer's input.

    Implements :eq:`bounded-activations`: :math:`|\alpha^{(l)}_{zj}| \le C_a^2` follows, by Cauchy and
    Schwarz.

    Parameters
    ----------
    norms
        Norms of the layers' inputs, those of both batches joined.

    Returns
    -------
    array
        C_a, in units of activations.
    """
    return xp_of(norms).max(norms)


@checked
def cosines(
    beta: Kernels, validation_norms: Float[Array, "L n_val"], training_norms: Float[Array, "L n_train"], /
) -> Kernels:
    """Return the cosine of every pair's output gradients, layer by layer; 0 where one of them is 0."""
    return quotient(xp_of(beta), beta, validation_norms[:, :, None] * training_norms[:, None, :], 0.0)


@checked
def smallest_cosine(cosines: Kernels, /) -> Scalar:
    r"""Return the smallest cosine over layers and pairs: A3 holds where it is not negative.

    Implements :eq:`non-negative-alignment`. With non-negative embedding similarities A3 gives every
    score of Ghost and of LAI one sign, so that selecting by sign then keeps everything.
    """
    return xp_of(cosines).min(cosines)


@checked
def alignment_excess(cosines: Kernels, /) -> Scalar:
    r"""Return the largest excess of a lower layer's cosine over the last one's: 0 if non-expansive.

    Implements :eq:`non-expansive`:
    :math:`\cos(g^{(l)}_z, g^{(l)}_j) \le \cos(g^{(L)}_z, g^{(L)}_j)` for every l.
    """
    return xp_of(cosines).max(cosines - cosines[-1:, ...])


def _layer_rates(norms: Float[Array, "L n"]) -> Float[Array, "L n"]:
    """Return (norm of layer l / norm of layer L)^(1/(L-l)), what A1 asks of rho; nothing, 0, at l = L."""
    xp, depth, last = xp_of(norms), int(norms.shape[0]), norms[-1, ...]
    rates = [xp.zeros_like(last)]
    for layer in range(depth - 2, -1, -1):
        norm = norms[layer, ...]
        alive = quotient(xp, norm, last, 0.0) ** (1.0 / (depth - 1 - layer))
        broken = xp.where(norm > 0, xp.full_like(last, float("inf")), xp.zeros_like(last))
        rates.insert(0, xp.where(last > 0, alive, broken))
    return xp.stack(rates)


@dataclass(frozen=True, eq=False)
class AssumptionReport:
    """Which assumptions hold on a batch, and by how much. Numbers are arrays without axes.

    Parameters
    ----------
    rho
        The rate at which every sample's gradient norms decay, a layer at a time.
    C_a
        The largest norm of a layer's input.
    alpha_bar
        The smallest embedding similarity at the last layer.
    smallest_alpha
        The smallest embedding similarity of all layers.
    smallest_cosine
        The smallest cosine between output gradients of all layers and pairs.
    layer_rates, layer_inputs, layer_cosines
        Layer by layer, the bottom one first: the rate that A1 asks for there (0 at the last
        layer, which asks for nothing), the largest norm of an input, and the smallest cosine.
    excess
        By how much a lower layer's alignment exceeds the last one's, at most.
    opposing_share
        The share of pairs whose gradients oppose each other in some layer.
    tolerance
        The cosine that is forgiven as rounding.
    """

    rho: Float[Array, ""]
    C_a: Float[Array, ""]
    alpha_bar: Float[Array, ""]
    smallest_alpha: Float[Array, ""]
    smallest_cosine: Float[Array, ""]
    layer_rates: Float[Array, " L"]
    layer_inputs: Float[Array, " L"]
    layer_cosines: Float[Array, " L"]
    excess: Float[Array, ""]
    opposing_share: Float[Array, ""]
    tolerance: float

    @property
    def decay_holds(self) -> Bool[Array, ""]:
        """Whether A1 holds: rho < 1, by the margin 1 - rho."""
        return self.rho < 1.0

    @property
    def activations_bounded(self) -> Bool[Array, ""]:
        """Whether A2 holds with C_a: on one batch, wherever activations are finite."""
        return self.C_a < float("inf")

    @property
    def alignment_holds(self) -> Bool[Array, ""]:
        """Whether A3 holds, by the margin of the smallest cosine."""
        return self.smallest_cosine >= -self.tolerance

    @property
    def non_expansive_holds(self) -> Bool[Array, ""]:
        """Whether alignment does not increase downwards, by the margin -excess."""
        return self.excess <= self.tolerance

    @property
    def embeddings_agree(self) -> Bool[Array, ""]:
        """Whether no embedding similarity is negative, which several bounds need and the paper omits."""
        return self.smallest_alpha >= -self.tolerance * self.C_a * self.C_a

    def describe(self) -> str:
        """Say it in a few lines; looks at values, so it is for eager use.

        Returns
        -------
        str
            One line for each assumption.
        """
        lines = (
            ("A1 gradient-norm decay", self.decay_holds, f"rho = {float(self.rho):.4g}"),
            ("A2 bounded activations", self.activations_bounded, f"C_a = {float(self.C_a):.4g}"),
            ("A3 alignment", self.alignment_holds, f"smallest cosine {float(self.smallest_cosine):.4g}"),
            ("non-expansive", self.non_expansive_holds, f"largest excess {float(self.excess):.4g}"),
            ("alpha >= 0", self.embeddings_agree, f"smallest alpha {float(self.smallest_alpha):.4g}"),
        )
        return "\n".join(f"{name}: {'holds' if bool(held) else 'fails'}, {how}" for name, held, how in lines)


def measure_assumptions(
    validation: Trace, training: Trace, /, *, tolerance: float | None = None
) -> AssumptionReport:
    """Measure A1, A2, A3, the non-expansive variant and the sign of embeddings on two batches.

    Parameters
    ----------
    validation, training
        Traces of dense layers without positions, with the output gradients of every layer.
    tolerance
        The cosine that is forgiven as rounding; None: 16 units of the traces' precision.

    Returns
    -------
    AssumptionReport
        Constants with which the assumptions hold, and whether they do.

    Examples
    --------
    >>> import numpy as np
    >>> import lai_core as lai
    >>> from lai_core.assumptions import measure_assumptions
    >>> hidden = lai.LayerTrace(np.array([[1.0, 0.0]]), np.array([[0.5]]))
    >>> last = lai.LayerTrace(np.array([[2.0]]), np.array([[1.0]]))
    >>> trace = lai.Trace([hidden, last])
    >>> print(measure_assumptions(trace, trace).describe())
    A1 gradient-norm decay: holds, rho = 0.5
    A2 bounded activations: holds, C_a = 2
    A3 alignment: holds, smallest cosine 1
    non-expansive: holds, largest excess 0
    alpha >= 0: holds, smallest alpha 1
    """
    found = similarities(validation, training)
    xp = xp_of(found.alpha)
    if tolerance is None:
        tolerance = 16.0 * float(xp.finfo(found.alpha.dtype).eps)
    check_number("tolerance", tolerance, at_least=0.0)
    angles = cosines(found.beta, found.validation_gradients, found.training_gradients)
    gradients = xp.concat([found.validation_gradients, found.training_gradients], axis=1)
    inputs = xp.concat([found.validation_inputs, found.training_inputs], axis=1)
    opposing = xp.any(angles < -tolerance, axis=0)
    return AssumptionReport(
        rho=xp.max(decay_rate(gradients)),
        C_a=activation_bound(inputs),
        alpha_bar=xp.min(found.alpha[-1, ...]),
        smallest_alpha=xp.min(found.alpha),
        smallest_cosine=smallest_cosine(angles),
        layer_rates=xp.max(_layer_rates(gradients), axis=1),
        layer_inputs=xp.max(inputs, axis=1),
        layer_cosines=xp.min(angles, axis=(1, 2)),
        excess=alignment_excess(angles),
        opposing_share=xp.mean(xp.astype(opposing, angles.dtype)),
        tolerance=float(tolerance),
    )
