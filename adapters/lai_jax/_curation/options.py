"""What the options of a curated step, and of the validation side it scores against, must be."""

from typing import Any

ESTIMATORS = ("ghost", "lai", "lli", "preconditioned_lai", "gate_lai", "calibrated_lai", "exact")

SKETCHED = ("lai", "calibrated_lai")
"""Estimators that are linear in the products of output gradients as they are."""

WEIGHTED = ("lai", "calibrated_lai", "preconditioned_lai")
"""Estimators that weigh layers."""


def check_estimator(estimator: str) -> None:
    """Raise unless an estimator is known.

    Raises
    ------
    ValueError
        If it is not.
    """
    if estimator not in ESTIMATORS:
        msg = f"estimator: expected one of {', '.join(map(repr, ESTIMATORS))}, got {estimator!r}"
        raise ValueError(msg)


def check_carried(estimator: str, sketch: Any, layer_weights: Any) -> None:
    """Raise unless an estimator can use a sketch and layer weights, where there are any.

    Raises
    ------
    ValueError
        If it cannot.
    """
    for name, value, able in (("sketch", sketch, SKETCHED), ("layer_weights", layer_weights, WEIGHTED)):
        if value is not None and estimator not in able:
            expected = ", ".join(map(repr, able))
            msg = f"{name}: expected the estimator to be one of {expected}, got {estimator!r}"
            raise ValueError(msg)


def check_counts(**counts: Any) -> None:
    """Raise unless each option is None or a positive whole number.

    Raises
    ------
    ValueError
        If one is not.
    """
    for name, value in counts.items():
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            msg = f"{name}: expected a whole number, 1 or more, got {value!r}"
            raise ValueError(msg)


def check_update(tx: Any, estimator: str, rows: Any) -> None:
    """Raise unless the options of a curated step are sound.

    Raises
    ------
    ValueError
        If one is unknown or outside its range.
    TypeError
        If `tx` is no gradient transformation.
    """
    check_estimator(estimator)
    if not (hasattr(tx, "init") and hasattr(tx, "update")):
        msg = f"tx: expected an optax gradient transformation, got {type(tx).__name__}"
        raise TypeError(msg)
    if rows is not None and not (0 < rows <= 1 if isinstance(rows, float) else rows >= 1):
        msg = f"rows: expected a number of rows, at least 1, or a share of the batch in (0, 1], got {rows!r}"
        raise ValueError(msg)
