"""Batches as engines hand them over: tables of Arrow, DataFrames of pandas, mappings of columns."""

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import chain
from typing import Any

import numpy as np

from lai_core._adapters import is_array

__all__ = ["columns_of", "rows_of"]

NUMBERS = ("score", "standard_error", "loss", "gradient_norm")
"""What a scorer says of every sample."""
Collate = tuple[str, str] | Callable[[dict[str, Any]], Any]
"""The columns of inputs and targets; or what makes `(inputs, targets)`, or a mapping, of all columns."""


def columns_of(batch: Any, *, without: Collection[Any] = ()) -> dict[str, Any] | None:
    """Return the columns of a batch by name, each as it is.

    Parameters
    ----------
    batch
        A table or record batch of Arrow, a DataFrame of pandas, or a mapping of columns.
    without
        Names of columns to leave out.

    Returns
    -------
    dict or None
        None where the batch has no columns with names.
    """
    names = batch if isinstance(batch, Mapping) else getattr(batch, "column_names", None)  # of Arrow
    if names is None and hasattr(batch, "iloc"):  # of pandas
        names = batch.columns
    return None if names is None else {name: batch[name] for name in names if name not in without}


def rows_of(values: Any) -> Any:
    """Return a column as one array where its rows are numbers of one shape, else as a list.

    Parameters
    ----------
    values
        A column of Arrow or pandas; a list or an array of rows. Arrays of torch and jax stay as they are.

    Returns
    -------
    array or list
        The array is numpy's, of shape `(n, ...)`, and has the column's type.
    """
    if hasattr(values, "to_pylist"):
        return _rows_of_arrow(values)
    if hasattr(values, "iloc"):
        values = values.to_numpy()
    if is_array(values) and (not isinstance(values, np.ndarray) or values.dtype.kind in "biufc"):
        return values
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
    return rows_of(row) if getattr(getattr(row, "dtype", None), "kind", "") == "O" else row


def _rows_of_arrow(column: Any) -> Any:
    """Return a column of Arrow without a detour by Python's numbers, lists of one length as further axes."""
    import pyarrow.compute as pc

    values = column.combine_chunks() if hasattr(column, "combine_chunks") else column
    if hasattr(values, "to_numpy_ndarray"):  # tensors of one shape
        return values.to_numpy_ndarray()
    shape = [len(values)]
    while not values.null_count and hasattr(values, "flatten") and hasattr(values.type, "value_type"):
        lengths = pc.unique(pc.list_value_length(values)).to_pylist()
        if len(lengths) != 1:
            return column.to_pylist()
        shape.append(lengths[0])
        values = values.flatten()
    if values.null_count:
        return column.to_pylist()
    found = values.to_numpy(zero_copy_only=False)
    return found.reshape(shape) if found.dtype.kind in "biufc" else rows_of(found)


def scored(
    batch: Any, score: Callable[[dict[str, Any] | None], Mapping[str, Any]], **named: str | None
) -> Any:
    """Return the numbers of a batch, and what its columns say of `id` and `group`, in the batch's form.

    `score` gets the batch's other columns, None where it has none, and returns the `NUMBERS` of its samples;
    `named` are the columns of `ids` and `groups`, None where there is none.

    Returns
    -------
    table, DataFrame or dict
        A dictionary, unless the batch is one of the others; a DataFrame with the batch's index.
    """
    asked = {argument: name for argument, name in named.items() if name is not None}
    columns = columns_of(batch)
    if columns is None:
        if asked:
            argument, name = next(iter(asked.items()))
            msg = f"{argument}: expected a batch with a column {name!r}, got {type(batch).__name__}"
            raise ValueError(msg)
        return _ordered(score(None))
    rows = len(next(iter(columns.values()), ()))
    for argument, name in asked.items():
        _check_column(argument, name, columns)
    names = {argument.removesuffix("s"): _host(columns[name]) for argument, name in asked.items()}
    others = columns_of(batch, without=asked.values())
    numbers = _ordered(score(others) if rows else dict.fromkeys(NUMBERS, np.zeros(0)))
    if (samples := len(numbers["score"])) != rows:
        msg = f"collate: expected as many samples as the batch has rows, {rows}, got {samples}"
        raise ValueError(msg)
    group = {"group": names.pop("group")} if "group" in names else {}
    found = {**names, **numbers, **group}
    if hasattr(batch, "column_names"):
        return type(batch).from_pydict(found)
    return type(batch)(found, index=batch.index) if hasattr(batch, "iloc") else found


def _ordered(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Return numbers in the order of the table; a compiled program has its own."""
    return {name: numbers[name] for name in NUMBERS}


def _host(values: Any) -> Any:
    """Return a column of a framework's array as a list; any other as it is."""
    return values.tolist() if is_array(values) and not isinstance(values, np.ndarray) else values


def paired(columns: Mapping[str, Any], collate: Collate | None, asarray: Callable[[Any], Any]) -> Any:
    """Return the inputs and targets of a batch's columns; a mapping is both.

    Returns
    -------
    tuple
        Or whatever `collate` returned.
    """
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
    return (made, made) if isinstance(made, Mapping) else made


def joined(batches: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the columns of consecutive batches, of which there is one at least."""
    found = list(batches)
    return {name: list(chain.from_iterable(each[name] for each in found)) for name in found[0]}


def _check_column(argument: str, name: Any, columns: Mapping[str, Any]) -> None:
    if name not in columns:
        known = ", ".join(map(repr, columns))
        msg = f"{argument}: expected the name of one of the batch's columns ({known}), got {name!r}"
        raise ValueError(msg)
