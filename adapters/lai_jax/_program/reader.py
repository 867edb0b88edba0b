"""Reading a jaxpr: which values the samples touch, where they lie, and where parameters meet them."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lai_jax._program.errors import UnexplainedError, unknown
from lai_jax._program.program import Operation, Program, Use, Value, close_jaxpr, find_needed
from lai_jax._program.rules.axes import copy_axis, output_axis
from lai_jax._program.rules.gathers import row_column
from lai_jax._program.rules.primitives import CALLS, ELEMENTWISE, RECOMPUTED, names
from lai_jax._program.rules.sums import Followed, entries_of, follow
from lai_jax._program.rules.values import join_columns, read_constant, read_unbatched
from lai_jax._program.sample_axis import SampleAxis
from lai_jax._program.views import View

_REFUSED = {
    "shard_map": "the body of a shard_map",
    "ragged_dot": "a ragged product",
    "ragged_dot_general": "a ragged product",
    "while": "a loop of unknown length; use lax.scan, or lax.fori_loop with fixed bounds",
}
_WRITTEN = names("new_ref mutable_array freeze get swap addupdate")


EquationReader = Callable[["Reader", Any, list[int], list[Value]], list[int]]


@dataclass(eq=False)
class Reading:
    """What one reading shares between the programs nested in one another."""

    # By primitive, how to read loops, branches and functions with a derivative rule of their own. They
    # need the reader themselves, so they are handed in: `model.reader_of` knows them all.
    readers: Mapping[str, EquationReader]
    differentiated: bool = True  # derivative rules matter: not where a program is a derivative
    partial: bool = False  # leave out parameters that cannot be followed, rather than raise
    left_out: dict[int, str] = field(default_factory=dict)
    captured: dict[int, View] = field(default_factory=dict)  # of arrays, whose leaf numbers are negative
    shapes: dict[int, tuple[int, ...]] = field(default_factory=dict)  # of the leaves
    held: list[Any] = field(default_factory=list)  # programs that were made for this reading
    uses: dict[tuple[Any, ...], Use] = field(default_factory=dict)
    summed: set[tuple[Use, str]] = field(default_factory=set)  # see `Model.summed`

    def size(self, value: Value) -> int:
        """Return how many numbers the largest leaf holds that a value of the parameters depends on."""
        return max((math.prod(self.shapes.get(leaf, value.shape)) for leaf in value.leaves), default=1)

    def takes_rows(self, use: Use) -> bool:
        """Whether a use takes rows, or single numbers, of a leaf that has more axes."""
        own = sum(size > 1 for size in use.operand.shape)
        wide = (sum(size > 1 for size in self.shapes.get(leaf, ())) for leaf in use.operand.leaves)
        return use.kind == "copy" and 0 < own < max(wide, default=0)


@dataclass(eq=False)
class Reader:
    """Reads one jaxpr, and what it calls, into one `Program`."""

    reading: Reading
    loops: tuple[tuple[int, bool], ...] = ()
    path: tuple[int, ...] = ()
    program: Program = field(default_factory=Program)

    def nest(self, loop: tuple[int, bool] | None = None, branch: int = 0) -> "Reader":
        loops = self.loops if loop is None else (*self.loops, loop)
        return Reader(self.reading, loops, (*self.path, branch))

    def isolate(self) -> "Reader":
        """Return a reader whose findings are kept out of this program."""
        reading = Reading(self.reading.readers, differentiated=False)
        reading.shapes, reading.summed = self.reading.shapes, self.reading.summed
        return Reader(reading)

    def slot(self, value: Value) -> int:
        self.program.values.append(value)
        return len(self.program.values) - 1

    def constant(self, array: Any) -> int:
        captured = self.reading.captured
        view: View | None = None
        if len(array.shape) > 1 and jnp.issubdtype(array.dtype, jnp.floating):  # it can be a frozen weight
            view = captured.setdefault(id(array), View.of(-1 - len(captured), tuple(array.shape)))
            for _ in self.loops:
                view = view.enter_loop(sliced=False)
        slot = self.slot(read_constant(array, view))
        self.program.constants[slot] = array
        return slot

    def whole(self, closed: Any, values: Sequence[Value]) -> Program:
        slots = [self.slot(value) for value in values]
        self.program.inputs = slots
        self.program.outputs = self.inline(closed.jaxpr, closed.consts, slots)
        return self.program

    def inline(self, jaxpr: Any, consts: Sequence[Any], slots: Sequence[int]) -> list[int]:
        """Read a jaxpr in place; return the slots of its outputs."""
        names = dict(zip(jaxpr.constvars, (self.constant(const) for const in consts), strict=True))
        names |= dict(zip(jaxpr.invars, slots, strict=True))

        def slot_of(atom: Any) -> int:
            if hasattr(atom, "val"):
                return self.constant(np.asarray(atom.val, atom.aval.dtype))
            return names[atom]

        for eqn in find_needed(jaxpr):
            # what is written to an array is no output, and not found to be needed
            if eqn.primitive.name in _WRITTEN:
                raise unknown(eqn, "an array that is written to; use x.at[...], which returns another one")
            outputs = self.equation(eqn, [slot_of(atom) for atom in eqn.invars])
            names |= dict(zip(eqn.outvars, outputs, strict=True))
        return [slot_of(atom) for atom in jaxpr.outvars]

    def equation(self, eqn: Any, slots: list[int]) -> list[int]:
        """Read one equation; return the slots of its outputs."""
        values = [self.program.values[slot] for slot in slots]
        batched = any(value.batched for value in values)
        self.path = (*self.path, id(eqn))
        try:
            return self.follow(eqn, slots, values, batched)
        except UnexplainedError as error:
            # Left out, a parameter is a constant to what follows: its own gradient is missing from scores,
            # and those of the others are as they were.
            leaves = frozenset[int]().union(*(value.leaves for value in values))
            if not (self.reading.partial and leaves and batched):
                raise error.locate(eqn) from None
            self.reading.left_out |= dict.fromkeys(leaves, str(error))
            constants = [value if value.batched else Value(value.shape, value.dtype) for value in values]
            for slot, value in zip(slots, constants, strict=True):
                self.program.values[slot] = value
            return self.follow(eqn, slots, constants, True)
        finally:
            self.path = self.path[:-1]

    def follow(self, eqn: Any, slots: list[int], values: list[Value], batched: bool) -> list[int]:
        """Read one equation by what it does."""
        name = eqn.primitive.name
        if name in CALLS or (name in RECOMPUTED and not batched):
            closed = close_jaxpr(eqn.params.get("jaxpr", eqn.params.get("call_jaxpr")))
            return self.inline(closed.jaxpr, closed.consts, slots)
        if not batched:
            return self.emit(eqn, slots, read_unbatched(eqn, values))
        if name in _REFUSED:
            raise unknown(eqn, _REFUSED[name])
        if (read := self.reading.readers.get(name)) is not None:
            return read(self, eqn, slots, values)
        return self.touch(eqn, slots, values)

    def emit(self, eqn: Any, slots: Sequence[int], outputs: Sequence[Value], **extra: Any) -> list[int]:
        """Append an operation; return the slots of its outputs."""
        stops = eqn.primitive.name == "stop_gradient"
        batched = any(value.batched for value in (*outputs, *(self.program.values[slot] for slot in slots)))
        made = []
        for value in outputs:
            if stops or not jnp.issubdtype(value.dtype, jnp.inexact):  # no gradient goes back from there
                value = replace(value, layers=frozenset(), scaled=frozenset())
            made.append(self.slot(value))
        operation = Operation(eqn, tuple(slots), tuple(made), batched=batched, loops=self.loops, **extra)
        self.program.operations.append(operation)
        return made

    def touch(self, eqn: Any, slots: list[int], values: list[Value]) -> list[int]:
        """Read a primitive operation with a batched input."""
        # Parameters meet samples in one of two ways. In a product the gradient has factors, the input and the
        # output's gradient. Anything else, theta + x or theta * x, is read as if each sample had a copy of
        # theta: the copies' gradients are the samples' own, entry by entry.
        use = self.product(eqn, values)
        copies: dict[int, Use] = {}
        values = list(values)
        if use is None and any(jnp.issubdtype(atom.aval.dtype, jnp.inexact) for atom in eqn.outvars):
            for position, value in enumerate(values):
                if value.of_parameters:
                    samples = copy_axis(eqn, position, values)
                    copy = copies[position] = self.copy_use(eqn, f"input {position}", value, samples)
                    entries = entries_of(copy, value, size=self.reading.size(value))
                    shape, copy.parameter = copy.output.shape, position
                    values[position] = replace(value, shape=shape, sample_axis=samples, scaled=entries)
        samples = output_axis(eqn, values)
        layers = frozenset[Use]().union(*(value.layers for value in values))
        if use is not None:
            use.samples_out = samples
            if use.is_layer:
                use.before |= layers
                layers = frozenset((use,))
        found = Followed() if use is not None else follow(eqn, values, self.reading.takes_rows)
        if use is not None and use.kind == "gather" and use.operand.leaves:
            read = Value(tuple(eqn.outvars[0].aval.shape), eqn.outvars[0].aval.dtype)
            found = Followed(entries_of(use, read, size=self.reading.size(use.operand)))
        if found.summed:  # products that are summed are a layer, which LAI does not read
            self.reading.summed |= {(own, eqn.primitive.name) for own in found.summed}
            for last in found.summed:
                last.before |= layers - found.summed
            layers = found.summed
        columns = join_columns(eqn, values)
        outputs = []
        by_place = eqn.primitive.name in ("device_put", "optimization_barrier")  # an output for each input
        for position, variable in enumerate(eqn.outvars):
            own = values[position].sample_axis if by_place else samples
            value = Value(tuple(variable.aval.shape), variable.aval.dtype, own, layers=layers)
            outputs.append(replace(value, columns=columns, scaled=found.scaled))
        counted = row_column(eqn, values) if eqn.primitive.name == "gather" else None
        return self.emit(eqn, slots, outputs, use=use, copies=copies, row_column=counted)

    def product(self, eqn: Any, values: Sequence[Value]) -> Use | None:
        """Return the use if a parameter or a frozen weight is multiplied with, or read by, samples."""
        kinds = {"dot_general": "dense", "conv_general_dilated": "convolution", "gather": "gather"}
        kind = kinds.get(eqn.primitive.name)
        if kind is None or all(value.batched for value in values[:2]):
            return None
        parameter = 1 if values[0].batched else 0
        data = 1 - parameter
        operand = values[parameter]
        if kind == "convolution" and parameter == 0:
            if operand.leaves:
                raise unknown(eqn, "a convolution of a parameter with a kernel that depends on the sample")
            return None
        frozen = not operand.leaves
        if (frozen and operand.view is None) or (kind == "gather" and (frozen or parameter == 1)):
            return None
        if kind == "dense" and values[data].where.axis in eqn.params["dimension_numbers"][1][data]:
            return None  # a parameter repeated for every sample: there are copies of it
        use = self.use(eqn, kind, f"input {parameter}", operand, values[data].where)
        use.parameter, use.data, use.frozen = parameter, data, frozen
        return use

    def use(self, eqn: Any, kind: str, place: str, operand: Value, samples: SampleAxis) -> Use:
        """Return the use at a place of this operation: the same one whenever a loop's body is read again."""
        aval, known = eqn.outvars[0].aval, self.reading.uses
        output = jax.ShapeDtypeStruct(tuple(aval.shape), aval.dtype)
        key = (self.path, kind, place)
        if key not in known:
            known[key] = Use(len(known), kind, eqn, operand, samples, samples, output, loops=self.loops)
        use = known[key]
        use.operand, use.samples_in, use.output = operand, samples, output
        return use

    def copy_use(self, eqn: Any, place: str, value: Value, samples: SampleAxis) -> Use:
        """Return the use where a value of the parameters becomes one copy a sample."""
        use = self.use(eqn, "copy", place, value, samples)
        shape = value.shape or (1,) * (samples.axis + 1)
        if eqn.primitive.name in ELEMENTWISE:
            shape = tuple(eqn.outvars[0].aval.shape)
        use.output = jax.ShapeDtypeStruct(shape, value.dtype)
        return use
