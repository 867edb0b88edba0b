"""The paper's own settings, end to end on small data sets and models of the same format."""

import json
from itertools import islice

import numpy as np
import pandas as pd
import pytest
import tokenizers
import torch
from click.testing import CliRunner
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPTNeoConfig,
    GPTNeoForCausalLM,
    PreTrainedTokenizerFast,
)

from experiments import __main__ as commands
from experiments.data import files
from experiments.methods.base import Run, outputs
from experiments.studies import fidelity, figure_one, finetuning, noisy_labels, pretraining, published
from experiments.studies import piled as piled_module
from tests.experiments.test_files import old_pickle

WORDS = ["good", "fine", "bad", "dull", "film", "plot", "actor", "scene", "blue", "glad"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "FOLDER", tmp_path)
    return tmp_path


@pytest.fixture
def photographs(folder, monkeypatch):
    """Sixty training images whose shade says their class, a third of them called something else."""
    random = np.random.default_rng(0)
    place = folder / "cifar-10-batches-py"
    place.mkdir()
    right = random.integers(0, 10, 72)
    planes = (25 * right[:, None] + random.integers(0, 10, (72, 3072))).astype(np.uint8)
    for k, name in enumerate([*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]):
        part = slice(12 * k, 12 * k + 12)
        held = {b"data": planes[part], b"labels": [int(label) for label in right[part]]}
        (place / name).write_bytes(old_pickle(held))
    given = np.where(np.arange(60) % 3 == 0, (right[:60] + 1) % 10, right[:60])
    torch.save({"clean_label": right[:60], "worse_label": given}, folder / "CIFAR-10_human.pt")
    changed = {"batch": 10, "epochs": 1, "validation": 20, "part": 16, "width": 4}
    monkeypatch.setitem(published.SETTINGS, "images", published.SETTINGS["images"] | changed)
    return right, given


def tokenizer(place, **special):
    """Write a tokenizer that knows words, in the format of a model's folder."""
    known = {word: number for number, word in enumerate([*special.values(), "unknown", *WORDS])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(known, unk_token="unknown"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=made, **special).save_pretrained(place)


def sentences(count, seed):
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, count)
    ends = [random.choice(WORDS[4:], 2) for _ in range(count)]
    return [f"{WORDS[2 * (1 - y)]} {a} {b}" for y, (a, b) in zip(labels, ends, strict=True)], labels


@pytest.fixture
def bert(folder, monkeypatch):
    """Write a BERT of one layer, and Emotion as parquet."""
    place = folder / "bert-base-uncased"
    tokenizer(place, pad_token="[PAD]")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    BertForMaskedLM(BertConfig(vocab_size=20, max_position_embeddings=8, **sizes)).save_pretrained(place)
    (folder / "emotion").mkdir()
    for seed, (split, count) in enumerate({"train": 24, "validation": 12, "test": 12}.items()):
        written, labels = sentences(count, seed)
        table = pd.DataFrame({"text": written, "label": labels})
        table.to_parquet(folder / "emotion" / f"{split}-00000-of-00001.parquet")
    changed = {"batch": 8, "epochs": 1, "length": 5, "part": 10, "validation": 6}
    monkeypatch.setitem(published.SETTINGS, "texts", published.SETTINGS["texts"] | changed)


def small_neo(place):
    tokenizer(place, eos_token="<|endoftext|>")
    layers = {"num_layers": 2, "attention_types": [[["global", "local"], 1]], "window_size": 4}
    sizes = {"vocab_size": 20, "hidden_size": 8, "num_heads": 2, "max_position_embeddings": 8}
    GPTNeoForCausalLM(GPTNeoConfig(**layers, **sizes)).save_pretrained(place)


@pytest.fixture
def piled(folder, monkeypatch):
    """Write the same GPT-Neo, and a Pile of short texts."""
    small_neo(folder / "gpt-neo-125m")
    for seed, path in enumerate(("train/00.jsonl", "val.jsonl")):
        place = folder / "pile" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("".join(json.dumps({"text": text}) + "\n" for text in sentences(1000, seed)[0]))
    changed = {"steps": 20, "checkpoints": 2, "batch": 4, "length": 6, "warmup": 2, "tested": 6}
    changed |= {"learning_rate": 0.01, "max_norm": 1e3}  # steps that show in single precision
    monkeypatch.setitem(published.SETTINGS, "pile", published.SETTINGS["pile"] | changed)


@pytest.fixture
def neo(folder, monkeypatch):
    """Write a GPT-Neo of two layers, and RTE."""
    place = folder / "gpt-neo-125m"
    small_neo(place)
    (folder / "GLUE" / "RTE").mkdir(parents=True)
    for seed, (split, count) in enumerate({"train": 24, "dev": 17}.items()):
        written, labels = sentences(count, seed)
        rows = [
            f"{k}\t{text}\tfilm\t{'not_' * int(y)}entailment"
            for k, (text, y) in enumerate(zip(written, labels, strict=True))
        ]
        text = "\n".join(["index\tsentence1\tsentence2\tlabel", *rows]) + "\n"
        (folder / "GLUE" / "RTE" / f"{split}.tsv").write_text(text, encoding="utf-8")
    changed = {"batch": 8, "epochs": 5, "length": 5, "part": 10}
    monkeypatch.setitem(published.SETTINGS, "glue", published.SETTINGS["glue"] | changed)


