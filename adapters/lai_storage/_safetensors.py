"""The file itself: safetensors, a JSON structure and a checksum in its metadata, written atomically."""

import json
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from lai_core._adapters import move_to_host, xp_of
from lai_storage._files import write_whole

VERSION = 1
"""Of the format. One that an older library cannot read gets the next number."""


def write(path: Path, structure: Any, arrays: Sequence[Any]) -> None:
    """Write a file that appears whole or not at all."""
    data = {str(index): to_numpy(array) for index, array in enumerate(arrays)}
    text = json.dumps({"structure": structure, "dtypes": [_dtype(array) for array in arrays]})
    metadata = {
        "lai_core": str(VERSION),
        "content": text,
        "sha256": _checksum(str(VERSION), text, data.values()),
    }
    write_whole(path, lambda own: save_file(data, own, metadata))


def read(path: Path, asarray: Callable[..., Any] | None) -> tuple[Any, list[Any]]:
    """Return the structure and the arrays of a file that is whole."""
    path.stat()  # says by itself that there is no such file
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            data = [file.get_tensor(str(index)) for index in range(len(file.keys()))]
    except (SafetensorError, OSError) as error:
        raise _unfit(path, f"one that is cut short or of another format ({error})") from error
    if "lai_core" not in metadata:
        raise _unfit(path, "one of another program")
    if not metadata["lai_core"].isdecimal() or int(metadata["lai_core"]) > VERSION:
        found = metadata["lai_core"]
        raise _unfit(path, f"one of format {found} of a newer lai_core: this one reads up to {VERSION}")
    text = metadata.get("content", "")
    if metadata.get("sha256") != _checksum(metadata["lai_core"], text, data):
        raise _unfit(path, "one whose checksum is of other bytes: it was changed")
    content = json.loads(text)
    return content["structure"], [
        _place(path, array, dtype, asarray) for array, dtype in zip(data, content["dtypes"], strict=True)
    ]


def _unfit(path: Path, got: str) -> ValueError:
    return ValueError(f"{path}: expected a whole file that lai_storage.save wrote, got {got}")


def _dtype(array: Any) -> str:
    return str(array.dtype).rpartition(".")[2]


def to_numpy(array: Any) -> np.ndarray[Any, Any]:
    """Return an array as numpy's, bfloat16 as float32."""
    if _dtype(array) == "bfloat16":
        xp = xp_of(array)
        array = xp.astype(array, xp.float32)
    found = np.asarray(move_to_host(array), order="C")
    return found if found.dtype.isnative else found.astype(found.dtype.newbyteorder("="))


def _checksum(version: str, text: str, data: Iterable[np.ndarray[Any, Any]]) -> str:
    found = sha256(f"{version} {text}".encode())
    for array in data:
        found.update(f"{array.dtype}{array.shape}".encode())
        found.update(np.asarray(array, order="C").data)
    return found.hexdigest()


def _place(path: Path, array: np.ndarray[Any, Any], dtype: str, asarray: Callable[..., Any] | None) -> Any:
    """Return an array of the namespace asked for, in the type that it had."""
    made: Any = array if asarray is None else asarray(array)
    xp = xp_of(made)
    if dtype == "bfloat16" and hasattr(xp, "bfloat16"):
        made = xp.astype(made, xp.bfloat16)
    elif _dtype(made) != str(array.dtype):
        msg = (
            f"{path}: expected asarray to keep the type {array.dtype}, got {made.dtype} (jax keeps 64 bits "
            "with jax.config.update('jax_enable_x64', True) alone)"
        )
        raise ValueError(msg)
    return made
