"""What is trained, how, and by which methods: one recipe for all of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import lai_core as lai


@dataclass(frozen=True)
class Recipe:
    """The network and its training, the same for every method.

    Chosen for plain training, on seeds that the study does not use (100 to 102): of SGD at rates 0.1 to
    0.5, with momentum at 0.03 and 0.1, and Adam at 0.001 and 0.003, all of which peak between 0.89 and
    0.93 on the way in batches of 64, Adam at 0.003 gets to 0.92 in the fewest epochs. Larger batches
    keep the study short. No method had anything tuned for it. Training runs on well past plain
    training's peak, until it has taken in many of the wrong labels; what stopping earlier would have
    given is reported beside it.

    Attributes
    ----------
    widths
        Of the layers of a ReLU network, inputs and outputs included.
    learning_rate
        Of Adam.
    batch
        Samples per step.
    epochs
        Passes over the training set.
    """

    widths: tuple[int, ...] = (64, 128, 128, 10)
    learning_rate: float = 0.003
    batch: int = 128
    epochs: int = 60


@dataclass(frozen=True)
class Method:
    """One way to train.

    Attributes
    ----------
    name
        In JSON.
    title
        In tables and pictures.
    estimator
        What scores the samples of each batch; None: all of them are trained on.
    keeps
        Which of them are trained on: those with a positive score; a negative one, which is the paper's
        "negative influence is discarded", taken literally; or all.
    """

    name: str
    title: str
    estimator: str | None = None
    keeps: str = "positive"


POLICIES: dict[str, Callable[[Any], Any]] = {
    "positive": lai.keep_positive,
    "negative": lambda scores: lai.keep_positive(-scores),
    "all": lambda scores: lai.keep_positive(0.0 * scores + 1.0),
}
"""From what a method keeps to the weights of a batch, in any framework."""

PLAIN = Method("plain", "plain training")
METHODS = (
    PLAIN,
    Method("ghost", "Ghost", "ghost"),
    Method("lai", "LAI", "lai"),
    Method("lli", "LLI", "lli"),
    Method("preconditioned_lai", "preconditioned LAI", "preconditioned_lai"),
    Method("calibrated_lai", "calibrated LAI", "calibrated_lai"),
    Method("gate_lai", "gate-corrected LAI", "gate_lai"),
    Method("lai_as_printed", "LAI as printed", "lai", keeps="negative"),
)
CLAIMED = ("ghost", "lai", "lli")
"""The methods of which the study claims that they rescue the run."""

REFERENCES = (
    Method("unflipped_only", "right labels only"),
    Method("validation_only", "validation only"),
)
"""Plain training on other samples, as long: what curation could reach, and what it has to beat."""
