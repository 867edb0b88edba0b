"""Defer a step's value checks and read them with one device synchronisation.

A step branches on values: is every loss finite, are the weights weights, how many samples are kept, is the
gradient finite. The answers are nearly always the same. So a step first runs as if they were, keeps the
questions on the device, and reads them at once, before it changes a parameter. Where one is answered
otherwise the step is taken back and runs again, each question read where it arises.
"""

import functools
import math
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor

import lai_core as lai
from lai_core.estimators.policies import top_count
from lai_torch._curation.undo import Undo
from lai_torch._curation.validation import Validation
from lai_torch.options.policies import KeepAbove, Scheduled
from lai_torch.options.protocols import AnyPolicy

Result = TypeVar("Result")

PURE = (lai.keep_positive, lai.keep_top, lai.reweight)
"""Policies that depend on the scores alone: they may be asked twice."""


class Doubted(Exception):  # noqa: N818  # not an error: the step runs again
    """A deferred check failed: the step is rolled back and rerun with immediate checks."""


class Doubts:
    """The questions of one step.

    Attributes
    ----------
    later
        Whether questions wait to be read together; else each is read when it is asked.
    again
        Whether the step runs for the second time.
    """

    def __init__(self) -> None:
        self.later = self.again = False
        self._expected: int | None = None
        self._pending: list[tuple[Tensor, Callable[[float], bool]]] = []
        self._numbers: dict[int, Tensor] = {}

    def begin(self, *, later: bool, expected: int | None = None) -> None:
        """Begin a step, or begin it again; `expected` is how many samples the policy keeps, where known."""
        self.later, self.again, self._expected = later, False, expected
        self._pending, self._numbers = [], {}

    def holds(self, number: Tensor, test: Callable[[float], bool] = bool) -> bool:
        """Return what a test says of a number or a boolean, or take it to pass until `settle`."""
        if not self.later:
            return test(number.item())
        self._pending.append((number, test))
        return True

    def finite(self, values: Tensor) -> bool:
        """Return whether all values are finite, or take that for true until `settle`."""
        if not self.later:
            return bool(torch.isfinite(values).all())
        asked = values.detach() if values.requires_grad else values
        self._numbers[id(asked)] = asked
        return True

    def settle(self, *more: Tensor) -> list[Any]:
        """Read what waits, and numbers `more` beside it, in one go.

        Raises
        ------
        Doubted
            If something does not hold that was taken for granted.
        """
        asked = [*self._pending, *((one, math.isfinite) for one in _zeros(self._numbers.values()))]
        self._pending, self._numbers = [], {}
        numbers = [*(number for number, _ in asked), *more]
        if not numbers:
            return []
        # what is finite in double precision may not be so in single
        kind = torch.float64 if any(one.dtype == torch.float64 for one in numbers) else torch.float32
        device = numbers[0].device
        with torch.no_grad():
            answers = torch.stack([one.to(device, kind) for one in numbers]).tolist()
        if not all(test(answer) for (_, test), answer in zip(asked, answers, strict=False)):
            raise Doubted
        found: list[Any] = answers[len(asked) :]
        return found

    def settled(
        self, attempt: Callable[[], Result], undo: Undo, *, later: bool, expected: int | None = None
    ) -> Result:
        """Return what a step gives whose questions are read together; again one by one, where one fails."""
        if later:
            self.begin(later=True, expected=expected)
            undo.mark()
            try:
                return attempt()
            except Doubted:
                pass
            except Exception:
                if self._sound():
                    raise
            undo.rewind()
        self.begin(later=False)
        self.again = later
        return attempt()

    def _sound(self) -> bool:
        """Whether what was taken for granted holds: if not, an error may come of that."""
        try:
            self.settle()
        except Doubted:
            return False
        return True

    def rows(self, mask: Tensor) -> Tensor:
        """Return where `mask` is true, in order."""
        if not self.later:
            return mask.nonzero().squeeze(1)
        size = self._expected
        if size is None:
            size = int(self.settle(_total(mask))[0])
        else:
            self.holds(_total(mask), functools.partial(operator.eq, size))
        return mask.sort(descending=True, stable=True).indices[:size]


def _total(mask: Tensor) -> Tensor:
    """Return how many entries are true, in single precision if that can count them."""
    return mask.sum(dtype=torch.float32 if mask.numel() <= 2**24 else torch.float64)


def _zeros(numbers: Iterable[Tensor]) -> Iterator[Tensor]:
    """Yield a number for those of each type, finite only if all are: 0 x is 0 for a finite x alone, else NaN.

    A largest number takes one operation less, but that it keeps NaN is said of no device.
    """
    kinds: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for one in numbers:
        if one.numel():
            flat = one if one.ndim == 1 else one.reshape(-1)
            kinds.setdefault((one.device, one.dtype), []).append(flat)
    for alike in kinds.values():
        yield ((torch.cat(alike) if len(alike) > 1 else alike[0]) * 0.0).sum()


def granted(policy: AnyPolicy | None, samples: int, validation: Validation) -> tuple[bool, int | None]:
    """Say whether a step reads its questions together, and how many samples it will keep, if known.

    The policy is asked again where one fails. None: the step trains on everything.
    """
    if policy is None:
        return True, samples
    asked = policy.policy if isinstance(policy, Scheduled) else policy
    made = asked.func if isinstance(asked, functools.partial) else asked
    pure = isinstance(made, KeepAbove) or any(made is one for one in PURE)
    return pure and not validation.is_batch, _expected_count(asked, samples)


def _expected_count(policy: AnyPolicy, samples: int) -> int | None:
    """Return how many samples a policy keeps of so many finite scores; None where they decide it."""
    if not isinstance(policy, functools.partial) or policy.func is not lai.keep_top or policy.args:
        return None
    fraction = policy.keywords.get("fraction")
    return None if fraction is None else top_count(fraction, samples)
