"""Files that appear whole or not at all, whatever other processes write there."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4


def write_whole(path: Path, write: Callable[[Path], Any], *, keep: bool = False) -> None:
    """Write a file under a name of its own, flush it to the disk, and move it to its place.

    Where it should `keep`, a file that is there by then stays: of several processes the first one's. That
    needs a file system with hard links; on another one the last one's stays, which is also whole.
    """
    own = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        write(own)
        with own.open("rb+") as written:
            os.fsync(written.fileno())
        if not keep:
            own.replace(path)
            return
        try:
            path.hardlink_to(own)
        except FileExistsError:
            pass
        except OSError:  # a file system without hard links
            own.replace(path)
    finally:
        own.unlink(missing_ok=True)  # a link of it stays; nothing is there once it was moved
