"""Every assumption on two batches at once, each with its margin."""

from dataclasses import dataclass

from jaxtyping import Bool, Float

from lai_core._engine.checks import check_number
from lai_core._engine.namespace import Array, xp_of
from lai_core.assumptions._measured import (
    activation_bound,
    alignment_excess,
    cosines,
    decay_rate,
    layer_rates,
    smallest_cosine,
)
from lai_core.assumptions._similarities import similarities
from lai_core.records.base import Trace


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
        layer_rates=xp.max(layer_rates(gradients), axis=1),
        layer_inputs=xp.max(inputs, axis=1),
        layer_cosines=xp.min(angles, axis=(1, 2)),
        excess=alignment_excess(angles),
        opposing_share=xp.mean(xp.astype(opposing, angles.dtype)),
        tolerance=float(tolerance),
    )
