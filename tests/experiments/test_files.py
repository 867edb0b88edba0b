"""Data sets that their makers distribute as files, read from small ones written in the same format."""

import gzip
import io
import json
import pickle
import struct
from typing import ClassVar

import numpy as np
import pandas as pd
import pyarrow
import pytest
import torch

from experiments.data import cifar, files, pile, texts


class Python2(pickle._Pickler):
    """Writes as Python 2 did, which made CIFAR's: text and bytes are one; numpy's core has its old name."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)

    def save_old(self, value):
        raw = value.encode("latin-1") if isinstance(value, str) else value
        self.write(pickle.BINSTRING + struct.pack("<i", len(raw)) + raw)
        self.memoize(value)

    dispatch[bytes] = dispatch[str] = save_old


def old_pickle(value):
    file = io.BytesIO()
    Python2(file, protocol=2).dump(value)
    return file.getvalue().replace(b"numpy._core.multiarray", b"numpy.core.multiarray")


@pytest.fixture
def pictures(tmp_path):
    random = np.random.default_rng(0)
    drawn = random.integers(0, 256, (12, 3072), dtype=np.uint8)
    place = tmp_path / "cifar-10-batches-py"
    place.mkdir()
    for k, name in enumerate([*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]):
        part = slice(2 * k, 2 * k + 2)
        held = {b"data": drawn[part], b"labels": [k, 9 - k], b"filenames": [b"a.png", b"b.png"]}
        (place / name).write_bytes(old_pickle(held))
    place = tmp_path / "cifar-100-python"
    place.mkdir()
    for name in ("train", "test"):
        held = {b"data": drawn[:4], b"fine_labels": [99, 0, 5, 7], b"coarse_labels": [1, 2, 3, 4]}
        (place / name).write_bytes(old_pickle(held))
    clean = np.array([0, 9, 1, 8, 2, 7, 3, 6, 4, 5])
    labels = {"clean_label": clean, "aggre_label": clean, "worse_label": (clean + 1) % 10}
    torch.save(labels, tmp_path / "CIFAR-10_human.pt")
    return tmp_path, drawn


def test_images_are_in_the_order_of_their_batches_and_planes_in_that_of_their_colours(pictures):
    folder, drawn = pictures
    found, labels = cifar.images(10, test=False, folder=folder)
    assert found.shape == (10, 3, 32, 32)
    assert np.array_equal(found[3, 1, 0], drawn[3, 1024:1056])  # green's first row
    assert labels.tolist() == [0, 9, 1, 8, 2, 7, 3, 6, 4, 5]
    assert cifar.images(10, test=True, folder=folder)[1].tolist() == [5, 4]
    assert cifar.images(100, test=False, folder=folder)[1].tolist() == [99, 0, 5, 7]


def test_labels_of_people_are_those_of_the_same_images(pictures):
    folder, _ = pictures
    _, right = cifar.images(10, test=False, folder=folder)
    found = cifar.human_labels(10, "worse_label", right, folder)
    assert np.array_equal(found, (right + 1) % 10)
    with pytest.raises(ValueError, match=r"kind: expected one of \['aggre_label', .* got 'best'"):
        cifar.human_labels(10, "best", right, folder)
    with pytest.raises(ValueError, match="expected the clean labels of CIFAR-10's images in their order"):
        cifar.human_labels(10, "worse_label", right[::-1], folder)


def test_a_pickle_that_calls_anything_is_refused(pictures):
    folder, _ = pictures
    (folder / "cifar-100-python" / "train").write_bytes(pickle.dumps({b"data": print}))
    with pytest.raises(pickle.UnpicklingError, match=r"expected arrays and lists, got builtins\.print"):
        cifar.images(100, test=False, folder=folder)


@pytest.mark.parametrize(
    ("task", "lines", "expected"),
    [
        ("SST-2", ["sentence\tlabel", '"fine film \t1', "null\t0"], (['"fine film ', "null"], [1, 0])),
        (
            "MRPC",
            ["\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String", '1\t7\t8\tHe said "no.\tNo, he said.'],
            (['He said "no.\nNo, he said.'], [1]),
        ),
        ("QNLI", ["index\tquestion\tsentence\tlabel", "0\tWho?\tHe.\tentailment"], (["Who?\nHe."], [0])),
        ("RTE", ["index\tsentence1\tsentence2\tlabel", "0\tA.\tB.\tnot_entailment"], (["A.\nB."], [1])),
    ],
)
def test_glues_tables_are_read_a_line_a_row(tmp_path, task, lines, expected):
    place = tmp_path / "GLUE" / task
    place.mkdir(parents=True)
    (place / "train.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    found, labels = texts.glue(task, "train", tmp_path)
    assert (found, labels.tolist()) == expected


def test_a_table_of_another_task_and_a_label_of_none_are_named(tmp_path):
    place = tmp_path / "GLUE" / "RTE"
    place.mkdir(parents=True)
    (place / "dev.tsv").write_text("sentence\tlabel\nx\t1\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"expected the columns .* lacks \['sentence1', 'sentence2'\]"):
        texts.glue("RTE", "dev", tmp_path)
    (place / "dev.tsv").write_text("sentence1\tsentence2\tlabel\nx\ty\tmaybe\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"expected labels of .* got \['maybe'\]"):
        texts.glue("RTE", "dev", tmp_path)


def test_a_group_is_a_folder_and_its_place_in_the_alphabet_the_label(tmp_path):
    for group, posts in (
        ("sci.space", {"59904": "caf\xe9"}),
        ("alt.atheism", {"49960": "one", "51060": "two"}),
    ):
        place = tmp_path / "20news-bydate-train" / group
        place.mkdir(parents=True)
        for name, text in posts.items():
            (place / name).write_bytes(text.encode("latin-1"))
    found, labels = texts.newsgroups("train", tmp_path)
    assert (found, labels.tolist()) == (["one", "two", "caf\xe9"], [0, 0, 1])


@pytest.mark.parametrize("ending", ["parquet", "jsonl", "jsonl.gz"])
def test_emotions_are_rows_of_either_format(tmp_path, ending):
    place = tmp_path / "emotion" / "split"
    place.mkdir(parents=True)
    for split in ("train", "test"):
        table = pd.DataFrame({"text": [f"i feel {split}", "i feel blue"], "label": [1, 0]})
        path = place / f"{split}-00000-of-00001.{ending}"
        table.to_parquet(path) if ending == "parquet" else table.to_json(path, orient="records", lines=True)
    found, labels = texts.emotion("train", tmp_path)
    assert (found, labels.tolist()) == (["i feel train", "i feel blue"], [1, 0])


class Letters:
    eos_token_id = 0

    def __call__(self, text):
        return {"input_ids": [ord(letter) for letter in text]}


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz", "jsonl.zst"])
def test_the_pile_is_read_line_by_line_and_cut_into_windows(tmp_path, ending):
    lines = [{"text": text, "meta": {"pile_set_name": "Pile-CC"}} for text in ("ab\n\u2028c", "d", "efg")]
    held = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()
    for path in ("train/00", "train/01", "val"):
        place = tmp_path / "pile" / f"{path}.{ending}"
        place.parent.mkdir(parents=True, exist_ok=True)
        if ending.endswith("zst"):
            with pyarrow.CompressedOutputStream(str(place), "zstd") as stream:
                stream.write(held)
        else:
            place.write_bytes(gzip.compress(held) if ending.endswith("gz") else held)
    assert list(pile.documents("val", tmp_path)) == ["ab\n\u2028c", "d", "efg"]
    assert len(list(pile.documents("train", tmp_path))) == 6
    found = [window.tolist() for window in pile.windows(["ab", "c", "de"], Letters(), 3)]
    assert found == [[97, 98, 0], [99, 0, 100]]  # what is left over makes no window


@pytest.mark.parametrize("path", ["CIFAR-10_human.pt", "GLUE/RTE/dev.tsv", "pile", "20news-bydate-test"])
def test_what_is_missing_is_named_and_where_it_is_to_be_had(tmp_path, path):
    with pytest.raises(
        FileNotFoundError, match=r"expected it at .*; it comes with .*(cifar-10|glue|pile|qwone)"
    ):
        files.find(path, tmp_path)


@pytest.mark.parametrize(("read", "name"), [(texts.emotion, "emotion"), (pile.documents, "pile")])
def test_a_split_that_is_missing_is_named(tmp_path, read, name):
    (tmp_path / name).mkdir()
    with pytest.raises(FileNotFoundError, match=rf"{name}/test.*: expected it at"):
        list(read("test", tmp_path))
