"""What the options of a curated step, and of the validation side it scores against, must be."""

import inspect
from collections.abc import Callable
from typing import Any, Literal

import jax

from lai_core.estimators.catalogue import CATALOGUE, Facts, find_estimator
from lai_jax._curation.estimators import SCORERS, Scorer
from lai_jax.validation import Validation

EstimatorName = Literal["ghost", "lai", "lli", "preconditioned_lai", "gate_lai", "calibrated_lai", "exact"]
"""The estimators of a curated step."""

SEEN = frozenset({"losses", "sizes"})
"""What a policy is given beside the scores, if it names it; `sizes` always comes with parts."""

AVAILABLE = tuple(known for known in CATALOGUE if known.name in SCORERS)


def find_scorer(name: str) -> Scorer:
    return SCORERS[find_estimator(name, among=AVAILABLE).name]


Policy = Callable[..., jax.Array]
"""From scores `(n,)`, positive helps, or `(parts, n)` beside their `sizes`, to weights `(n,)`.

Its signature may name any of `SEEN`.
"""

TAKEN: dict[str, tuple[Any, Callable[[Facts], Any]]] = {
    "positions": (None, lambda known: known.positions),
    "valid": (None, lambda known: known.positions),
    "sketch": (None, lambda known: known.sketch),
    "layer_weights": (None, lambda known: known.layer_weights),
    "calibration": (32, lambda known: known.fits_weights),
    "decay": (0.999, lambda known: known.second_moment),
    "exponent": (1.0, lambda known: known.second_moment),
    "scale_inputs": (False, lambda known: known.second_moment),
    "second_moment": (None, lambda known: known.second_moment),
    "last": (None, lambda known: known.gradients),
}
"""Of each option that not every estimator takes: the value that means unused, and whether one takes it."""


def check_taken(estimator: str, **options: Any) -> None:
    """Raise if an option is used that an estimator does not take, naming those that do."""
    for option, value in options.items():
        unused, takes = TAKEN[option]
        able = [known.name for known in AVAILABLE if takes(known)]
        if value is not unused and estimator not in able and (unused is None or value != unused):
            expected = ", ".join(map(repr, able))
            msg = f"{option}: expected the estimator to be one of {expected}, got {estimator!r}"
            raise ValueError(msg)


def open_scorer(estimator: str, policy: Any, valid: Any, **options: Any) -> Scorer:
    """Return how a step scores, if its policy, its mask and its options are sound."""
    found = find_scorer(estimator)
    if not callable(policy):
        msg = f"policy: expected a function from scores to weights, as lai_core.keep_positive, got {policy!r}"
        raise TypeError(msg)
    try:
        signature = inspect.signature(policy)
        signature.bind(None, **dict.fromkeys(SEEN & signature.parameters.keys()))
    except (TypeError, ValueError) as error:
        msg = (
            f"policy: expected a function of the scores, and of any of {', '.join(sorted(SEEN))} by these "
            f"names, got one that asks for more ({error}); give it the rest, such as "
            "functools.partial(lai_core.keep_top, fraction=0.5)"
        )
        raise TypeError(msg) from error
    check_valid(estimator, valid)
    check_taken(estimator, **options)
    return found


def check_carried(estimator: str, sketch: Any, layer_weights: Any) -> None:
    if sketch is not None and not callable(sketch):
        msg = f"sketch: expected what lai_jax.draw_sketch returned, got {type(sketch).__name__}"
        raise TypeError(msg)
    check_taken(estimator, sketch=sketch, layer_weights=layer_weights)


def check_valid(estimator: str, valid: Any) -> None:
    """Raise unless a function that masks positions goes with an estimator."""
    if valid is None:
        return
    if not callable(valid):
        msg = (
            "valid: expected a function from a batch's inputs to its mask (n, t), got "
            f"{type(valid).__name__}; a step has many batches, each with a mask of its own"
        )
        raise TypeError(msg)
    check_taken(estimator, valid=valid)


def check_counts(**counts: Any) -> None:
    for name, value in counts.items():
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            msg = f"{name}: expected a whole number, 1 or more, got {value!r}"
            raise ValueError(msg)


def check_update(tx: Any, rows: Any, sharding: Any) -> None:
    if not (hasattr(tx, "init") and hasattr(tx, "update")):
        msg = f"tx: expected an optax gradient transformation, got {type(tx).__name__}"
        raise TypeError(msg)
    numbers = isinstance(rows, (int, float)) and not isinstance(rows, bool)
    if rows is not None and not (numbers and (0 < rows <= 1 if isinstance(rows, float) else rows >= 1)):
        msg = f"rows: expected a number of rows, at least 1, or a share of the batch in (0, 1], got {rows!r}"
        raise ValueError(msg)
    if sharding is not None and not isinstance(sharding, jax.sharding.NamedSharding):
        msg = (
            f"sharding: expected a jax.sharding.NamedSharding of the batch, got {type(sharding).__name__}; "
            "pass NamedSharding(mesh, PartitionSpec('data')), or None"
        )
        raise TypeError(msg)


def open_side(estimator: str, given: Any) -> Validation:
    """Return the validation side that a step was given, if it is of the estimator's kind."""
    found = given if isinstance(given, Validation) else Validation(given)
    check_carried(estimator, found.sketch, found.layer_weights)
    way_out = f"use lai_jax.summarize(..., estimator={estimator!r})"
    if find_estimator(estimator).fits_weights and found.layer_weights is None:
        msg = f"summary: estimator {estimator!r} expects a Validation with layer weights; {way_out}"
        raise ValueError(msg)
    expected = SCORERS[estimator].sides
    if not isinstance(found.side, expected):
        named = " or a ".join(kind.__name__ for kind in expected)
        msg = (
            f"summary: estimator {estimator!r} expects a {named}, got {type(found.side).__name__}; {way_out}"
        )
        raise ValueError(msg)
    return found
