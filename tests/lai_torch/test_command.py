"""`python -m lai_torch score` on files: scores are those of single samples' gradients by autograd."""

import base64
import csv
import io
import json
import re
import runpy
import sys

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
import transformers
from click.testing import CliRunner
from lai_torch.integrations._command import class_numbers, main, read_samples
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.nn.functional import cross_entropy

WORDS = ["[UNK]", "[EOS]", "the", "cat", "dog", "sat", "ran", "on", "a", "mat", "fast", "zz"]
CLASSES = {"cat": 0, "dog": 1}


SIZES = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}


def tokenizer(**options):
    table = Tokenizer(models.WordLevel({word: at for at, word in enumerate(WORDS)}, unk_token="[UNK]"))
    table.pre_tokenizer = pre_tokenizers.Whitespace()
    options = {"eos_token": "[EOS]", "unk_token": "[UNK]"} | options
    return transformers.PreTrainedTokenizerFast(tokenizer_object=table, **options)


def language_model(folder, auto=transformers.AutoModelForCausalLM, **options):
    torch.manual_seed(0)
    sizes = {"vocab_size": len(WORDS), "n_positions": 16, "n_embd": 8, "n_layer": 1, "n_head": 2}
    config = transformers.GPT2Config(**sizes, bos_token_id=1, eos_token_id=1)
    config.label2id, config.id2label = CLASSES, {0: "cat", 1: "dog"}
    model = auto.from_config(config).eval()
    model.save_pretrained(folder)
    tokenizer(**options).save_pretrained(folder)
    return model


def classifier(folder):
    torch.manual_seed(0)
    shape = {"image_size": 8, "patch_size": 4, "label2id": CLASSES, "id2label": {0: "cat", 1: "dog"}}
    model = transformers.ViTForImageClassification(transformers.ViTConfig(**SIZES, **shape)).eval()
    model.save_pretrained(folder)
    transformers.ViTImageProcessor(size={"height": 8, "width": 8}).save_pretrained(folder)
    return model


def run(*arguments):
    return CliRunner().invoke(main, ["score", *map(str, arguments)])


def score(folder, *options, data="data", good="good", estimator="ghost"):
    """Run the command in a folder that holds model, data and good samples, and return what it said."""
    sides = "--data", folder / data, "--validation", folder / good, "--output", folder / "out"
    done = run("--model", folder / "model", *sides, "--estimator", estimator, "--device", "cpu", *options)
    assert done.exit_code == 0, done.output
    return done


def token_losses(model, text):
    ids = torch.tensor([[WORDS.index(word) for word in text.split()][:16]])  # what the models take
    return cross_entropy(model(ids).logits[0, :-1], ids[0, 1:])


