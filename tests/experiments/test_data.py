"""Data as the studies read it: files in the formats of their makers, digits with wrong labels, prose."""

import gzip
import json
import pickle

import numpy as np
import pyarrow
import pytest
import torch
from sklearn.datasets import load_digits

from experiments.data import annotators, prose
from experiments.data import published as data
from experiments.methods.base import outputs
from experiments.networks import GPT
from experiments.studies import pretraining, published, tasks
from tests.experiments import small_data


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(data, "FOLDER", tmp_path)
    for kind, changed in small_data.CUT.items():
        monkeypatch.setitem(published.SETTINGS, kind, published.SETTINGS[kind] | changed)
    return tmp_path


def written(path, *lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_photographs_are_in_their_order_and_trained_on_with_the_labels_of_people(folder):
    planes, right = small_data.photographs(folder)
    found, labels = data.images(10, test=False, folder=folder)
    assert np.array_equal(found.reshape(60, -1), planes[:60])  # red's plane, row by row, green's, blue's
    assert np.array_equal(labels, right[:60])
    assert np.array_equal(data.images(10, test=True, folder=folder)[1], right[60:])
    assert data.images(100, test=False, folder=folder)[1].tolist() == [99, 0, 5, 7]
    task = published.task("CIFAR-10N-w")(0)
    shade, held = (
        ((part[0][:, 0, 0, 0] * published.SPREAD[0] + published.MEAN[0]) * 255 // 25).long()
        for part in (task.training, task.validation)
    )
    assert torch.equal(shade == task.training[1], task.wrong == 0)
    assert (len(shade), len(task.test[1])) == (40, 12)
    assert 0 < float(task.wrong.sum()) < 20
    assert torch.equal(held, task.validation[1])
    group = task.optimizer(task.network(0), task.learning_rate).param_groups[0]
    assert (group["lr"], group["momentum"], group["weight_decay"], task.share) == (0.01, 0.9, 5e-4, 0.1)
    with pytest.raises(ValueError, match=r"kind: expected one of \['clean_label', .* got 'best'"):
        data.human_labels(10, "best", right[:60], folder)
    with pytest.raises(ValueError, match="expected the clean labels of CIFAR-10's images in their order"):
        data.human_labels(10, "worse_label", right[59::-1], folder)
    (folder / "cifar-100-python" / "train").write_bytes(pickle.dumps({b"data": print}))
    with pytest.raises(pickle.UnpicklingError, match=r"expected arrays and lists, got builtins\.print"):
        data.images(100, test=False, folder=folder)


def test_texts_are_tokens_whose_padding_no_layer_sees(folder):
    small_data.emotions(folder)
    task = published.task("Emotion-N")(0)
    assert float(task.wrong.mean()) == pytest.approx(0.4, abs=0.02)
    ids = task.training[0]
    assert (ids.shape, task.share) == ((24, 5), 0.5)
    assert task.valid(ids).sum(1).tolist() == [3] * 24
    model = task.network(0)
    longer = torch.nn.functional.pad(ids, (0, 3))
    torch.testing.assert_close(outputs(model, longer, 8), outputs(model, ids, 24), rtol=1e-5, atol=1e-6)


def test_half_of_dev_is_validated_on_and_half_tested_on(folder):
    small_data.entailments(folder)
    task, other = published.task("RTE")(0), published.task("RTE")(1)
    assert [len(part[1]) for part in (task.training, task.validation, task.test)] == [24, 9, 8]
    assert not task.wrong.any()
    assert not torch.equal(task.test[0], other.test[0])
    optimizer = task.optimizer(task.network(0), task.learning_rate)
    assert isinstance(optimizer, torch.optim.AdamW)
    assert [optimizer.param_groups[0][key] for key in ("lr", "weight_decay")] == [2e-5, 0.01]


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
        ("RTE", ["sentence\tlabel", "x\t1"], r"expected the columns .* lacks \['sentence1', 'sentence2'\]"),
        ("RTE", ["sentence1\tsentence2\tlabel", "x\ty\tmaybe"], r"expected labels of .* got \['maybe'\]"),
    ],
)
def test_glues_tables_are_read_a_line_a_row_or_what_is_wrong_is_named(tmp_path, task, lines, expected):
    written(tmp_path / "GLUE" / task / "train.tsv", *lines)
    if isinstance(expected, str):
        with pytest.raises(ValueError, match=expected):
            data.glue(task, "train", tmp_path)
    else:
        found, labels = data.glue(task, "train", tmp_path)
        assert (found, labels.tolist()) == expected