def test_images_are_validated_by_right_labels_and_trained_by_peoples(photographs):
    right, _ = photographs
    task = published.task("CIFAR-10N-w")(0)
    assert [len(part[1]) for part in (task.training, task.validation, task.test)] == [40, 20, 12]
    shade = ((task.training[0][:, 0, 0, 0] * published.SPREAD[0] + published.MEAN[0]) * 255 // 25).long()
    assert torch.equal(shade == task.training[1], task.wrong == 0)
    held = ((task.validation[0][:, 0, 0, 0] * published.SPREAD[0] + published.MEAN[0]) * 255 // 25).long()
    assert torch.equal(held, task.validation[1])
    assert torch.equal(task.test[1], torch.from_numpy(right[60:]))
    assert 0 < float(task.wrong.sum()) < 20
    group = task.optimizer(task.network(0), task.learning_rate).param_groups[0]
    assert (group["lr"], group["momentum"], group["weight_decay"], task.share) == (0.01, 0.9, 5e-4, 0.1)


def test_texts_are_tokens_whose_padding_no_layer_sees(bert):
    task = published.task("Emotion-N")(0)
    assert float(task.wrong.mean()) == pytest.approx(0.4, abs=0.02)
    assert task.share == 0.5
    ids = task.training[0]
    assert ids.shape == (24, 5)
    assert task.valid(ids).sum(1).tolist() == [3] * 24
    model = task.network(0)
    longer = torch.nn.functional.pad(ids, (0, 3))
    torch.testing.assert_close(outputs(model, longer, 8), outputs(model, ids, 24), rtol=1e-5, atol=1e-6)
    assert outputs(model, ids, 24).shape == (24, 6)


def test_half_of_dev_is_validated_on_and_half_tested_on(neo):
    task, other = published.task("RTE")(0), published.task("RTE")(1)
    assert [len(part[1]) for part in (task.training, task.validation, task.test)] == [24, 9, 8]
    assert not task.wrong.any()
    assert not torch.equal(task.test[0], other.test[0])
    group = task.optimizer(task.network(0), task.learning_rate).param_groups[0]
    assert (group["lr"], group["weight_decay"]) == (2e-5, 0.01)
    assert isinstance(Run(task, 0).optimizer, torch.optim.AdamW)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("study", "setting", "data"),
    [
        (noisy_labels, "CIFAR-10N-w", "photographs"),
        (noisy_labels, "Emotion-N", "bert"),
        (finetuning, "RTE", "neo"),
    ],
)
def test_a_published_setting_runs_by_its_command(study, setting, data, request, tmp_path):
    request.getfixturevalue(data)
    out = tmp_path / "out"
    options = ["--paper", "--setting", setting, "--seeds", "1", "--out", str(out)]
    result = CliRunner().invoke(commands.studies, [study.STUDY.name, *options])
    assert result.exit_code == 0, result.output
    record = json.loads((out / f"{study.STUDY.name}.json").read_text())
    assert set(record["methods"]) == {*study.PAPERS, study.STOPPED}
    assert record["claims"]
    assert record["config"]["command"].endswith(f"--paper --seeds 1 --setting {setting}")
    assert str(tmp_path) not in json.dumps(record)


@pytest.mark.slow
@pytest.mark.parametrize("study", [fidelity, pretraining])
def test_the_pile_is_read_by_its_command(study, piled, tmp_path):
    options = ["--paper", "--seeds", "2", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(commands.studies, [study.STUDY.name, *options])
    assert result.exit_code == 0, result.output
    record = json.loads((tmp_path / "out" / f"{study.STUDY.name}.json").read_text())
    assert record["claims"]
    methods = record["methods"]
    if study is pretraining:
        assert methods["plain"]["kept"]["values"] == [1.0, 1.0]
        assert methods["random, 70%"]["kept"]["values"] == [0.75, 0.75]  # three of four
        one, other = methods["plain"]["test loss"]["values"]
        assert 0.5 < one < 4.0
        assert one != other
    else:
        assert methods["Shapley values"][figure_one.TRUE]["values"] == pytest.approx([1.0, 1.0])
        assert methods["midpoint of the optimizer"][figure_one.TRUE]["mean"] > 0.99


def test_the_rate_rises_and_falls_and_no_two_seeds_read_the_same(piled):
    one, other = (piled_module.reading(seed, drawn=True) for seed in (0, 1))
    rates = []
    for _ in range(4):
        rates.append(one.schedule.get_last_lr()[0] / 0.01)
        one.step(next(one.batches))
    np.testing.assert_allclose(rates, [0.5, 1.0, 1.0, (1 + np.cos(np.pi / 18)) / 2])
    rows = [next(each.batches)[0] for each in (piled_module.reading(0, drawn=True), other)]
    dealt = [row.tolist() for row in islice(piled_module.windows("train"), 20)]
    assert [row[:-1] for row in dealt[0::5]] == rows[0].tolist()
    assert [row[:-1] for row in dealt[1::5]] == rows[1].tolist()


def test_data_that_is_missing_ends_the_command_with_where_it_is_to_be_had(folder, tmp_path):
    options = ["noisy-labels", "--paper", "--setting", "CIFAR-100N", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(commands.studies, options)
    assert result.exit_code == 1
    assert "cifar-100-python/train: expected it at" in result.output
    assert "it comes with CIFAR-100's Python version" in result.output


def test_a_study_without_settings_of_the_papers_and_a_setting_that_is_none_are_named(tmp_path):
    for options, message in (
        (["cost", "--paper"], "size: cost has quick, full, got 'paper'"),
        (["noisy-labels", "--paper", "--setting", "MNIST"], "got ['MNIST']"),
    ):
        result = CliRunner().invoke(commands.studies, [*options, "--out", str(tmp_path)])
        assert result.exit_code == 2
        assert message in " ".join(result.output.split())