def rows(folder):
    with (folder / "scores.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def by_autograd(model, losses, validation):
    """Score each loss by its gradient along the validation losses' summed gradient."""
    parameters = list(model.parameters())

    def gradient(loss):
        found = torch.autograd.grad(loss, parameters, retain_graph=True, materialize_grads=True)
        return torch.cat([one.flatten() for one in found])

    held = gradient(sum(validation))
    return [float(gradient(loss) @ held) for loss in losses]


def check(folder, expected):
    found = rows(folder)
    scores = [float(row["score"]) for row in found]
    assert scores == sorted(scores)
    assert {row["id"]: float(row["score"]) for row in found} == pytest.approx(expected, rel=2e-4, abs=1e-4)
    assert (folder / "scores.html").exists()


@pytest.mark.parametrize(
    ("size", "options"),
    [
        (4, {}),
        (4, {"padding_side": "left", "pad_token": "zz"}),
        (1, {"padding_side": "right"}),
        (4, {"eos_token": None}),
    ],
    ids=["default", "left", "right", "no token to pad with"],
)
def test_texts_are_scored_by_line(tmp_path, size, options):
    model = language_model(tmp_path / "model", **options)
    texts = ["the cat sat on a mat", "zz zz zz", "", "a dog ran fast", " ".join(["the cat ran"] * 9)]
    good = ["the cat ran", "a dog sat on a mat"]
    (tmp_path / "data.txt").write_text("\n".join(texts))
    (tmp_path / "good.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in good))
    done = score(tmp_path, "--batch-size", size, data="data.txt", good="good.jsonl")
    losses = [token_losses(model, text) for text in texts if text]
    scores = by_autograd(model, losses, [token_losses(model, text) for text in good])
    check(tmp_path / "out", {str(at): score for at, score in enumerate(scores)})
    assert {row["sample"] for row in rows(tmp_path / "out")} == {text for text in texts if text}
    assert "4 samples" in done.output
    assert "is empty" not in done.output
    page = (tmp_path / "out" / "scores.html").read_text()
    assert all(page.count(f">{text}</td>") == 2 for text in texts if text)


def test_texts_of_classes(tmp_path):
    model = language_model(tmp_path / "model", auto=transformers.AutoModelForSequenceClassification)
    texts = {"the cat sat": "cat", "a mat on a cat": "cat", "the dog ran": "dog"}
    content = "".join(f"{text},{label}\n" for text, label in texts.items())
    (tmp_path / "data.csv").write_text(f"text,label\n{content}")
    score(tmp_path, data="data.csv", good="data.csv")
    losses = []
    for text, label in texts.items():
        ids = torch.tensor([[WORDS.index(word) for word in text.split()]])
        losses.append(cross_entropy(model(ids).logits, torch.tensor([CLASSES[label]])))
    scores = by_autograd(model, losses, losses)
    check(tmp_path / "out", {str(at): score for at, score in enumerate(scores)})


def parquet(columns):
    written = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), written)
    return written.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "texts"),
    [
        (
            "data.txt",
            "\ufeffthe cat\r\na\u2028dog\x0cran\n\n \rmat".encode(),
            ["the cat", "a\u2028dog\x0cran", " \rmat"],
        ),
        ("data.csv", '\ufefftext,label\n"a ""b"",\r\nc",01\n2024,1\n'.encode(), ['a "b",\r\nc', "2024"]),
        ("data.jsonl", b'{"text": "a\\nb"}\r\n\r\n{"text": "\\u2028c"}', ["a\nb", "\u2028c"]),
        ("data.csv", b"text\n" + b"a" * 200_000, ["a" * 200_000]),
        ("data.parquet", parquet({"text": ["a", "b"], "label": [1, 0]}), ["a", "b"]),
    ],
)
def test_lines_and_texts(tmp_path, name, content, texts):
    (tmp_path / name).write_bytes(content)
    found = read_samples(tmp_path / name)
    assert (list(found.contents), list(found.ids)) == (texts, list(range(len(texts))))


def test_classes_are_names_or_numbers(tmp_path):
    (tmp_path / "data.csv").write_text("text,label\na,01\nb,1\nc,dog\n")
    labels = read_samples(tmp_path / "data.csv").labels
    assert labels == ["01", "1", "dog"]
    assert class_numbers([*labels[1:], 1], CLASSES).tolist() == [1, 1, 1]
    assert class_numbers(["1", "0"], {"1": 0, "0": 1}).tolist() == [0, 1]  # names come first
    for wrong in ("01", 1.0, True, None):
        with pytest.raises(ValueError, match=r"label: expected one of the model's classes, .* got "):
            class_numbers([wrong], CLASSES)


def test_images_in_folders(tmp_path):
    model = classifier(tmp_path / "model")
    draw = np.random.default_rng(0)
    for side, count in (("data", 2), ("good", 1)):
        for name in CLASSES:
            (tmp_path / side / name).mkdir(parents=True)
            for at in range(count):
                pixels = draw.integers(0, 256, (8, 8, 3), dtype=np.uint8)
                place = tmp_path / side / name / (at * "deep") / f"{at}.png"
                place.parent.mkdir(exist_ok=True)
                Image.fromarray(pixels).save(place)
    (tmp_path / "data" / "cat" / ".hidden.jpg").write_bytes(b"no image")
    done = score(tmp_path, estimator="exact")

    def loss(path):
        pixels = torch.tensor(np.asarray(Image.open(path)) / 255.0, dtype=torch.float32).permute(2, 0, 1)
        return cross_entropy(
            model((pixels[None] - 0.5) / 0.5).logits,
            torch.tensor([CLASSES[path.relative_to(tmp_path).parts[1]]]),
        )

    paths = sorted((tmp_path / "data").rglob("*.png"))
    held = [loss(path) for path in (tmp_path / "good").glob("*/*.png")]
    scores = by_autograd(model, [loss(path) for path in paths], held)
    names = [path.relative_to(tmp_path / "data").as_posix() for path in paths]
    check(tmp_path / "out", dict(zip(names, scores, strict=True)))
    page = (tmp_path / "out" / "scores.html").read_text()
    shown = re.findall(r'src="data:image/png;base64,([^"]*)"', page)
    pixels = {Image.open(path).convert("RGB").tobytes() for path in paths}
    assert {Image.open(io.BytesIO(base64.b64decode(image))).tobytes() for image in shown} == pixels
    for said in (" ".join(page.split()), done.output):
        assert "The column gradient_norm is empty: only ghost, lli, and lai without a" in said


