"""Undo a step that raises, up to where its optimizer begins; defer its checks to one device synchronisation.

A step branches on values: whether losses, weights and gradients are finite, and how many samples are kept.
The checks nearly always pass. So a step assumes that they do, keeps their values on the device, and reads
them together before it changes a parameter. If one fails, the step is rolled back and runs again, with each
check read where it arises.
"""

import functools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from types import TracebackType
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

import lai_core as lai
from lai_core.estimators.policies import top_count
from lai_torch._curation.validation import Validation
from lai_torch._model.snapshot import Streams
from lai_torch._model.walk import Step, modules_of
from lai_torch.options.policies import KeepAbove, Scheduled
from lai_torch.options.protocols import Policy

_SPARSE = attrgetter("is_sparse")
_PLAIN = {Tensor, nn.Parameter}
STEPPING = (
    "This came while the optimizer stepped, or after it: parameters and optimizer state may have changed, "
    "and were not put back. Load a checkpoint."
)
"""Note on an error that leaves parameters as they are."""


class Undo:
    """Runs its block and puts back what it changed if it raises.

    Put back are attributes of `owners`, buffers and the gradients of earlier batches of a step. What the
    optimizer changes is not put back. A step that had no earlier batch is left without gradients.

    Attributes
    ----------
    stepping
        Whether the optimizer has begun to step.
    """

    def __init__(
        self,
        model: nn.Module,  # model, loss: what is trained; of the loss, what it holds if it is a module
        loss: Any,
        # objects whose attributes hold what else a step changes. The block replaces attributes; it
        # does not change the objects that they hold.
        owners: Iterable[Any],
        generator: torch.Generator,  # whose draws are taken back
        optimizer: Any = None,  # what steps; None where nothing does
    ) -> None:
        self.modules, self.owners, self.generator = modules_of(model, loss), list(owners), generator
        self.optimizer, self.stepping = optimizer, False
        self._restores: list[Callable[[], None]] = []
        self._streams: Streams | None = None
        self._first = self._marked = 0
        self._restore_buffers: Callable[[], None] | None = None

    def __enter__(self) -> "Undo":
        """Remember attributes and buffers."""
        drawn = self.generator.get_state()
        self._restores = [_attributes(owner) for owner in self.owners]
        self._restores.append(lambda: self._set_generator(drawn))
        self._first = len(self._restores)
        self._restore_buffers = _buffers(self.modules)
        self._restores += [self._restore_buffers]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Put everything back if the block raised."""
        restores, self._restores = self._restores, []
        if kind is not None:
            for restore in reversed(restores):
                restore()
            if self.stepping and error is not None:
                error.add_note(STEPPING)

    def mark(self) -> None:
        """Remember the random streams, so that what the model and its gradients go through can be rewound."""
        self._streams, self._marked = Streams(self.modules), len(self._restores)
        if Step.current is not None:
            Step.current.streams = self._streams

    def rewind(self) -> None:
        """Put model, gradients and random streams back where they were at the mark; the block goes on."""
        for restore in reversed(self._restores[self._first :]):
            restore()
        del self._restores[self._marked :]
        if self._streams is not None:
            self._streams.restore()

    def restore_buffers(self) -> None:
        """Put the buffers back where they were when the block began; the block goes on."""
        if self._restore_buffers is not None:
            self._restore_buffers()

    def _set_generator(self, state: Tensor) -> None:
        self.generator.set_state(state)

    def set_gradients_aside(self, *, begins: bool) -> list[tuple[Tensor, Tensor]]:
        """Clear `.grad`; return parameters and what they had, none where a step begins."""
        held = [p for group in self.optimizer.param_groups for p in group["params"]]
        earlier = [] if begins else [(p, p.grad) for p in held if p.grad is not None]
        self._restores.append(lambda: _give_back(held, earlier))
        clear(self.optimizer)
        return earlier


def _attributes(owner: Any) -> Callable[[], None]:
    before = dict(vars(owner))

    def restore() -> None:
        vars(owner).clear()
        vars(owner).update(before)

    return restore


def _buffers(modules: Sequence[nn.Module]) -> Callable[[], None]:
    # a scripted module's table can only be walked by its items
    tables = [(module, module._buffers) for module in modules if module._buffers]
    held = [(module, name, buffer) for module, table in tables for name, buffer in table.items()]
    present = [buffer for _, _, buffer in held if buffer is not None]
    copies = _copies(present)

    def restore() -> None:
        for module, name, buffer in held:
            module._buffers[name] = buffer
        for buffer, copy in zip(present, copies, strict=True):
            buffer.data.copy_(copy)  # BatchNorm writes without counting versions, so that these cannot tell

    return restore


def _give_back(held: list[Tensor], earlier: list[tuple[Tensor, Tensor]]) -> None:
    for parameter in held:
        parameter.grad = None
    for parameter, gradient in earlier:
        parameter.grad = gradient


def _copies(tensors: list[Tensor]) -> list[Tensor]:
    """Return copies, made in one call where torch has one."""
    if not tensors:
        return []
    with torch.no_grad():
        clone = getattr(torch, "_foreach_clone", None)
        # that call takes either DTensors alone or none, and no sparse tensor
        special = not _PLAIN.issuperset(map(type, tensors)) or any(map(_SPARSE, tensors))
        if clone is None or special:
            return [tensor.detach().clone() for tensor in tensors]
        return list(clone(tensors))


def clear(optimizer: Any) -> None:
    """Take every gradient away, as `optimizer.zero_grad()` does, whose profiling takes as long as a layer."""
    if type(optimizer).zero_grad is not torch.optim.Optimizer.zero_grad or "zero_grad" in vars(optimizer):
        optimizer.zero_grad(set_to_none=True)
        return
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None


Result = TypeVar("Result")

PURE = (lai.keep_all, lai.keep_positive, lai.keep_top, lai.reweight)
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


def deferrable(policy: Policy | None, samples: int, validation: Validation) -> tuple[bool, int | None]:
    """Return whether a step may defer its checks, and how many samples it will keep, if known.

    A policy runs again if a check fails, so it must be pure. None: the step trains on everything.
    """
    if policy is None:
        return True, samples
    policy = policy.policy if isinstance(policy, Scheduled) else policy
    function = policy.func if isinstance(policy, functools.partial) else policy
    pure = isinstance(function, KeepAbove) or any(function is one for one in PURE)
    return pure and not validation.is_batch, _expected_count(policy, samples)


def _expected_count(policy: Policy, samples: int) -> int | None:
    """Return how many samples a policy keeps of so many finite scores; None where they decide it."""
    if not isinstance(policy, functools.partial) or policy.func is not lai.keep_top or policy.args:
        return None
    fraction = policy.keywords.get("fraction")
    return None if fraction is None else top_count(fraction, samples)
