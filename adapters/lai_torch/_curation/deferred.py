"""Defer a step's value checks and read them with one device synchronisation.

A step branches on values: whether losses, weights and gradients are finite, and how many samples are kept.
The checks nearly always pass. So a step assumes that they do, keeps their values on the device, and reads
them together before it changes a parameter. If one fails, the step is rolled back and runs again, with each
check read where it arises.
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
"""Policies that depend on the scores alone, so that they may run twice."""


class CheckFailed(Exception):  # noqa: N818  # not an error: the step runs again
    """A deferred check failed: the step is rolled back and rerun with immediate checks."""


class DeferredChecks:
    """The checks of one step.

    Attributes
    ----------
    later
        Whether checks are deferred and read together; else each is read at once.
    again
        Whether the step runs for the second time.
    """

    def __init__(self) -> None:
        self.later = self.again = False
        self._expected: int | None = None
        self._pending: list[tuple[Tensor, Callable[[float], bool]]] = []
        self._numbers: dict[int, Tensor] = {}

    def begin(self, *, later: bool, expected: int | None = None) -> None:
        """Begin a step or its second run; `expected` samples are kept, if that is known."""
        self.later, self.again, self._expected = later, False, expected
        self._pending, self._numbers = [], {}

    def holds(self, number: Tensor, test: Callable[[float], bool] = bool) -> bool:
        """Return whether a number passes a test; if deferred, assume it does until `resolve`."""
        if not self.later:
            return test(number.item())
        self._pending.append((number, test))
        return True

    def finite(self, values: Tensor) -> bool:
        """Return whether all values are finite; if deferred, assume it until `resolve`."""
        if not self.later:
            return bool(torch.isfinite(values).all())
        values = values.detach() if values.requires_grad else values
        self._numbers[id(values)] = values
        return True

    def resolve(self, *more: Tensor) -> list[Any]:
        """Read the pending checks, and the numbers `more`, with one synchronisation."""
        checks = [*self._pending, *((one, math.isfinite) for one in _zeros(self._numbers.values()))]
        self._pending, self._numbers = [], {}
        numbers = [*(number for number, _ in checks), *more]
        if not numbers:
            return []
        # what is finite in double precision may not be so in single
        kind = torch.float64 if any(one.dtype == torch.float64 for one in numbers) else torch.float32
        device = numbers[0].device
        with torch.no_grad():
            answers = torch.stack([one.to(device, kind) for one in numbers]).tolist()
        if not all(test(answer) for (_, test), answer in zip(checks, answers, strict=False)):
            raise CheckFailed
        return answers[len(checks) :]

    def run(
        self, attempt: Callable[[], Result], undo: Undo, *, later: bool, expected: int | None = None
    ) -> Result:
        """Run a step with deferred checks; if one fails, roll back and run it with immediate ones."""
        if later:
            self.begin(later=True, expected=expected)
            undo.mark()
            try:
                return attempt()
            except CheckFailed:
                pass
            except Exception:
                if self._sound():
                    raise
            undo.rewind()
        self.begin(later=False)
        self.again = later
        return attempt()

    def _sound(self) -> bool:
        """Whether all pending checks pass; an error after one that fails may follow from it."""
        try:
            self.resolve()
        except CheckFailed:
            return False
        return True

    def rows(self, mask: Tensor) -> Tensor:
        """Return where `mask` is true, in order."""
        if not self.later:
            return mask.nonzero().squeeze(1)
        size = self._expected
        if size is None:
            size = int(self.resolve(_total(mask))[0])
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


def deferrable(policy: AnyPolicy | None, samples: int, validation: Validation) -> tuple[bool, int | None]:
    """Return whether a step may defer its checks, and how many samples it will keep, if known.

    A policy runs again if a check fails, so it must be pure. None: the step trains on everything.
    """
    if policy is None:
        return True, samples
    policy = policy.policy if isinstance(policy, Scheduled) else policy
    function = policy.func if isinstance(policy, functools.partial) else policy
    pure = isinstance(function, KeepAbove) or any(function is one for one in PURE)
    return pure and not validation.is_batch, _expected_count(policy, samples)


def _expected_count(policy: AnyPolicy, samples: int) -> int | None:
    """Return how many samples a policy keeps of so many finite scores; None where they decide it."""
    if not isinstance(policy, functools.partial) or policy.func is not lai.keep_top or policy.args:
        return None
    fraction = policy.keywords.get("fraction")
    return None if fraction is None else top_count(fraction, samples)
