"""Which calls of a forward pass are layers: told by one recording, so that the next passes by the others.

A recording looks at every call of torch, to know what depends on the batch and on which parameter. Of a
model that calls the same functions in the same order again, all that is known: only its layers are looked
at, and are what was proved. Any other order, or another layer at a place, is found on the way or by
what the layers' records must be, and then the pass is recorded in full. Nothing here says where samples lie.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from lai_torch._model.batch import tensors
from lai_torch._recording.watching.recording import Known

MOST = 64
"""How many plans are kept: one for each shape of a batch."""


@dataclass(frozen=True)
class Plan:
    """The functions that a forward pass calls, in order, and at which places they are layers."""

    functions: tuple[Any, ...]
    layers: frozenset[int]


class Calls:
    """The calls of one forward pass, beside those of its plan if there is one.

    Attributes
    ----------
    follows
        Whether they are those of the plan so far.
    plain
        Whether each layer is a call with one input and parameters themselves, not what is made of them.
    """

    def __init__(self, plan: Plan | None = None) -> None:
        self.plan, self.follows, self.plain = plan, plan is not None, True
        self._functions: list[Any] = []
        self._layers: set[int] = set()

    def passes_by(self, func: Any) -> bool:
        """Note a call; say whether there is no more to do about it than to run it."""
        place = len(self._functions)
        self._functions.append(func)
        if self.plan is None or not self.follows:
            return False
        expected = self.plan.functions[place] if place < len(self.plan.functions) else None
        self.follows = expected is func or expected == func  # an attribute's getter is made anew each time
        return self.follows and place not in self.plan.layers

    @property
    def place(self) -> int:
        """Where the call is that was noted last."""
        return len(self._functions) - 1

    def is_layer(self, place: int, *, plain: bool) -> None:
        """Note that the call at `place` is a layer."""
        self._layers.add(place)
        self.plain = self.plain and plain

    def done(self) -> bool:
        """Say whether the pass was the plan's from the first call to the last."""
        return self.follows and self.plan is not None and len(self._functions) == len(self.plan.functions)

    def made(self) -> Plan | None:
        """Return the plan of a pass like this one; None where its layers cannot be known by their calls."""
        return Plan(tuple(self._functions), frozenset(self._layers)) if self.plain else None


class Plans:
    """The plans of one model, by what a pass depends on beside the values: shapes, modes, what is kept."""

    def __init__(self) -> None:
        self._plans: dict[Any, Plan | None] = {}
        self._known: Known | None = None

    def key(self, modules: Iterable[nn.Module], batch: Any, valid: Tensor | None, shortcut: Any) -> Any:
        """Return what passes with one plan share."""
        shapes = tuple((one.shape, one.dtype, one.device) for one in tensors(batch))
        return shapes, tuple(module.training for module in modules), valid is None, shortcut

    def get(self, key: Any, known: Known) -> Plan | None:
        """Return the plan of such a pass; none where something else has been proved since."""
        if self._known is not known:
            self._plans, self._known = {}, known
        return self._plans.get(key)

    def put(self, key: Any, plan: Plan | None) -> None:
        """Keep a plan; of very many shapes the first ones are forgotten."""
        self._plans[key] = plan
        if len(self._plans) > MOST:
            del self._plans[next(iter(self._plans))]
