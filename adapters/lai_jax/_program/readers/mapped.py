"""Reading the program of one sample, with every operation of it mapped over the samples.

Of a batch's program it must be shown that every operation keeps the samples apart, and a rule has to say
where they are behind it. The program of one sample, mapped over the samples, keeps them apart whatever its
operations are, and they are always along the first axis. So nothing in it is beyond reading: an operation
that no rule follows is run as it stands, on one sample each, with a copy of its parameters for each sample;
the copies' gradients are the samples' own, by whatever derivative rule the operation has.

That the samples of a batch do what a batch of one does is another matter: `trial.keep_apart`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from lai_jax._program.errors import UnexplainedError
from lai_jax._program.evaluate import apply_equation
from lai_jax._program.program import Use, Value, close_jaxpr
from lai_jax._program.reader import Reader, Reading
from lai_jax._program.rules.primitives import CALLS, RECOMPUTED
from lai_jax._program.rules.sums import entries_of
from lai_jax._program.sample_axis import SampleAxis


@dataclass(frozen=True)
class _Atom:
    """What an equation reads or writes, in so far as it is asked for its shape and type."""

    aval: jax.ShapeDtypeStruct


class MappedEquation:
    """An equation of one sample, run on all samples along the first axis of its batched inputs."""

    def __init__(self, eqn: Any, batched: Sequence[bool], samples: int) -> None:
        self.eqn, self.batched = eqn, tuple(batched)
        self.primitive, self.params, self.source_info = eqn.primitive, eqn.params, eqn.source_info
        self.invars = [
            _atom(one, samples if own else 0) for one, own in zip(eqn.invars, batched, strict=True)
        ]
        self.outvars = [_atom(one, samples) for one in eqn.outvars]
        try:
            jax.eval_shape(self._run_at_once, *(atom.aval for atom in self.invars))
            self.run = self._run_at_once
        except Exception:  # whatever an operation says that takes no further axis
            self.run = self._run_rows

    def _run_at_once(self, *given: Any) -> list[Any]:
        axes = [0 if own else None for own in self.batched]
        return jax.vmap(lambda *own: apply_equation(self.eqn, own), in_axes=axes)(*given)

    def _run_rows(self, *given: Any) -> list[Any]:
        def run_row(rows: list[Any]) -> list[Any]:
            left = iter(rows)
            own = [next(left) if own else all_ for own, all_ in zip(self.batched, given, strict=True)]
            return apply_equation(self.eqn, own)

        rows = [array for own, array in zip(self.batched, given, strict=True) if own]
        return jax.lax.map(run_row, rows)


class _Copies:
    """Makes one copy a sample of a value of the parameters: what a `MappedEquation` runs as `copy`."""

    def __init__(self, eqn: Any, shape: tuple[int, ...], dtype: Any) -> None:
        self.primitive, self.source_info = jax.lax.copy_p, eqn.source_info
        self.params: dict[str, Any] = {}
        self.invars = [_Atom(jax.ShapeDtypeStruct(shape[1:], dtype))]
        self.outvars = [_Atom(jax.ShapeDtypeStruct(shape, dtype))]
        self.run = lambda value: [jnp.broadcast_to(value, shape)]


def _atom(atom: Any, samples: int) -> _Atom:
    shape = tuple(atom.aval.shape)
    return _Atom(jax.ShapeDtypeStruct((samples, *shape) if samples else shape, atom.aval.dtype))


class SampleReader(Reader):
    """Reads the program of one sample, mapped over all of them."""

    def __init__(self, reading: Reading, samples: int) -> None:
        super().__init__(reading)
        self.samples = SampleAxis(0, samples)

    def equation(self, eqn: Any, slots: list[int]) -> list[int]:
        """Read one equation; return the slots of its outputs."""
        if not any(self.program.values[slot].batched for slot in slots) or eqn.primitive.name in CALLS:
            return super().equation(eqn, slots)
        self.path = (*self.path, id(eqn))
        try:
            # What there is a rule for is read as any equation of a batch is: layers are seen.
            if (found := self.follow_at_once(eqn, slots)) is not None:
                return found
            if eqn.primitive.name in RECOMPUTED:
                body = close_jaxpr(eqn.params["jaxpr"])
                return self.inline(body.jaxpr, body.consts, slots)
            own = [self.copy_slot(eqn, place, slot) for place, slot in enumerate(slots)]
            if own != slots and (found := self.follow_at_once(eqn, own)) is not None:
                return found
            return self.emit_as_is(eqn, own)
        finally:
            self.path = self.path[:-1]

    def follow_at_once(self, eqn: Any, slots: list[int]) -> list[int] | None:
        """Read what an equation is when it is mapped; None, and nothing read, where no rule follows that."""
        values, kept = self.program.values, len(self.program.operations)
        given, first = [values[slot] for slot in slots], len(values)
        shapes = [jax.ShapeDtypeStruct(value.shape, value.dtype) for value in given]
        path = (*self.path, len(self.reading.held))
        plain = Reader(self.reading, self.loops, path, self.program)
        try:
            mapped = MappedEquation(eqn, [value.batched for value in given], self.samples.samples)
            closed = jax.make_jaxpr(mapped.run)(*shapes)
            self.reading.held.append(closed)  # its equations are told apart by their addresses
            found = plain.inline(closed.jaxpr, closed.consts, slots)
            found = [self.drop_samples(slot) for slot in found]
            if all(values[slot].sample_axis in (None, self.samples) for slot in found):
                return found
        except UnexplainedError:
            pass
        del values[first:], self.program.operations[kept:]
        constants = self.program.constants
        self.program.constants = {slot: array for slot, array in constants.items() if slot < first}
        return None

    def drop_samples(self, slot: int) -> int:
        """Return what no sample touches, as the count of a loop, without the axis that mapping gave it."""
        value = self.program.values[slot]
        if value.batched:
            return slot
        closed = jax.make_jaxpr(lambda array: array[0])(jax.ShapeDtypeStruct(value.shape, value.dtype))
        return Reader.inline(self, closed.jaxpr, closed.consts, [slot])[0]

    def copy_slot(self, eqn: Any, place: int, slot: int) -> int:
        """Return a slot that holds one copy a sample of a value of the parameters; any other as it is."""
        value = self.program.values[slot]
        if not value.of_parameters:
            return slot
        use = self.use(eqn, "copy", f"input {place}", value, self.samples)
        shape = (self.samples.samples, *value.shape)
        use.output, use.parameter = jax.ShapeDtypeStruct(shape, value.dtype), place
        row = Value((1, *value.shape), value.dtype, flat=frozenset(axis + 1 for axis in value.flat))
        entries = entries_of(use, row, size=self.reading.size(value))
        copies = Value(shape, value.dtype, self.samples, scaled=entries)
        return self.emit(_Copies(eqn, shape, value.dtype), [slot], [copies], copies={0: use})[0]

    def emit_as_is(self, eqn: Any, slots: list[int]) -> list[int]:
        """Emit an operation of which nothing is known but that it keeps samples apart."""
        values = [self.program.values[slot] for slot in slots]
        layers = frozenset[Use]().union(*(value.layers for value in values))
        # It may add up what it takes: then a parameter in it is a layer, which LAI does not read.
        summed = frozenset(one.use for value in values for one in value.scaled if not one.bent)
        if summed:
            self.reading.summed |= {(use, eqn.primitive.name) for use in summed}
            for own in summed:
                own.before |= layers - summed
            layers = summed
        mapped = MappedEquation(eqn, [value.batched for value in values], self.samples.samples)
        outputs = [
            Value(tuple(atom.aval.shape), atom.aval.dtype, self.samples, layers=layers)
            for atom in mapped.outvars
        ]
        return self.emit(mapped, slots, outputs)
