"""Every estimator by name: what it sees, what it needs and what it goes with.

Adapters check their options against this catalogue.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from lai_core._engine.checks import check_choice
from lai_core.records.compatible import Needs


@dataclass(frozen=True)
class Facts:
    """What holds of one estimator, and what follows from it.

    Attributes
    ----------
    name
        What it is called everywhere.
    parameters
        Which parameters it sees: those of all `traced` layers, the `last` layer's, LAI's virtual
        `readouts` from every layer's input, or `all` of the model's, which needs no trace.
    keeps
        What is kept of a validation set: a `summary`, its samples' gradients of those parameters
        summed up, the `traces` of its samples, its summed `gradient`, or its `samples` as they are.
        Whatever is not such a sum has no summary here.
    second_moment
        Whether it needs the running second moment of the last layer's output gradients.
    gates
        Whether it needs the derivatives of the activations between layers.
    fits_weights
        Whether layer weights are fitted for it on validation samples.
    learning_rate
        Whether it needs the learning rate of the step to come.
    """

    name: str
    parameters: Literal["traced", "last", "readouts", "all"]
    keeps: Literal["summary", "traces", "gradient", "samples"]
    second_moment: bool = False
    gates: bool = False
    fits_weights: bool = False
    learning_rate: bool = False

    @property
    def gradients(self) -> Needs:
        """Output gradients it needs: those of `all` layers, or of the `output` alone; None: no trace."""
        if self.parameters == "all":
            return None
        return "all" if self.parameters == "traced" else "output"

    @property
    def summary(self) -> str | None:
        """The estimator whose `ValidationSummary` it is scored against; None where there is none."""
        if self.keeps != "summary":
            return None
        return {"traced": "ghost", "last": "lli"}.get(self.parameters, "lai")

    @property
    def positions(self) -> bool:
        """Whether the meaning of positions is a choice: the others are exact, or have none."""
        return self.parameters == "readouts" and not self.gates

    @property
    def layer_weights(self) -> bool:
        """Whether each layer may have a weight: a sum over readouts, one per layer."""
        return self.positions

    @property
    def sketch(self) -> bool:
        """Whether output gradients may be sketched: the score is linear in their products as they are."""
        return self.positions and not self.second_moment

    @property
    def shared_forward(self) -> bool:
        """Whether it scores the forward pass that trains."""
        return self.gradients is not None

    @property
    def chunks(self) -> bool:
        """Whether parts of a batch score as the batch does: no moment of it, no step on it comes first."""
        return not (self.second_moment or self.learning_rate)

    @property
    def batch_as_validation(self) -> bool:
        """Whether a batch may be scored against itself: no weights are fitted on a set that is held out."""
        return not self.fits_weights

    @property
    def exclude_self(self) -> bool:
        """Whether a sample may be left out of its own score: only pairs of traced samples come apart."""
        return self.batch_as_validation and self.gradients is not None


CATALOGUE = (
    Facts("ghost", "traced", "summary"),
    Facts("lai", "readouts", "summary"),
    Facts("lli", "last", "summary"),
    Facts("preconditioned_lai", "readouts", "summary", second_moment=True),
    Facts("gate_lai", "readouts", "traces", gates=True),
    Facts("calibrated_lai", "readouts", "summary", fits_weights=True),
    Facts("exact", "all", "gradient"),
    Facts("midpoint", "all", "samples", learning_rate=True),
)
"""All estimators, the two of the paper first."""

PAIRWISE = tuple(each for each in CATALOGUE if each.name == each.summary)
"""Those whose kernels are inner products of gradients as they are: `ghost`, `lai`, `lli`."""


def find_estimator(name: object, *, among: Iterable[Facts] = CATALOGUE) -> Facts:
    """Return what holds of an estimator, by its name.

    Parameters
    ----------
    name
        Its name.
    among
        Those to choose from.

    Returns
    -------
    Facts
        Those of that name.
    """
    named = {estimator.name: estimator for estimator in among}
    check_choice("estimator", name, tuple(named))
    return named[str(name)]
