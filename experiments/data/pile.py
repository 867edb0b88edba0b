"""The Pile: lines of JSON with a `text` each, compressed or not, read as they come."""

import io
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow

from experiments.data.files import find


def documents(split: str, folder: Path | None = None) -> Iterator[str]:
    """Yield the texts of `train` (its files in their order) or `val`; a file is never whole in memory."""
    place = find("pile", folder)
    files = sorted(
        each for each in place.rglob("*.jsonl*") if split in (each.parent.name, each.name.split(".")[0])
    )
    if not files:
        find(f"pile/{split}.jsonl.zst", folder)
    for path in files:
        with pyarrow.input_stream(str(path)) as stream:  # by the ending: zst, gz or none
            for line in io.TextIOWrapper(io.BufferedReader(stream), encoding="utf-8"):
                yield json.loads(line)["text"]


def windows(texts: Iterable[str], tokenizer: Any, length: int) -> Iterator[np.ndarray]:
    """Yield `(length,)` consecutive tokens: texts one after the other, the end of a text between them."""
    held: list[int] = []
    for text in texts:
        held += [*tokenizer(text)["input_ids"], tokenizer.eos_token_id]
        while len(held) >= length:
            yield np.array(held[:length], np.int64)
            held = held[length:]