def test_language_models_are_sketched(tmp_path):
    language_model(tmp_path / "model")
    (tmp_path / "data.txt").write_text("the cat sat\nzz zz zz\n")
    done = score(tmp_path, "--worst", 1, data="data.txt", good="data.txt", estimator="lai")
    assert len(done.stdout.splitlines()) == 4
    assert "The column gradient_norm is empty" in done.stdout
    assert "sketch" in (tmp_path / "out" / "parts" / "run.json").read_text()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("data.xls", b"a", "expected a folder of images, or a file of texts, one of .txt, .csv"),
        ("data.txt", b"\n", "expected texts, got none"),
        ("data.txt", b"a\nb\xe9", "expected UTF-8 in data.txt, got byte 0xe9 at 3"),
        ("data.csv", b"words\na b\n", "expected one column 'text', got ['words']"),
        ("data.csv", b"text,text\na,b\n", "expected one column 'text', got ['text', 'text']"),
        ("data.csv", b"text\na\nb, c\n", "expected the columns ['text'] in sample 1, got [' c'] beyond them"),
        ("data.csv", b'text\n"a\nb\n', "unexpected end of data"),
        (
            "data.csv",
            b"text,label\na,1\n,1\n",
            "sample 1, as {'text': ...}, got an empty one",
        ),
        ("data.jsonl", b"1\n", "expected a text in sample 0, as {'text': ...}, got NoneType"),
        (
            "data.jsonl",
            b'{"text": "a"}\n{"word": "b"}\n',
            "sample 1, as {'text': ...}, got NoneType",
        ),
        ("data.jsonl", b'{"text": "a"}\n{"te', "expected JSON in sample 1, got "),
        ("data/b.txt", b" ", "expected images in it, got none; texts are read from a file, one of .txt,"),
    ],
)
def test_unreadable_samples_are_named(tmp_path, name, content, message):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(content)
    data = tmp_path / name.partition("/")[0]
    check_refused(run("--model", "none", "--data", data, "--validation", data), f"--data {data}: ", message)


@pytest.mark.parametrize("folder", ["./none", "/none", "a/b/none"])
def test_missing_models_are_named(tmp_path, folder):
    (tmp_path / "data.txt").write_text("the cat")
    both = ("--data", tmp_path / "data.txt", "--validation", tmp_path / "data.txt")
    check_refused(run("--model", folder, *both), f"--model {folder}: expected a folder that save_")


def check_refused(done, *messages):
    assert done.exit_code == 1
    assert type(done.exception) is SystemExit
    *loading, said = done.stderr.splitlines()
    assert all(not line or line.startswith("Loading weights") for line in loading)
    assert all(message in said for message in messages), said


def test_unknown_classes_are_named(tmp_path):
    classifier(tmp_path / "model")
    (tmp_path / "data" / "horse").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(tmp_path / "data" / "horse" / "1.png")
    both = ("--data", tmp_path / "data", "--validation", tmp_path / "data", "--device", "cpu")
    same = ("--model", tmp_path / "model", *both, "--output", tmp_path / "out")
    expected = "label: expected one of the model's classes, ['cat', 'dog'], or its number, got ['horse']"
    check_refused(run(*same), expected)
    (tmp_path / "data" / "horse").rename(tmp_path / "data" / "dog")
    (tmp_path / "data" / "dog" / "1.png").write_bytes(b"no image")
    check_refused(run(*same), "expected an image in", "1.png, got one that cannot be read")
    (tmp_path / "good.txt").write_text("a")
    check_refused(run(*same, "--validation", tmp_path / "good.txt"), "expected images, as in --data, got the")


@pytest.mark.parametrize(
    ("part", "device", "message"),
    [
        ("", "nonsense", "--device: "),
        ("token", "cpu", "expected a tokenizer beside the model, got none"),
        ("model.safetensors", "cpu", "--model"),
    ],
)
def test_missing_parts_are_named(tmp_path, part, device, message):
    language_model(tmp_path / "model")
    for file in (tmp_path / "model").iterdir():
        if part and part in file.name:
            file.unlink()
    (tmp_path / "data.txt").write_text("the cat\n")
    same = ("--model", tmp_path / "model", "--data", tmp_path / "data.txt", "--output", tmp_path / "out")
    check_refused(run(*same, "--validation", tmp_path / "data.txt", "--device", device), message)


def test_the_package_runs_as_a_command(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["lai_torch", "--help"])
    monkeypatch.delitem(sys.modules, "lai_torch.__main__", raising=False)  # another test may have imported it
    with pytest.raises(SystemExit) as stopped:
        runpy.run_module("lai_torch", run_name="__main__")
    assert stopped.value.code == 0
    assert "score" in capsys.readouterr().out
