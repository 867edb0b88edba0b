"""What a policy is, for type checkers: a function of the scores, and of what else it names.

A function that names several of these by itself is a class with an attribute `wants`, which says them.
"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from torch import Tensor

AnyPolicy = Callable[..., Tensor]
"""A policy once it has been checked."""


class OfScores(Protocol):
    """From scores `(n,)`, positive helps, to weights `(n,)`."""

    def __call__(self, scores: Tensor, /) -> Tensor:
        """Return the weights `(n,)`."""
        ...


class OfParts(Protocol):
    """From scores `(parts, n)` and the parts' sizes to weights `(n,)`."""

    def __call__(self, scores: Tensor, /, *, sizes: Any) -> Tensor:
        """Return the weights `(n,)`."""
        ...


class OfLosses(Protocol):
    """Sees each sample's loss, too."""

    def __call__(self, scores: Tensor, /, *, losses: Tensor) -> Tensor:
        """Return the weights `(n,)`."""
        ...


class OfGroups(Protocol):
    """Sees the groups of a batch, too."""

    def __call__(self, scores: Tensor, /, *, groups: Any) -> Tensor:
        """Return the weights `(n,)`."""
        ...


class OfSteps(Protocol):
    """Sees the number of the step, too."""

    def __call__(self, scores: Tensor, /, *, step: int) -> Tensor:
        """Return the weights `(n,)`."""
        ...


class OfValidationLosses(Protocol):
    """Sees the validation set's losses, too."""

    def __call__(self, scores: Tensor, /, *, validation_losses: Tensor) -> Tensor:
        """Return the weights `(n,)`."""
        ...


class OfLossesAndValidation(Protocol):
    """Sees the batch's losses and the validation set's, too."""

    def __call__(self, scores: Tensor, /, *, losses: Tensor, validation_losses: Tensor) -> Tensor:
        """Return the weights `(n,)`."""
        ...


class OfLossesAndSteps(Protocol):
    """Sees each sample's loss and the number of the step, too."""

    def __call__(self, scores: Tensor, /, *, losses: Tensor, step: int) -> Tensor:
        """Return the weights `(n,)`."""
        ...


class OfMeasured(Protocol):
    """Sees what its own method measures of a batch, too."""

    def __call__(self, scores: Tensor, /, *args: Any, **seen: Any) -> Tensor:
        """Return the weights `(n,)`."""
        ...

    def measure(self, inputs: Any, targets: Any) -> Tensor:
        """Return one number a sample."""
        ...


class Declaring(Protocol):
    """Sees what it declares in `wants`, too."""

    def __call__(self, scores: Tensor, /, *args: Any, **seen: Any) -> Tensor:
        """Return the weights `(n,)`."""
        ...

    @property
    def wants(self) -> Iterable[str]:
        """Name what is seen beside the scores."""
        ...


Policy = (
    OfScores
    | OfParts
    | OfLosses
    | OfGroups
    | OfSteps
    | OfValidationLosses
    | OfLossesAndValidation
    | OfLossesAndSteps
    | OfMeasured
    | Declaring
)
"""What a curator takes as a policy."""
