"""Every estimator with its options, and what holds of each option."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, ClassVar, Literal

import torch

from lai_core._adapters import DEFAULT_MEMORY_BUDGET, check_choice, check_count, check_number
from lai_core.estimators.catalogue import CATALOGUE, Facts, find_estimator
from lai_torch._exact.directional import METHODS
from lai_torch._model.valid import Valid


@dataclass(frozen=True, kw_only=True, repr=False)
class Estimator:
    """An estimator with its options; see the classes derived from it."""

    name: ClassVar[str]

    @property
    def facts(self) -> Facts:
        """What the catalogue says of it."""
        return find_estimator(self.name)

    def __post_init__(self) -> None:
        for option in fields(self):
            value = getattr(self, option.name)
            if option.name in CHECKS and not (value is None and option.default is None):
                CHECKS[option.name](option.name, value)

    def __repr__(self) -> str:
        """Name the estimator and the options that are not the usual ones."""
        values = {option.name: (getattr(self, option.name), option.default) for option in fields(self)}
        chosen = (f"{name}={value!r}" for name, (value, usual) in values.items() if value != usual)
        return f"{type(self).__name__}({', '.join(chosen)})"


def _check_autocast(name: str, value: Any) -> None:
    if value is not torch.bfloat16:
        msg = f"{name}: expected torch.bfloat16 or None, got {value!r}"
        raise ValueError(msg)


def _check_valid(name: str, value: Any) -> None:
    if not callable(value):
        msg = (
            f"{name}: expected a function from a batch's inputs to its mask (n, t), got "
            f"{type(value).__name__}; a curator has many batches, each with a mask of its own"
        )
        raise TypeError(msg)


CHECKS: dict[str, Callable[[str, Any], object]] = {
    **dict.fromkeys(("sketch", "chunk", "memory_budget"), check_count),
    "parts": partial(check_count, at_least=2),
    "positions": partial(check_choice, choices=("tokens", "mean", "flatten")),
    "valid": _check_valid,
    "autocast": _check_autocast,
    "method": partial(check_choice, choices=tuple(METHODS)),
    "of": partial(check_choice, choices=("sgd", "optimizer")),
    "decay": partial(check_number, at_least=0.0, below=1.0),
    "exponent": check_number,
}
"""What raises unless the value of an option is sound. None is sound where it is the default."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Ghost(Estimator):
    """Ghost: the inner product of each sample's gradient with the validation gradient.

    Parameters
    ----------
    chunk
        Score, and trace the validation set, at most so many samples at once: the same scores in less
        memory. None: the whole batch.
    memory_budget
        Bytes that the validation set's summary may take.
    parts
        Cut the validation set into so many parts, whose scores tell how far their sum can be off; as many
        summaries and products in place of one. The policy is then called with the scores against each part,
        `(parts, n)`, and their `sizes=`, as `lai_core.drop_harmful` is. 16 will do. None: it is not cut.
    autocast
        `torch.bfloat16`: the forward pass that is scored computes in it where autocast does, the validation
        set's too; the loss, output gradients and products are in full precision. With
        `backward="selective"` that pass is the one that trains, too. None: all is.
    """

    name = "ghost"
    autocast: torch.dtype | None = None
    memory_budget: int = DEFAULT_MEMORY_BUDGET
    parts: int | None = None
    chunk: int | None = None


@dataclass(frozen=True, kw_only=True, repr=False)
class LAI(Estimator):
    """Layer-aware influence: every layer's input with the last layer's output gradient.

    Parameters
    ----------
    positions
        What the product means on layers with positions: `tokens`, `mean` or `flatten` (which has no sum:
        the validation set's traces are kept). None: `tokens` if every layer has the last layer's
        positions, else `mean`; the report says which. The guide's page *Positions* says what each
        costs.
    sketch
        Width to which the last layer's output gradients are sketched: pairs of tokens at
        `sketch / outputs` of their cost, unbiased over the draw of signs and permutation, which each
        refresh makes anew (with the batch as validation, each step).
    chunk, memory_budget, parts, autocast
        As for `Ghost`. Of a model that routes or sorts rows LAI leaves layers out once a batch has shown it,
        with a warning; one row at a time shows nothing, and has scores of all layers.
    last
        Name of the final layer, where several reach the loss side by side.
    valid
        A function from a batch's inputs to its mask `(n, t)`, not zero where a position counts; padding
        counts for nothing. None: the inputs' `attention_mask`, where the model takes one.

    Examples
    --------
    >>> import lai_torch
    >>> lai_torch.LAI(positions="mean", sketch=32)
    LAI(positions='mean', sketch=32)
    """

    name = "lai"
    chunk: int | None = None
    autocast: torch.dtype | None = None
    memory_budget: int = DEFAULT_MEMORY_BUDGET
    parts: int | None = None
    last: str | None = None
    positions: str | None = None
    valid: Valid | None = None
    sketch: int | None = None