def test_a_group_is_a_folder_and_its_place_in_the_alphabet_the_label(tmp_path):
    posts = {"sci.space/59904": "caf\xe9", "alt.atheism/49960": "one", "alt.atheism/51060": "two"}
    for name, text in posts.items():
        path = tmp_path / "20news-bydate-train" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("latin-1"))
    found, labels = data.newsgroups("train", tmp_path)
    assert (found, labels.tolist()) == (["one", "two", "caf\xe9"], [0, 0, 1])


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz"])
def test_emotions_are_rows_of_lines_as_of_tables(tmp_path, ending):
    found = []
    for each in ("parquet", ending):
        (tmp_path / each).mkdir()
        small_data.emotions(tmp_path / each, each)
        found.append([(held, labels.tolist()) for held, labels in [data.emotion("train", tmp_path / each)]])
    assert found[0] == found[1]
    assert len(found[0][0][0]) == 24


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
    assert list(data.documents("val", tmp_path)) == ["ab\n\u2028c", "d", "efg"]
    assert len(list(data.documents("train", tmp_path))) == 6
    found = [window.tolist() for window in data.windows(["ab", "c", "de"], Letters(), 3)]
    assert found == [[97, 98, 0], [99, 0, 100]]  # what is left over makes no window


@pytest.mark.parametrize("path", ["CIFAR-10_human.pt", "GLUE/RTE/dev.tsv", "pile", "20news-bydate-test"])
def test_what_is_missing_is_named_and_where_it_is_to_be_had(tmp_path, path):
    with pytest.raises(
        FileNotFoundError, match=r"expected it at .*; it comes with .*(cifar-10|glue|pile|qwone)"
    ):
        data.find(path, tmp_path)


@pytest.mark.parametrize(("read", "name"), [(data.emotion, "emotion"), (data.documents, "pile")])
def test_a_split_that_is_missing_is_named(tmp_path, read, name):
    (tmp_path / name).mkdir()
    with pytest.raises(FileNotFoundError, match=rf"{name}/test.*: expected it at"):
        list(read("test", tmp_path))


def test_annotators_err_as_their_ratings_say(tmp_path):
    means = b"1\t2.0\tgood\n2\t-1.5\tbad\n3\t0.2\tneither\n4\t3.0\tunrated\n"
    raw = b"1\tx\ty\t[3, 3, 0]\n2\tx\ty\t[-2, -2, 1]\n3\tx\ty\t[1, 0, 0]\n"
    inner = small_data.packed(**{"d/few_GroundTruth.txt": means, "d/few_anonDataRatings.txt": raw})
    path = tmp_path / "few.tar.gz"
    path.write_bytes(small_data.packed(**{"vader/additional_resources/hutto_ICWSM_2014.tar.gz": inner}))
    rated = annotators.rated("few", path)
    assert rated == [("good", 2.0, [3, 3, 0]), ("bad", -1.5, [-2, -2, 1])]  # a clear mean, and every rating
    random = np.random.default_rng(0)
    # one of three ratings of `good` is a coin, one of `bad` is wrong
    drawn = [[annotators.given_label(one, random) for _ in range(1000)] for one in rated]
    assert np.mean(drawn, axis=1) == pytest.approx([0.5, 1.0], abs=0.05)


def test_an_archive_that_is_missing_or_another_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="`make data` fetches it"):
        annotators.archive(tmp_path)
    (tmp_path / annotators.FILE).write_bytes(b"something else")
    with pytest.raises(ValueError, match="is not the archive whose hash is pinned"):
        annotators.archive(tmp_path)


OPTIONS = {"noise": "symmetric", "share": 0.4, "held": 300, "epochs": 1}


