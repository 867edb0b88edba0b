"""What a record of one layer must know, and the trace that holds the records of one batch.

A kind of record is a frozen dataclass derived from `Record` that declares its arrays, `array_fields`, and
says its gradients: no estimator knows the kinds. Ghost adds up `parameter_gradients`, LAI reads
`readout_input`, both take the output gradients of the last record. Its arrays, its number of samples, their
checks and its pytree (`lai_jax.register_record`) follow from the declaration.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from lai_core._engine.axes import Axes
from lai_core._engine.gradients import ParameterGradient, Workspace
from lai_core._engine.namespace import Array, Namespace, namespace_of

OWN = ("name", "weight")
"""Static fields that may differ between the two sides, or are compared by themselves."""


def _static_names(kind: Any) -> tuple[str, ...]:
    """Name the static fields of a kind or, which alone torch's compiler can read, of a record."""
    return tuple(field.name for field in fields(kind) if field.name not in kind.array_fields)


class Pytree:
    """Of what passes through `jax.jit` once `lai_jax` is imported; without it, says so."""

    @property
    def __jax_array__(self) -> Any:
        """Raise: jax asks for this where it finds something that is no registered pytree."""
        msg = (
            f"{type(self).__name__}: expected lai_jax to be imported, which registers traces, records and "
            "summaries as pytrees, before jax takes one; import lai_jax, and register a record of your own "
            "by lai_jax.register_record"
        )
        raise ImportError(msg)


