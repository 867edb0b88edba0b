"""`python -m lai_torch score` on files: scores are those of single samples' gradients by autograd."""

import csv
import json
import runpy
import sys

import numpy as np
import pytest
import torch
import transformers
from click.testing import CliRunner
from lai_torch.integrations._command import main, shortened
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.nn.functional import cross_entropy

WORDS = ["[UNK]", "[EOS]", "the", "cat", "dog", "sat", "ran", "on", "a", "mat", "fast", "zz"]
CLASSES = {"cat": 0, "dog": 1}


def tokenizer():
    table = Tokenizer(models.WordLevel({word: at for at, word in enumerate(WORDS)}, unk_token="[UNK]"))
    table.pre_tokenizer = pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=table, eos_token="[EOS]", unk_token="[UNK]")


def language_model(folder):
    torch.manual_seed(0)
    size = {"n_positions": 16, "n_embd": 8, "n_layer": 1, "n_head": 2, "bos_token_id": 1, "eos_token_id": 1}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=len(WORDS), **size)).eval()
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return model


def classifier(folder):
    torch.manual_seed(0)
    size = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    shape = {"image_size": 8, "patch_size": 4, "label2id": CLASSES, "id2label": {0: "cat", 1: "dog"}}
    model = transformers.ViTForImageClassification(transformers.ViTConfig(**size, **shape)).eval()
    model.save_pretrained(folder)
    transformers.ViTImageProcessor(size={"height": 8, "width": 8}).save_pretrained(folder)
    return model


def run(*arguments):
    return CliRunner().invoke(main, ["score", *map(str, arguments)])


def rows(folder):
    with (folder / "scores.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def by_autograd(model, losses, validation):
    """Score each loss by its gradient along the validation losses' summed gradient."""
    parameters = list(model.parameters())

    def gradient(loss):
        found = torch.autograd.grad(loss, parameters, allow_unused=True)
        pairs = zip(parameters, found, strict=True)
        return torch.cat([torch.zeros(p.numel()) if g is None else g.flatten() for p, g in pairs])

    held = gradient(sum(validation))
    return [float(gradient(loss) @ held) for loss in losses]


def check(folder, expected):
    found = rows(folder)
    scores = [float(row["score"]) for row in found]
    assert scores == sorted(scores)
    assert {row["id"]: float(row["score"]) for row in found} == pytest.approx(expected, rel=2e-4, abs=1e-4)
    assert (folder / "scores.html").exists()


def test_texts_are_scored_line_by_line_whatever_their_length(tmp_path):
    model = language_model(tmp_path / "model")
    texts = ["the cat sat on a mat", "zz zz", "", "a dog ran fast", "the dog sat zz on the mat"]
    good = ["the cat ran", "a dog sat on a mat"]
    (tmp_path / "data.txt").write_text("\n".join(texts))
    (tmp_path / "good.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in good))
    done = run(
        *("--model", tmp_path / "model", "--data", tmp_path / "data.txt", "--estimator", "ghost"),
        *("--validation", tmp_path / "good.jsonl", "--output", tmp_path / "out", "--device", "cpu"),
    )
    assert done.exit_code == 0, done.output

    def loss(text):
        ids = torch.tensor([[WORDS.index(word) for word in text.split()]])
        return cross_entropy(model(ids).logits[0, :-1], ids[0, 1:])

    losses = [loss(text) for text in texts if text]
    scores = by_autograd(model, losses, [loss(text) for text in good])
    check(tmp_path / "out", {str(at + 1): score for at, score in enumerate(scores)})
    assert {row["sample"] for row in rows(tmp_path / "out")} == {text for text in texts if text}
    assert "4 samples" in done.output


def test_images_are_called_by_their_paths_and_classed_by_their_folders(tmp_path):
    model = classifier(tmp_path / "model")
    draw = np.random.default_rng(0)
    for side, count in (("data", 2), ("good", 1)):
        for name in CLASSES:
            (tmp_path / side / name).mkdir(parents=True)
            for at in range(count):
                pixels = draw.integers(0, 256, (8, 8, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / side / name / f"{at}.png")
    done = run(
        *("--model", tmp_path / "model", "--data", tmp_path / "data", "--estimator", "exact"),
        *("--validation", tmp_path / "good", "--output", tmp_path / "out", "--device", "cpu"),
    )
    assert done.exit_code == 0, done.output

    def loss(path):
        pixels = torch.tensor(np.asarray(Image.open(path)) / 255.0, dtype=torch.float32).permute(2, 0, 1)
        return cross_entropy(
            model((pixels[None] - 0.5) / 0.5).logits, torch.tensor([CLASSES[path.parent.name]])
        )

    paths = sorted((tmp_path / "data").glob("*/*.png"))
    held = [loss(path) for path in (tmp_path / "good").glob("*/*.png")]
    scores = by_autograd(model, [loss(path) for path in paths], held)
    names = [path.relative_to(tmp_path / "data").as_posix() for path in paths]
    check(tmp_path / "out", dict(zip(names, scores, strict=True)))


def test_a_language_model_is_scored_by_a_sketch_of_its_tokens_unless_told_otherwise(tmp_path):
    language_model(tmp_path / "model")
    (tmp_path / "data.txt").write_text("the cat sat\nzz zz zz\n")
    same = ("--model", tmp_path / "model", "--data", tmp_path / "data.txt", "--output", tmp_path / "out")
    done = run(*same, "--validation", tmp_path / "data.txt", "--worst", 1, "--device", "cpu")
    assert done.exit_code == 0, done.output
    assert len(done.stdout.splitlines()) == 3
    assert "sketch" in (tmp_path / "out" / "parts" / "run.json").read_text()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("data.xls", "a", "expected a folder of images or a file of texts, one of .txt, .csv"),
        ("data.txt", "\n", "expected texts in"),
        ("data.csv", "words\na b\n", "expected a column 'text', got ['words']"),
    ],
)
def test_files_that_hold_no_texts_are_named(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    done = run("--model", "none", "--data", tmp_path / name, "--validation", tmp_path / name)
    assert done.exit_code == 1
    assert message in done.output


def test_a_class_that_the_model_does_not_have_is_named(tmp_path):
    classifier(tmp_path / "model")
    (tmp_path / "data" / "horse").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(tmp_path / "data" / "horse" / "1.png")
    both = ("--data", tmp_path / "data", "--validation", tmp_path / "data")
    done = run("--model", tmp_path / "model", *both, "--output", tmp_path / "out", "--device", "cpu")
    assert done.exit_code == 1
    expected = "label: expected one of the model's classes, ['cat', 'dog'], or its number, got ['horse']"
    assert expected in done.output


def test_the_package_runs_as_a_command(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["lai_torch", "--help"])
    monkeypatch.delitem(sys.modules, "lai_torch.__main__", raising=False)  # another test may have imported it
    with pytest.raises(SystemExit) as stopped:
        runpy.run_module("lai_torch", run_name="__main__")
    assert stopped.value.code == 0
    assert "score" in capsys.readouterr().out


def test_a_long_text_is_shortened_on_one_line():
    assert shortened("a\nb " + "c" * 80) == "a b " + "c" * 53 + "..."
