"""Texts with labels in the formats of their makers: GLUE's tables, 20 Newsgroups' folders, Emotion's rows."""

import csv
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_files

from experiments.data.files import find

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
    """Return `train` or `dev` of a task; the labels of `test` are not given out.

    Raises
    ------
    ValueError
        If the table lacks a column, or a label is none of the task's.
    """
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
