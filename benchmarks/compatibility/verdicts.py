"""What a case can come to, and how a number is judged: right, wrong, refused by name, or a crash."""

import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

OWN = ("lai_core", "lai_torch", "lai_jax")
"""The packages whose own ValueError or TypeError is a refusal."""
VERDICTS = ("exact", "refused", "wrong", "crash", "unfit")
REASON_LENGTH = 300
ROUNDINGS = 8192
"""An inner product of gradients has thousands of terms."""
NEGLIGIBLE = 1e-4
"""Below this share of all gradients, those of a part are taken for zero."""


Errors = dict[str, Callable[[], float]]


class UnfitError(Exception):
    """A case that asks nothing: no samples' axis, no gradient, or a random or non-finite one."""


class WrongError(Exception):
    """A wrong answer that is no number."""


class WarnedError(Exception):
    """A number that came with a warning naming what it leaves out."""


@dataclass
class Row:
    """What one case came to: one of `VERDICTS` by estimator; None where the case does not judge it."""

    ghost: str | None = None
    exact: str | None = None
    lai: str | None = None
    relative_error: float | None = None  # the largest, beside the gradients that the case is about
    reason: str = ""  # why it is not exact: the messages, or what makes the case unfit

    def json(self) -> dict[str, Any]:
        """Return the row as it is written, with what it does not judge left out."""
        return {key: value for key, value in asdict(self).items() if value not in {None, ""}}

    def add(self, estimator: str, found: Callable[[], float], bound: float) -> None:
        """Judge one estimator: `found` returns its relative error, or raises."""
        try:
            error = found()
        except Exception as problem:
            verdict, reason = _of_exception(problem)
        else:
            self.relative_error = max(self.relative_error or 0.0, error)
            # a NaN is no number that came out right
            verdict = "exact" if error <= bound else "wrong"
            reason = "" if verdict == "exact" else f"relative error {error:.1e}"
        setattr(self, estimator, verdict)
        if reason:
            self.reason = "; ".join(filter(None, [self.reason, f"{estimator}: {reason}"]))


def unfit(reason: str) -> Row:
    """Return the row of a case that asks nothing."""
    return Row("unfit", "unfit", "unfit", None, reason)


def judged(
    case: Any, gradients_of: Callable[..., Any], check: Callable[..., None], errors: Callable[..., Errors]
) -> Row:
    """Return the verdicts on a case's estimators, beside what plain differentiation says of its samples.

    `gradients_of` a case and a batch are each sample's; `check` of both raises `UnfitError` where they ask
    nothing; `errors` are by estimator what returns its relative error, which may be `case.bound`.
    """
    try:
        sides = gradients_of(case, case.training), gradients_of(case, case.validation)
        check(case, *sides)
    except UnfitError as problem:
        return unfit(str(problem))
    except Exception as problem:  # plain differentiation fails: nothing to compare with
        return unfit(f"fails by itself: {type(problem).__name__}: {problem}"[:REASON_LENGTH])
    row = Row()
    for estimator, error in errors(case, *sides).items():
        row.add(estimator, error, case.bound)
    return row


def squares(outputs: Any, targets: Any) -> Any:
    """Half the squared distance."""
    return ((outputs - targets) ** 2).sum(1) / 2


def relative_error(found: Any, exact: Any, part: Any, epsilon: float, bound: float) -> float:
    """Return the largest error beside the largest entry of what the case is about, roundings apart.

    An error of `bound` times the part is right; so is one of some roundings (`epsilon` each) of the whole,
    which is that beside `floor` times the whole.
    """
    floor = ROUNDINGS * epsilon / bound
    scale = max(float(abs(part).max()), floor * float(abs(exact).max()))
    return float(abs(found - exact).max()) / scale


def _of_exception(problem: Exception) -> tuple[str, str]:
    text = f"{type(problem).__name__}: {problem}"[:REASON_LENGTH].replace("\n", " ")
    if isinstance(problem, WarnedError):
        return "refused", f"warned: {problem}"[:REASON_LENGTH]
    if isinstance(problem, UnfitError):
        return "unfit", str(problem)
    if isinstance(problem, WrongError):
        return "wrong", str(problem)
    frames = traceback.extract_tb(problem.__traceback__)
    own = isinstance(problem, ValueError | TypeError) and _package(frames[-1].filename) in OWN
    if own:
        return "refused", text
    inside = next((frame for frame in reversed(frames) if _package(frame.filename) in OWN), None)
    where = "" if inside is None else f" at {Path(inside.filename).name}:{inside.lineno}"
    return "crash", text + where


def _package(filename: str) -> str:
    parts = Path(filename).parts
    return next((name for name in OWN if name in parts), "")