def test_digits_share_no_image_and_only_training_labels_are_wrong():
    images, labels = load_digits(return_X_y=True)
    places = {(image / 16).astype(np.float32).tobytes(): place for place, image in enumerate(images)}
    task, again, other = (tasks.digits(seed, **OPTIONS) for seed in (0, 0, 1))
    parts = (task.training, task.validation, task.test)
    rows = [[places[image.numpy().tobytes()] for image in part[0]] for part in parts]
    assert sorted(place for of in rows for place in of) == list(range(1797))
    assert [len(of) for of in rows] == [1024, 300, 473]
    wrong = [(part[1].numpy() != labels[of]) for part, of in zip(parts, rows, strict=True)]
    assert [int(of.sum()) for of in wrong] == [round(0.4 * 1024), 0, 0]
    assert np.array_equal(wrong[0], task.wrong.numpy() > 0)
    assert torch.equal(task.training[1], again.training[1])
    assert not torch.equal(task.test[0], other.test[0])
    for share in (-0.1, 1.1):
        with pytest.raises(ValueError, match="flip: expected a share in"):
            tasks.noisy_digits(0, flip=share)


def test_labels_are_wrong_as_the_noise_says():
    right = tasks.digits(0, **OPTIONS | {"share": 0.0})
    truth, classes = right.training[1].numpy(), range(10)
    taken = {}
    for noise in ("symmetric", "asymmetric", "instance"):
        given = tasks.digits(0, **OPTIONS | {"noise": noise}, held_wrong=0.4)
        assert (right.validation[1] != given.validation[1]).float().mean() == pytest.approx(0.4)
        labels, wrong = given.training[1].numpy(), given.training[1].numpy() != truth
        assert wrong.mean() == pytest.approx(0.4, abs=0.05)
        taken[noise] = max((labels[(truth == k) & wrong] == c).mean() for k in classes for c in classes)
        if noise == "asymmetric":
            assert np.array_equal(labels[wrong], tasks.CONFUSED[truth[wrong]])
    assert taken["symmetric"] < 0.4 < taken["instance"] < taken["asymmetric"] == 1.0
    images = np.eye(3, dtype=np.float32)[[0, 1] * 500]  # two images of one class invite other mistakes
    drawn = tasks.mistaken(images, np.zeros(1000, int) + 2, 0.5, np.random.default_rng(0))
    assert abs((drawn[::2] == 0).mean() - (drawn[1::2] == 0).mean()) > 0.1


def test_three_tenths_of_the_corpus_are_bad_and_test_text_is_from_elsewhere():
    training, bad, clean, test = pretraining.corpus(0, 0.3, count=300)
    assert bad.mean() == pytest.approx(0.3, abs=0.1)
    assert (len(clean), len(test)) == (32, 300)
    text, letters = prose.prose(), {number: letter for letter, number in prose.alphabet().items()}
    lines = ["".join(letters[int(i)] for i in row) for row in training]
    assert all(line in text for line, wrong in zip(lines, bad, strict=True) if not wrong)
    copies = [line for line in lines if line == pretraining.LICENCE[: pretraining.CONTEXT + 1]]
    assert 0 < len(copies) < bad.sum()
    assert len(prose.digest()) == 64
    assert prose.numbers("a\U0001f600b").tolist() == [prose.alphabet()[c] for c in "a b"]


@pytest.mark.parametrize("causal", [True, False])
def test_a_gpt_reads_from_left_to_right_and_a_bert_both_ways(causal):
    network, ids = GPT(9, 6, causal=causal), torch.arange(6)[None] + 1
    changed = torch.where(ids == 4, 8, ids)
    moved = (network(ids) != network(changed)).any(2)[0]
    assert moved.tolist() == [not causal] * 3 + [True] * 3


def test_pieces_to_fine_tune_on_are_validated_and_tested_on_others():
    options = {"training": 400, "reading": 1, "epochs": 1}
    task = tasks.fine_tuning(0, text="source code", causal=True, share=0.25, **options)
    training, validation, test = (
        {tuple(row) for row in part[0].tolist()} for part in (task.training, task.validation, task.test)
    )
    assert len(test & training) < 0.05 * len(test)  # lines that Python's source repeats
    assert len(validation & training) < 5
    assert float(task.wrong.mean()) == 0.25
    one, other = (dict(task.network(3).named_parameters()) for _ in range(2))
    assert all(torch.equal(one[name], other[name]) and one[name] is not other[name] for name in one)
