"""The one door for data: what users hand over becomes rows here, by position, or is refused by name.

Tables of Arrow, DataFrames of pandas, rows of `datasets`, mappings of columns, pairs, lists of samples.
"""

from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any, NamedTuple

import numpy as np

from lai_core._adapters import check_batch, is_array
from lai_storage._safetensors import to_numpy

NUMBERS = ("score", "standard_error", "loss", "gradient_norm")
"""What a scorer says of every sample."""
Collate = tuple[str, str] | Callable[[dict[str, Any]], Any]
"""The columns of inputs and targets; or what makes `(inputs, targets)`, or a mapping, of all columns."""


class Rows(NamedTuple):
    """A batch: what its samples are called and what they belong to, and what the model and the loss get."""

    samples: int
    labels: dict[str, Any]  # `id` and `group`, one a sample: those that were asked for
    pair: Any  # inputs and targets; None where there is no sample


def columns_of(batch: Any) -> dict[str, Any] | None:
    """Return the columns of a batch by name, each as it is; None where it has no columns with names."""
    names = batch if isinstance(batch, Mapping) else getattr(batch, "column_names", None)
    if names is None and hasattr(batch, "iloc") and hasattr(batch, "columns"):  # of pandas
        names = batch.columns
    return None if names is None else {name: batch[name] for name in names}


def rows_of(values: Any) -> Any:
    """Return a column as one array of its type where its rows are numbers of one shape, else as a list."""
    # arrays of torch and jax stay as they are
    if hasattr(values, "to_pylist"):
        column = values.combine_chunks() if hasattr(values, "combine_chunks") else values
        if hasattr(column, "to_numpy_ndarray"):  # tensors of one shape
            return column.to_numpy_ndarray()
        kind, found = column.type, rows_of(column.to_pylist())
        while hasattr(kind, "value_type"):  # of lists, and of lists of lists
            kind = kind.value_type
        return found if isinstance(found, list) else found.astype(kind.to_pandas_dtype())
    if hasattr(values, "iloc"):
        values = values.to_numpy()
    if is_array(values) and (not isinstance(values, np.ndarray) or values.dtype.kind in "biufc"):
        return np.array(to_numpy(values)) if isinstance(values, np.ndarray) else values
    rows = list(values)
    if not rows or any(row is None or isinstance(row, str | bytes | Mapping) for row in rows):
        return rows
    try:
        found = np.stack([np.asarray(_plain(row)) for row in rows])
    except ValueError:  # rows of several shapes
        return rows
    return found if found.dtype.kind in "biufc" else rows


def _plain(row: Any) -> Any:
    """Return a row that holds rows again, as pandas has lists of lists, as one array."""
    if is_array(row) and not isinstance(row, np.ndarray):
        return to_numpy(row)
    return rows_of(row) if getattr(getattr(row, "dtype", None), "kind", "") == "O" else row


def labels_of(role: str, values: Any, samples: int) -> list[Any]:
    """Return ids or groups as a list of whole numbers or text, one a sample, by position."""
    listed = getattr(values, "to_pylist", None) or getattr(values, "tolist", None)
    ordered = isinstance(values, Iterable) and not isinstance(values, Set | Mapping)  # by itself
    made = listed() if listed else values
    made = [*made] if ordered and not listed else made
    found: list[Any] = made if isinstance(made, list) else [made]
    found = [one.item() if hasattr(one, "item") else one for one in found]
    kinds = {type(one) for one in found}
    dated = getattr(getattr(values, "dtype", None), "kind", None) in {"m", "M"}
    if dated or not (kinds <= {int} or kinds <= {bool} or kinds <= {str}):
        got = ", ".join(sorted({type(one).__name__ for one in found}))
        msg = f"{role}: expected whole numbers for all samples, or text for all, got {got}"
        raise TypeError(msg)
    if len(found) != samples:
        msg = f"{role}: expected one per sample, {samples}, got {len(found)}"
        raise ValueError(msg)
    return found


def collate_items(role: str, stack: Callable[[list[Any]], Any], items: list[Any]) -> Any:
    """Return samples as a batch: mappings as columns, pairs as `stack` makes arrays of them."""
    first = _form_of(items[0])
    for item in items:
        if first is None or _form_of(item) != first:
            msg = (
                f"{role}: expected samples that are all pairs (input, target), or dictionaries of the same "
                f"keys, got {first or type(items[0]).__name__} and {_form_of(item) or type(item).__name__}"
            )
            raise TypeError(msg)
    if isinstance(items[0], Mapping):
        return {name: [item[name] for item in items] for name in items[0]}
    try:
        return tuple(stack(items))
    except (RuntimeError, TypeError, ValueError) as error:
        msg = f"{role}: expected samples of one shape, which stack to a batch, got others: {error}"
        raise ValueError(msg) from error