@dataclass(frozen=True, kw_only=True, repr=False)
class LLI(Estimator):
    """Last-layer influence: inner products of the last layer's gradients alone, of its last use.

    Parameters
    ----------
    chunk, last, memory_budget, parts, autocast
        As for `LAI`.
    """

    name = "lli"
    autocast: torch.dtype | None = None
    memory_budget: int = DEFAULT_MEMORY_BUDGET
    parts: int | None = None
    last: str | None = None
    chunk: int | None = None


@dataclass(frozen=True, kw_only=True, repr=False)
class PreconditionedLAI(Estimator):
    """LAI whose products of output gradients are divided by a power of their running second moment.

    The second moment is that of the batches that `Curator.step` took; a batch that is scored counts as
    the latest of them.

    Parameters
    ----------
    positions, last, valid, memory_budget, parts, autocast
        As for `LAI`.
    decay
        Which share of the second moment stays at each batch.
    exponent
        The power: 1.0 as printed, 0.5 as Adam steps.
    scale_inputs
        Whether layer inputs are divided too, by that power of their own second moment, as Adam divides.
    """

    name = "preconditioned_lai"
    autocast: torch.dtype | None = None
    memory_budget: int = DEFAULT_MEMORY_BUDGET
    parts: int | None = None
    last: str | None = None
    positions: str | None = None
    valid: Valid | None = None
    decay: float = 0.999
    exponent: float = 1.0
    scale_inputs: bool = False


@dataclass(frozen=True, kw_only=True, repr=False)
class CalibratedLAI(Estimator):
    """LAI with layer weights that each refresh fits to Ghost on a batch of validation samples at most.

    Parameters
    ----------
    positions, sketch, chunk, last, valid, memory_budget, parts, autocast
        As for `LAI`.
    """

    name = "calibrated_lai"
    chunk: int | None = None
    autocast: torch.dtype | None = None
    memory_budget: int = DEFAULT_MEMORY_BUDGET
    parts: int | None = None
    last: str | None = None
    positions: str | None = None
    valid: Valid | None = None
    sketch: int | None = None


@dataclass(frozen=True, kw_only=True, repr=False)
class GateLAI(Estimator):
    """LAI corrected pair by pair for what activations pass back, on chains of linear layers.

    The validation set's traces are kept.

    Parameters
    ----------
    chunk, last
        As for `LAI`.
    """

    name = "gate_lai"
    last: str | None = None
    chunk: int | None = None


@dataclass(frozen=True, kw_only=True, repr=False)
class Exact(Estimator):
    """Exact scores, as `exact_scores` computes them.

    Parameters
    ----------
    chunk
        As for `Ghost`.
    method
        As for `exact_scores`.
    """

    name = "exact"
    chunk: int | None = None
    method: str | None = None


@dataclass(frozen=True, kw_only=True, repr=False)
class Midpoint(Estimator):
    """Exact scores at the middle of a step.

    Parameters
    ----------
    of
        `sgd`: of the SGD step that the optimizer's learning rates make. `optimizer`: of the next step of
        the curator's own SGD, Adam or AdamW, clipped to its `max_norm`, as `exact_scores(at="midpoint",
        optimizer=..., max_norm=...)` has it.
    """

    name = "midpoint"
    of: str = "sgd"


EstimatorName = Literal[
    "ghost", "lai", "lli", "preconditioned_lai", "gate_lai", "calibrated_lai", "exact", "midpoint"
]
"""The estimators with their usual options."""

ESTIMATORS: dict[str, type[Estimator]] = {
    kind.name: kind for kind in (Ghost, LAI, LLI, PreconditionedLAI, GateLAI, CalibratedLAI, Exact, Midpoint)
}


def with_defaults(estimator: object) -> Estimator:
    """Return an estimator that was given by name, or with its options."""
    if isinstance(estimator, Estimator):
        return estimator
    if isinstance(estimator, type) and issubclass(estimator, Estimator):
        msg = f"estimator: expected an estimator, got the class {estimator.__name__}; call it"
        raise TypeError(msg)
    known = [each for each in CATALOGUE if each.name in ESTIMATORS]
    return ESTIMATORS[find_estimator(estimator, among=known).name]()