class Record(Pytree, ABC):
    """One layer's record of one batch. Holds what it is given; checked when it is scored."""

    array_fields: ClassVar[Mapping[str, Axes]]
    """The fields that hold arrays, and what these may be; all other fields are static."""

    name: str
    weight: Hashable
    output_gradients: Array | None

    def __repr__(self) -> str:
        """Name the kind, the shapes of its arrays, and the fields that are not the usual ones."""
        shown = []
        for field in fields(self):  # type: ignore[arg-type]  # kinds are dataclasses
            value = getattr(self, field.name)
            if field.name in self.array_fields:
                value = getattr(value, "shape", value)
                value = None if value is None else tuple(value) if isinstance(value, tuple | list) else value
            if value != field.default:
                shown.append(f"{field.name}={value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"

    @classmethod
    def static_fields(cls) -> tuple[str, ...]:
        """Return the names of the fields that hold no arrays."""
        return _static_names(cls)

    def arrays(self) -> Mapping[str, Array]:
        """Return the arrays of the record by field name; those that are None left out."""
        named = {name: getattr(self, name) for name in self.array_fields}
        return {name: array for name, array in named.items() if array is not None}

    def has_rows(self, name: str) -> bool:
        """Whether an array has a row for each position of the sample."""
        words = [shape.split() for shape in self.array_fields[name].shapes]
        shaped = any(one[:2] == ["n", "t"] and len(one) == self.arrays()[name].ndim for one in words)
        return self.has_token_positions and shaped

    def samples(self) -> int:
        """Return how many samples were recorded."""
        return int(next(iter(self.arrays().values())).shape[0])

    def check(self, where: str, xp: Namespace) -> None:
        """Raise a `ValueError` or `TypeError` that starts with `where` unless the arrays are as declared.

        A kind whose arrays must fit each other adds that.
        """
        bias: object = getattr(self, "bias", False)
        if not isinstance(bias, bool):
            msg = f"{where}.bias: expected True or False, got {type(bias).__name__}"
            raise TypeError(msg)
        for name, array in self.arrays().items():
            self.array_fields[name].check(f"{where}.{name}", array, xp)

    def check_values(self, where: str, xp: Namespace) -> None:
        """Raise a `ValueError` that starts with `where` if a value is impossible; for eager use alone."""
        del where, xp  # any float is possible

    def layout(self) -> Mapping[str, Any]:
        """Return what must be equal on the validation and the training side: kind, widths, static fields."""
        layout: dict[str, Any] = {"kind": type(self).__name__}
        for name, axes in self.array_fields.items():
            if any("d" in shape.split() for shape in axes.shapes):
                array = getattr(self, name)
                words = name.replace("_", " ")
                layout[f"width of the {words}"] = None if array is None else axes.width(array)
        return layout | {name: getattr(self, name) for name in _static_names(self) if name not in OWN}

    @abstractmethod
    def parameter_gradients(self, work: Workspace) -> Mapping[str, ParameterGradient]:
        """Return the per-sample gradients of each parameter of the layer, named `weight`, `bias`, ..."""

    @abstractmethod
    def readout_input(self, xp: Namespace) -> Array | None:
        """Return the input that LAI's virtual readout sees, `(n, d)` or `(n, t, d)`; None if it sees none."""

    @property
    def has_readout_bias(self) -> bool:
        """Whether LAI's virtual readout from this layer has a bias."""
        return False

    @property
    def readout_positions(self) -> Array | None:
        """Which positions of the readout input count, `(n, t)`; None: all."""
        return None

    def masked(self, valid: Array) -> "Record":
        """Return the record with the positions that count; as it is where it has none of this number."""
        del valid
        return self

    @property
    def has_token_positions(self) -> bool:
        """Whether position t of each array is position t of the sample."""
        return True

    @property
    def has_output_rows(self) -> bool:
        """Whether output gradients are `(n, d)` or `(n, t, d)`, as LAI reads those of the last record."""
        return True

    @property
    def matrix_shape(self) -> tuple[int, ...] | None:
        """Shape of the parameter that equal `weight` keys share; None where the arrays do not tell."""
        return None


@dataclass(frozen=True, eq=False)
class Trace(Pytree):
    """What was recorded of one batch: its layers, in the order in which the model uses them.

    Parameters
    ----------
    layers
        The records; the last one always has output gradients. Any iterable; kept as a tuple.
    """

    layers: tuple[Record, ...]

    def __init__(self, layers: Iterable[Record]) -> None:
        given: object = layers
        if not isinstance(given, Iterable):
            msg = f"layers: expected an iterable of records, got {type(given).__name__}"
            raise TypeError(msg)
        kept: tuple[object, ...] = tuple(given)
        for index, layer in enumerate(kept):
            if not isinstance(layer, Record):
                msg = f"layers[{index}]: expected a record such as LayerTrace, got {type(layer).__name__}"
                raise TypeError(msg)
        if not kept:
            msg = "layers: expected at least one record, got none"
            raise ValueError(msg)
        object.__setattr__(self, "layers", kept)

    def __repr__(self) -> str:
        """Name the layers, with the shapes of their arrays; of many, the first and the last."""
        shown = []
        for layer in self.layers:
            shapes = [str(tuple(getattr(array, "shape", ()))) for array in layer.arrays().values()]
            named = [repr(layer.name)] if layer.name else []
            shown.append(f"{type(layer).__name__}({', '.join(named + shapes)})")
        if len(shown) > 6:
            shown[3:-2] = [f"... {len(shown) - 5} more ..."]
        return f"Trace({', '.join(shown)})"


def mask_positions(trace: Trace, valid: Array, /) -> Trace:
    """Say which positions of each sample count: those that padding added do not.

    LAI leaves the others out of every product and every mean, so that its scores do not depend on how far
    a batch is padded. Ghost and LLI are exact and need no mask: what a padded position gives them is its
    gradient, mostly zero.

    Parameters
    ----------
    trace
        The trace of a batch.
    valid
        `(n, t)`, booleans. Of every dense layer with t positions; layers with other positions, or
        none, stay as they are.

    Returns
    -------
    Trace
        With the same arrays, and the mask beside them.

    Raises
    ------
    ValueError
        If no layer has t positions.

    Examples
    --------
    >>> import numpy as np
    >>> import lai_core as lai
    >>> trace = lai.Trace([lai.LayerTrace(np.ones((1, 4, 3)), np.ones((1, 4, 2)))])
    >>> masked = lai.mask_positions(trace, np.array([[True, True, False, False]]))
    >>> [float(lai.lai_scores(each, each)[0]) for each in (trace, masked)]  # 4 * 4 pairs, and 2 * 2
    [96.0, 24.0]
    """
    namespace_of({"valid": valid})
    masked = [layer.masked(valid) for layer in trace.layers]
    if all(after is before for after, before in zip(masked, trace.layers, strict=True)):
        inputs = (layer.arrays().get("activations") for layer in trace.layers)
        found = sorted({one.shape[1] for one in inputs if one is not None and one.ndim == 3})
        msg = (
            f"valid: expected shape (n, t) with the t positions of a layer (here {found or 'none has any'}), "
            f"got {tuple(valid.shape)}"
        )
        raise ValueError(msg)
    return Trace(masked)


def locate(role: str, index: int, record: Record) -> str:
    """Name the record in a message: `validation.layers[2] ('fc1')`."""
    return f"{role}.layers[{index}]" + (f" ({record.name!r})" if record.name else "")
