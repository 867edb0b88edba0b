"""Data sets that no package holds, as their makers distribute them: CIFAR-N, GLUE and others, the Pile."""

import csv
import io
import json
import pickle
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import torch
from sklearn.datasets import load_files

from experiments.data.annotators import FOLDER

SOURCES = {
    "cifar-10-batches-py": "CIFAR-10's Python version, of cs.toronto.edu/~kriz/cifar.html, unpacked",
    "cifar-100-python": "CIFAR-100's Python version, of cs.toronto.edu/~kriz/cifar.html, unpacked",
    "CIFAR-10_human.pt": "CIFAR-10N's labels, of github.com/UCSC-REAL/cifar-10-100n (not for commerce)",
    "CIFAR-100_human.pt": "CIFAR-100N's labels, of github.com/UCSC-REAL/cifar-10-100n (not for commerce)",
    "20news-bydate-train": "20news-bydate.tar.gz, of qwone.com/~jason/20Newsgroups, unpacked",
    "20news-bydate-test": "20news-bydate.tar.gz, of qwone.com/~jason/20Newsgroups, unpacked",
    "emotion": "dair-ai/emotion of huggingface.co: parquet files, or JSON lines, of every split",
    "GLUE": "gluebenchmark.com/tasks: each task's archive, unpacked beside the others",
    "pile": "monology/pile-uncopyrighted of huggingface.co: its train and val .jsonl.zst",
    "gpt-neo-125m": "the model EleutherAI/gpt-neo-125m of huggingface.co, tokenizer included",
    "bert-base-uncased": "the model google-bert/bert-base-uncased of huggingface.co, tokenizer included",
}
"""By the first part of a path: what it is, and where it is to be had."""


def find(path: str, folder: Path | None = None) -> Path:
    """Return a file or folder of a data set or model; where it is missing, say where it is to be had."""
    whole = (folder or FOLDER) / path
    if not whole.exists():
        msg = f"{path}: expected it at {whole}; it comes with {SOURCES[Path(path).parts[0]]}"
        raise FileNotFoundError(msg)
    return whole


PARTS = {
    10: ("cifar-10-batches-py", [f"data_batch_{k}" for k in range(1, 6)], ["test_batch"], b"labels"),
    100: ("cifar-100-python", ["train"], ["test"], b"fine_labels"),
}
ARRAYS = {
    ("numpy.core.multiarray", "_reconstruct"): np._core.multiarray._reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): np._core.multiarray._reconstruct,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}
"""All that a batch's pickle may call: it holds lists and one array."""


class Arrays(pickle.Unpickler):
    """Reads a pickle of arrays, and refuses one that calls anything else."""

    def find_class(self, module: str, name: str) -> Any:
        """Return what the pickle names, if it is what arrays need."""
        if (module, name) not in ARRAYS:
            msg = f"a CIFAR batch: expected arrays and lists, got {module}.{name}; it is not the release's"
            raise pickle.UnpicklingError(msg)
        return ARRAYS[module, name]


def images(classes: int, *, test: bool, folder: Path | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return images `(n, 3, 32, 32)`, whole numbers to 255, and their right labels, as released."""
    place, training, held, key = PARTS[classes]
    found, labels = [], []
    for name in held if test else training:
        with find(f"{place}/{name}", folder).open("rb") as file:
            batch = Arrays(file, encoding="bytes").load()
        found.append(np.asarray(batch[b"data"], np.uint8).reshape(-1, 3, 32, 32))
        labels.append(np.asarray(batch[key], np.int64))
    return np.concatenate(found), np.concatenate(labels)


def human_labels(classes: int, kind: str, right: np.ndarray, folder: Path | None = None) -> np.ndarray:
    """Return the labels that people gave the training images.

    Of CIFAR-10 `aggre_label` is the majority's, `random_label1` one annotator's, `worse_label` a wrong one if
    any is wrong; CIFAR-100 has a `noisy_label`.
    """
    path = find(f"CIFAR-{classes}_human.pt", folder)
    with torch.serialization.safe_globals([*ARRAYS.values(), np.dtypes.Int64DType, np.dtypes.Int32DType]):
        held = torch.load(path, weights_only=True)
    if kind not in held:
        msg = f"kind: expected one of {sorted(held)}, which {path} holds, got {kind!r}"
        raise ValueError(msg)
    if not np.array_equal(held["clean_label"], right):
        msg = f"{path}: expected the clean labels of CIFAR-{classes}'s images in their order, got others"
        raise ValueError(msg)
    return np.asarray(held[kind], np.int64)


Texts = tuple[list[str], np.ndarray]
"""Texts, two of a pair with a line between them, and their labels."""
GLUE = {
    "SST-2": (("sentence",), "label"),
    "MRPC": (("#1 String", "#2 String"), "Quality"),
    "QNLI": (("question", "sentence"), "label"),
    "RTE": (("sentence1", "sentence2"), "label"),
}
"""The columns of a task that hold its texts, and the one that holds its labels."""
NUMBERS = {"0": 0, "1": 1, "entailment": 0, "not_entailment": 1}


def glue(task: str, split: str, folder: Path | None = None) -> Texts:
    """Return `train` or `dev` of a task; the labels of `test` are not given out."""
    columns, target = GLUE[task]
    path = find(f"GLUE/{task}/{split}.tsv", folder)
    # A quotation mark is a letter like any other, and a row that has too many or too few cells is no row.
    table = pd.read_csv(path, sep="\t", dtype=str, quoting=csv.QUOTE_NONE, keep_default_na=False)
    if missing := {*columns, target} - set(table):
        msg = f"{path}: expected the columns {[*columns, target]}, got {list(table)}; lacks {sorted(missing)}"
        raise ValueError(msg)
    if strange := set(table[target]) - set(NUMBERS):
        msg = f"{path}: expected labels of {sorted(NUMBERS)}, got {sorted(strange)[:3]}"
        raise ValueError(msg)
    texts = table[columns[0]] if len(columns) == 1 else table[columns[0]] + "\n" + table[columns[1]]
    return texts.tolist(), table[target].map(NUMBERS).to_numpy(np.int64)


def newsgroups(split: str, folder: Path | None = None) -> Texts:
    """Return the posts of `train` or `test`, a folder a group; labels in the groups' alphabetical order."""
    found = load_files(str(find(f"20news-bydate-{split}", folder)), encoding="latin-1", shuffle=False)
    return list(found.data), found.target.astype(np.int64)


def emotion(split: str, folder: Path | None = None) -> Texts:
    """Return `train`, `validation` or `test`: rows of `text` and `label`, as parquet or as JSON lines."""
    place = find("emotion", folder)
    files = sorted(each for each in place.rglob(f"{split}*") if each.suffix in (".parquet", ".jsonl", ".gz"))
    if not files:
        find(f"emotion/{split}-00000-of-00001.parquet", folder)
    read = [
        pd.read_parquet(each) if each.suffix == ".parquet" else pd.read_json(each, lines=True)
        for each in files
    ]
    table = pd.concat(read)
    return table["text"].tolist(), table["label"].to_numpy(np.int64)


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
