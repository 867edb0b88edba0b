"""What each estimator scores a batch with."""

from typing import Any

import jax

import lai_core as lai
from lai_core.estimators.gates import GateTrace, gate_lai_scores
from lai_jax._curation.options import check_carried
from lai_jax._exact.validation_gradient import ValidationGradient
from lai_jax.validation import Validation


def scored(
    estimator: str, given: Validation, trace: Any, second_moment: Any, decay: float, exponent: float
) -> tuple[jax.Array, jax.Array | None]:
    """Return the scores of a trace, and for preconditioned LAI the next second moment.

    Raises
    ------
    ValueError
        If the second moment that the estimator takes is missing.
    """
    if estimator == "gate_lai":
        return gate_lai_scores(given.side, trace), None
    if estimator in ("ghost", "lli"):
        score = {"ghost": lai.ghost_scores, "lli": lai.lli_scores}[estimator]
        return score(given.side, trace), None
    options: dict[str, Any] = {"positions": given.positions, "layer_weights": given.layer_weights}
    if estimator != "preconditioned_lai":
        trace = trace if given.sketch is None else given.sketch(trace)
        _check_width(given, trace)
        return lai.lai_scores(given.side, trace, **options), None
    if second_moment is None:
        msg = "second_moment: expected an array (d_L,) for 'preconditioned_lai', zeros at first, got None"
        raise ValueError(msg)
    moment = lai.update_second_moment(second_moment, trace.layers[-1].output_gradients, decay=decay)
    return lai.preconditioned_lai_scores(given.side, trace, moment, exponent=exponent, **options), moment


def _check_width(given: Validation, trace: lai.Trace) -> None:
    """Raise unless both sides have output gradients of one width, sketched or not.

    Raises
    ------
    ValueError
        If they have not.
    """
    got, outputs = _width(given.side), _width(trace)
    if got == outputs:
        return
    step = "does not sketch" if given.sketch is None else f"sketches to {given.sketch.width}"
    msg = (
        f"summary: expected output gradients of width {outputs}, as the step has them, which {step}, "
        f"got {got}; pass what lai_jax.summarize(..., sketch=...) returned, whole: it carries the sketch"
    )
    raise ValueError(msg)


def _width(side: Any) -> int:
    """Return the width of a side's last output gradients."""
    if isinstance(side, lai.ValidationSummary):
        return int(dict(side.layouts[-1])["width of the output gradients"])
    return int(side.layers[-1].output_gradients.shape[-1])


def opened(estimator: str, given: Any) -> Validation:
    """Return the validation side that a step was given.

    Raises
    ------
    ValueError
        If it is not of the estimator's kind, or carries what the estimator cannot use.
    """
    found = given if isinstance(given, Validation) else Validation(given)
    check_carried(estimator, found.sketch, found.layer_weights)
    way_out = f"use lai_jax.summarize(..., estimator={estimator!r})"
    if estimator == "calibrated_lai" and found.layer_weights is None:
        msg = f"summary: estimator 'calibrated_lai' expects a Validation with layer weights; {way_out}"
        raise ValueError(msg)
    kinds = {"gate_lai": (GateTrace,), "exact": (ValidationGradient,)}
    expected = kinds.get(estimator, (lai.ValidationSummary, lai.Trace))
    if not isinstance(found.side, expected):
        named = " or a ".join(kind.__name__ for kind in expected)
        msg = (
            f"summary: estimator {estimator!r} expects a {named}, got {type(found.side).__name__}; {way_out}"
        )
        raise ValueError(msg)
    return found