def _form_of(item: Any) -> str | None:
    """Say what a sample is: a pair, or a dictionary of which keys; None of anything else."""
    if isinstance(item, Mapping):
        return f"a dictionary of {', '.join(sorted(map(repr, item)))}"
    return "a pair" if isinstance(item, tuple | list) and len(item) == 2 else None


def read_rows(
    role: str,
    batch: Any,
    *,
    collate: Collate | None,
    asarray: Callable[[Any], Any],
    count: Callable[[Any], int],
    labels: Mapping[str, str | None],
) -> Rows:
    """Return a batch as rows: `labels` are the columns of `ids` and `groups`, None where there is none."""
    asked = {argument: name for argument, name in labels.items() if name is not None}
    columns = columns_of(batch)
    if columns is None:
        if asked:
            argument, name = next(iter(asked.items()))
            msg = f"{argument}: expected a batch with a column {name!r}, got {type(batch).__name__}"
            raise ValueError(msg)
        pair = tuple(batch) if isinstance(batch, list) else batch
        check_batch(role, pair)
        return Rows(count(pair), {}, pair)
    for argument, name in asked.items():
        _check_column(argument, name, columns)
    samples = len(next(iter(columns.values()), ()))
    for name, values in columns.items():
        if len(values) != samples:
            msg = f"{role}: expected columns of one length, got {samples} rows and {len(values)} in {name!r}"
            raise ValueError(msg)
    found = {
        argument.removesuffix("s"): labels_of(argument, columns[name], samples)
        for argument, name in asked.items()
    }
    if not samples:
        return Rows(0, found, None)
    others = {name: values for name, values in columns.items() if name not in asked.values()}
    pair = _pair(others, collate, asarray)
    if (made := count(pair)) != samples:
        msg = f"collate: expected as many samples as the batch has rows, {samples}, got {made}"
        raise ValueError(msg)
    return Rows(samples, found, pair)


def _pair(columns: Mapping[str, Any], collate: Collate | None, asarray: Callable[[Any], Any]) -> Any:
    """Return the inputs and targets of a batch's columns; a mapping is both."""
    names = collate if isinstance(collate, tuple) else tuple(columns)
    for name in names:
        _check_column("collate", name, columns)
    rows = {name: rows_of(columns[name]) for name in names}
    unfit = next((name for name, found in rows.items() if isinstance(found, list)), None)
    if unfit is not None and not callable(collate):
        kinds = sorted({type(row).__name__ for row in rows[unfit]})
        msg = (
            f"collate: expected numbers of one shape in every row of column {unfit!r}, got "
            f"{', '.join(kinds)}; pass a function from the columns to (inputs, targets)"
        )
        raise ValueError(msg)
    made: Any = {name: found if isinstance(found, list) else asarray(found) for name, found in rows.items()}
    if callable(collate):
        made = collate(made)
    elif collate is not None:
        made = tuple(made[name] for name in collate)
    made = (made, made) if isinstance(made, Mapping) else made
    check_batch("collate", made)
    return made


def score_rows(rows: Rows, score: Callable[[Any], Mapping[str, Any]]) -> dict[str, Any]:
    """Return the columns of a table: what the rows are called, their numbers by `score`, their groups."""
    numbers = dict.fromkeys(NUMBERS, np.zeros(0)) if rows.pair is None else score(rows.pair)
    found = {**rows.labels, **{name: numbers[name] for name in NUMBERS}}  # a compiled program has its order
    if "group" in found:
        found["group"] = found.pop("group")  # behind the numbers
    return found


def put_back(batch: Any, found: dict[str, Any], labels: Mapping[str, str | None]) -> Any:
    """Return columns in the form of a batch, with its index and the types of its labels; else as a dict."""
    columns = columns_of(batch) or {}
    for argument, name in labels.items():
        if name is not None:
            found[argument.removesuffix("s")] = getattr(columns[name], "array", columns[name])
    if hasattr(type(batch), "from_pydict"):
        return type(batch).from_pydict(found)
    if hasattr(batch, "iloc"):
        return type(batch)(found, index=batch.index)
    return {
        name: values if isinstance(values, np.ndarray) else list(values) for name, values in found.items()
    }


def _check_column(argument: str, name: Any, columns: Mapping[str, Any]) -> None:
    if name not in columns:
        known = ", ".join(map(repr, columns))
        msg = f"{argument}: expected the name of one of the batch's columns ({known}), got {name!r}"
        raise ValueError(msg)
