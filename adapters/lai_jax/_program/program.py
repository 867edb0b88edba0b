"""The program that the adapter reads and runs: a jaxpr, calls inlined, with what is known of every value."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np

from lai_jax._program.sample_axis import SampleAxis
from lai_jax._program.views import View, match_views


@dataclass(frozen=True)
class Scaled:
    """A parameter of whose entries a batched value's entries are, or with which they are multiplied."""

    use: "Use"  # where the parameter met the samples
    axes: frozenset[int]  # along which these entries may differ
    own: bool = False  # whether they are not multiplied yet with anything that depends on the sample
    part: bool = False  # whether they may be other entries than those at the use, or in another order
    # whether they are a row of a matrix that was added, or compared, and all that came of it
    row: bool = False
    bent: bool = False  # whether nothing is left of a product but a function of it that is not linear


@dataclass(frozen=True, eq=False)
class Value:
    """What is known of one value of the program, without running it.

    A value is *batched* if it depends on the inputs or targets (`sample_axis` is set), otherwise *of the
    parameters* if it depends on them (`leaves` is not empty), otherwise *constant*.
    """

    # `shape`, `dtype`: of the array
    shape: tuple[int, ...]
    dtype: Any
    sample_axis: SampleAxis | None = None  # where the samples are in a batched value
    leaves: frozenset[int] = frozenset()  # the parameter leaves that a value of the parameters depends on
    view: View | None = None  # how it is a rearrangement of one leaf (of a parameter, or of a captured array)
    flat: frozenset[int] = frozenset()  # axes along which it is known to repeat one entry
    # its numbers, where they are integers known before the program runs
    known: np.ndarray[Any, Any] | None = None
    # per entry of its last axis the known numbers, or None
    columns: tuple[np.ndarray[Any, Any] | None, ...] | None = None
    layers: frozenset["Use"] = frozenset()  # the layers that a batched value went through last
    # parameters that a batched value's entries are products with, or entries of
    scaled: frozenset[Scaled] = frozenset()

    @property
    def batched(self) -> bool:
        return self.sample_axis is not None

    @property
    def where(self) -> SampleAxis:
        batched: Any = self.sample_axis
        return batched

    @property
    def of_parameters(self) -> bool:
        return self.sample_axis is None and bool(self.leaves)

    def equals(self, other: "Value") -> bool:
        """Whether the same is known of both, so that a loop's analysis has settled."""
        own = self.sample_axis, self.leaves, self.flat, self.layers, self.scaled
        others = other.sample_axis, other.leaves, other.flat, other.layers, other.scaled
        return own == others and match_views(self.view, other.view)


@dataclass(eq=False)
class Use:
    """One place where the program uses parameters (or captured weights) on samples."""

    # of the uses of one program, in the order in which they were met: what is recorded at a use is kept under
    # its number
    number: int
    # `dense`, `convolution`, `gather`; `copy` for a value of the parameters that meets samples in any other
    # operation: it is copied, one copy a sample
    kind: str
    eqn: Any  # the operation
    operand: Value  # what is known of the value of the parameters
    samples_in: SampleAxis  # where the samples are in the batched input; for per-sample copies, in these
    samples_out: SampleAxis  # where the samples are in the operation's output
    output: jax.ShapeDtypeStruct  # shape and type of what the output gradient is of
    # `parameter`, `data`: which of the operation's inputs is the weight, and of a product which is batched
    parameter: int = -1
    data: int = -1
    frozen: bool = False  # whether the weight is not a parameter
    # length of each enclosing loop, and whether it runs backwards, outermost first
    loops: tuple[tuple[int, bool], ...] = ()
    before: set["Use"] = field(default_factory=set)  # the layers that a layer's input went through last

    @property
    def is_layer(self) -> bool:
        """Whether LAI reads it: a matrix or a convolution."""
        return self.kind in ("dense", "convolution")


@dataclass(eq=False)
class Operation:
    """One equation of the program, with the slots it reads and writes."""

    eqn: Any
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    use: Use | None = None
    copies: dict[int, Use] = field(default_factory=dict)
    bodies: tuple["Program", ...] = ()
    rule: "Program | None" = None  # the gradient of a function with a derivative rule of its own
    batched: bool = False
    loops: tuple[tuple[int, bool], ...] = ()
    row_column: tuple[int, int] | None = None


@dataclass(eq=False)
class Program:
    """Operations over numbered slots."""

    values: list[Value] = field(default_factory=list)
    constants: dict[int, Any] = field(default_factory=dict)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)

    def uses(self) -> list[Use]:
        """Return all uses in the order in which the program meets them, those inside loops included."""
        found: list[Use] = []
        for operation in self.operations:
            found += list(operation.copies.values())
            for body in operation.bodies:
                found += body.uses()
            if operation.use is not None:
                found.append(operation.use)
        return found


def close_jaxpr(jaxpr: Any) -> Any:
    return jaxpr if hasattr(jaxpr, "consts") else jex.ClosedJaxpr(jaxpr, ())


def programs_of(eqn: Any) -> Iterator[Any]:
    for value in eqn.params.values():
        for each in value if isinstance(value, (tuple, list)) else (value,):
            inner = getattr(each, "jaxpr", each)
            if hasattr(inner, "eqns"):
                yield inner


def walk_equations(jaxpr: Any) -> Iterator[Any]:
    """Yield the equations of a program, each before those of the programs that it runs."""
    for eqn in jaxpr.eqns:
        yield eqn
        for inner in programs_of(eqn):
            yield from walk_equations(inner)


def find_needed(jaxpr: Any) -> list[Any]:
    """Return the equations that the outputs depend on: what is computed for nothing may mix samples."""
    used = {atom for atom in jaxpr.outvars if not hasattr(atom, "val")}
    kept = []
    for eqn in reversed(jaxpr.eqns):
        if not used.isdisjoint(eqn.outvars):
            kept.append(eqn)
            used.update(atom for atom in eqn.invars if not hasattr(atom, "val"))
    return kept[::-1]


def loop_parts(eqn: Any) -> tuple[int, int]:
    """Return how many of a scan's inputs are constants and how many are carried."""
    if "num_consts" in eqn.params:
        return eqn.params["num_consts"], eqn.params["num_carry"]
    consts, carry, _ = eqn.params["ft_in"].unpack()  # JAX 0.11 and newer
    return len(list(consts)), len(list(carry))


def coarsest(jaxpr: Any) -> float:
    """Return the precision of the type of fewest digits that a program computes in."""
    equations = list(walk_equations(jaxpr))
    # it leaves the type as it is, and rounds values and derivatives to so many bits
    rounded = [eqn for eqn in equations if eqn.primitive.name == "reduce_precision"]
    types = [each.aval.dtype for eqn in equations for each in eqn.outvars if hasattr(each.aval, "dtype")]
    types += [each.aval.dtype for each in jaxpr.invars]
    own = [float(jnp.finfo(dtype).eps) for dtype in types if jnp.issubdtype(dtype, jnp.inexact)]
    own += [2.0 ** -eqn.params["mantissa_bits"] for eqn in rounded]
    return max([0.0, *own])
