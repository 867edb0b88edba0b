"""What a record of one layer must know, and the trace that holds the records of one batch.

A kind of record is a frozen dataclass derived from `Record`. To add one, implement its methods:
no estimator knows the kinds. Ghost adds up `parameter_gradients`, LAI reads `embedding`, both
take the output gradients of the last record, and every check goes through `arrays` and `layout`.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lai_core._engine.gradients import ParameterGradient, Workspace
from lai_core._engine.namespace import Array, Namespace


class Record(ABC):
    """One layer's record of one batch. Holds what it is given; checked when it is scored."""

    name: str
    weight: Hashable
    output_gradients: Array | None

    @abstractmethod
    def arrays(self) -> Mapping[str, Array]:
        """Return the arrays of the record by field name; those that are None left out."""

    @abstractmethod
    def check(self, where: str, xp: Namespace) -> None:
        """Raise a `ValueError` or `TypeError` that starts with `where` unless the arrays fit each other."""

    @abstractmethod
    def layout(self) -> Mapping[str, Any]:
        """Return what must be equal on the validation and the training side: widths, flags, kind."""

    @abstractmethod
    def samples(self) -> int:
        """Return how many samples were recorded."""

    @abstractmethod
    def parameter_gradients(self, work: Workspace) -> Mapping[str, ParameterGradient]:
        """Return the per-sample gradients of each parameter of the layer, named `weight`, `bias`, ..."""

    @abstractmethod
    def embedding(self, xp: Namespace) -> Array | None:
        """Return the input that LAI's virtual readout sees, `(n, d)` or `(n, t, d)`; None if it sees none."""

    @property
    def has_readout_bias(self) -> bool:
        """Whether LAI's virtual readout from this layer has a bias."""
        return False

    @property
    def has_output_rows(self) -> bool:
        """Whether output gradients are `(n, d)` or `(n, t, d)`, as LAI reads those of the last record."""
        return True

    @property
    def matrix_shape(self) -> tuple[int, ...] | None:
        """Shape of the parameter that equal `weight` keys share; None where the arrays do not tell."""
        return None


@dataclass(frozen=True, eq=False)
class Trace:
    """What was recorded of one batch: its layers, in the order in which the model uses them.

    Parameters
    ----------
    layers
        The records; the last one always has output gradients. Any iterable; kept as a tuple.

    Raises
    ------
    TypeError
        If a layer is not a record.
    ValueError
        If there is no layer.

    Examples
    --------
    >>> import numpy as np
    >>> import lai_core as lai
    >>> layer = lai.LayerTrace(np.ones((8, 3)), np.ones((8, 2)), bias=True)
    >>> len(lai.Trace([layer]).layers)
    1
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


def where(role: str, index: int, record: Record) -> str:
    """Name the record in a message: `validation.layers[2] ('fc1')`."""
    return f"{role}.layers[{index}]" + (f" ({record.name!r})" if record.name else "")
