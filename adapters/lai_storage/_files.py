"""Files that appear whole or not at all, whatever other processes write there."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4


def write_whole(path: Path, write: Callable[[Path], Any]) -> None:
    """Write a file under a name of its own, flush it to the disk, and move it to its place."""
    own = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        write(own)
        with own.open("rb+") as written:
            os.fsync(written.fileno())
        own.replace(path)
    finally:
        own.unlink(missing_ok=True)  # nothing is there once it was moved
