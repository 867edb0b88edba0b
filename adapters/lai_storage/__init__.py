"""Keep what was computed: traces, summaries and sketches as files, the scores of a data set as a table.

A file is in safetensors' format: arrays, and beside them one JSON text that says what they belong to. Nothing
in it is run when it is read. Needs the extra `storage`, tables `dataset`.
"""

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

from lai_storage import _values
from lai_storage._values import storable

__all__ = ["load", "save", "storable"]


def save(path: str | PathLike[str], kept: Any) -> None:
    """Write a trace, a summary, or a tuple, list or mapping of such things to a file.

    The file appears whole or not at all: it is written beside `path` and then moved there, so that an
    interruption leaves what was there before.

    Parameters
    ----------
    path
        Of the file, in a folder that exists; one that exists is replaced.
    kept
        A `Trace`, `ValidationSummary` or `GateTrace`, records of any kind, in `lai_jax` a `Validation` or
        `Sketch`; arrays, numbers and text; tuples, lists and mappings of these.

    Raises
    ------
    TypeError
        If something in it can not be kept; the message says where it is.

    Notes
    -----
    Arrays are copied to the host. bfloat16, which numpy does not have, is written as float32, which holds
    its values exactly, and read back as bfloat16 where the namespace has it.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import numpy as np
    >>> import lai_core as lai
    >>> import lai_storage
    >>> trace = lai.Trace([lai.LayerTrace(np.ones((8, 3)), np.ones((8, 2)), name="head")])
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "summary.safetensors"
    >>> lai_storage.save(path, lai.summarize(trace, "lai"))
    >>> lai_storage.load(path)
    ValidationSummary('lai', positions='tokens', samples=8, numbers=6)
    """
    arrays: list[Any] = []
    structure = _values.flatten_value(kept, "kept", arrays)
    _file().write(Path(path), structure, arrays)


def load(path: str | PathLike[str], *, asarray: Callable[..., Any] | None = None) -> Any:
    """Read what `save` wrote, after checking that it is whole.

    Parameters
    ----------
    path
        Of the file.
    asarray
        Makes each array from a numpy array: `torch.asarray`, `jax.numpy.asarray`, or one that also places it,
        such as `functools.partial(torch.asarray, device="cuda")`. None: numpy arrays.

    Returns
    -------
    object
        What was saved, equal in every bit.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is cut short, changed, of another program, of a newer version, or holds a kind of object whose
        package was not imported; if `asarray` changes a type (jax without `jax_enable_x64` holds no float64).
    """
    structure, arrays = _file().read(Path(path), asarray)
    return _values.rebuilt(structure, arrays, f"{path}")


def _file() -> Any:
    """Import what needs safetensors: only those who save need it."""
    try:
        from lai_storage import _safetensors
    except ModuleNotFoundError as error:
        msg = f"storage: expected the package {error.name!r}, got none: pip install 'lai-core[storage]'"
        raise ModuleNotFoundError(msg, name=error.name) from error
    return _safetensors
