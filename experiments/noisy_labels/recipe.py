"""What is trained, how, and by which methods: one recipe for all of them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Recipe:
    """The network and its training, the same for every method.

    Optimizer and learning rate are those at which plain training on the noisy labels reaches its
    highest accuracy on the way, tried on seeds that the study does not use (100 to 102; SGD with and
    without momentum, and Adam, at two to three rates each). No method had anything tuned for it.
    Training runs on well past that point, until plain training has taken in many of the wrong labels;
    what stopping earlier would have given is reported beside it.

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
    as_printed
        Whether the scores have their sign turned before the positive ones are kept: the paper's
        "negative influence is discarded", taken literally.
    """

    name: str
    title: str
    estimator: str | None = None
    as_printed: bool = False


PLAIN = Method("plain", "plain training")
METHODS = (
    PLAIN,
    Method("ghost", "Ghost", "ghost"),
    Method("lai", "LAI", "lai"),
    Method("lli", "LLI", "lli"),
    Method("preconditioned_lai", "preconditioned LAI", "preconditioned_lai"),
    Method("lai_as_printed", "LAI as printed", "lai", as_printed=True),
)
CLAIMED = ("ghost", "lai", "lli")
"""The methods of which the study claims that they rescue the run."""

REFERENCES = (
    Method("unflipped_only", "right labels only"),
    Method("validation_only", "validation only"),
)
"""Plain training on other samples, as long: what curation could reach, and what it has to beat."""
