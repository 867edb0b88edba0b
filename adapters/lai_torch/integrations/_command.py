"""`python -m lai_torch score`: a transformers model scores a data set against good samples.

Needs the extra `command`.
"""

import contextlib
import csv
import inspect
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
import torch
import transformers
from lai_storage.report import empty_columns, write_report
from PIL import Image
from torch.utils.data import DataLoader

from lai_torch.dataset import score_dataset
from lai_torch.integrations._trainer import usual_loss
from lai_torch.integrations.losses import IGNORED, classification_losses, next_token_losses
from lai_torch.options import LAI

IMAGES = {".bmp", ".gif", ".jpeg", ".jpg", ".png", ".webp"}


@dataclass(frozen=True)
class Samples:
    """Texts or paths of images, with their ids and, where they have any, their classes."""

    ids: Sequence[Any]
    contents: Sequence[Any]
    labels: Sequence[Any]  # None where a sample has no class

    @property
    def are_images(self) -> bool:
        return isinstance(self.contents[0], Path)


@contextlib.contextmanager
def name_argument(argument: str) -> Iterator[None]:
    """Raise whatever goes wrong in the block as one line that names the argument."""
    try:
        yield
    except Exception as error:  # readers and loaders raise errors of every library below them
        message = " ".join(str(error).split()) or type(error).__name__
        raise click.ClickException(f"{argument}: {message}") from error


def read_samples(path: Path) -> Samples:
    """Read a file of texts, numbered from 0, or a folder of images, named by path."""
    if path.is_dir():
        files = [file.relative_to(path) for file in sorted(path.rglob("*")) if file.is_file()]
        kinds = [file for file in files if file.suffix.lower() in IMAGES]
        images = [file for file in kinds if not any(part.startswith(".") for part in file.parts)]
        if not images:
            msg = f"expected images in it, got none; texts are read from a file, one of {', '.join(READERS)}"
            raise ValueError(msg)
        # at any depth; the class is the folder's first level
        classes = [file.parts[0] if len(file.parts) > 1 else None for file in images]
        return Samples([file.as_posix() for file in images], [path / file for file in images], classes)
    if path.suffix not in READERS:
        msg = f"expected a folder of images, or a file of texts, one of {', '.join(READERS)}"
        raise ValueError(msg)
    records = READERS[path.suffix](path)
    if not records:
        msg = "expected texts, got none"
        raise ValueError(msg)
    for number, record in enumerate(records):
        text = record.get("text") if isinstance(record, dict) else None
        if not isinstance(text, str) or not text.strip():
            got = "an empty one" if isinstance(text, str) else type(text).__name__
            msg = f"expected a text in sample {number}, as {{'text': ...}}, got {got}; leave that sample out"
            raise ValueError(msg)
    texts, labels = ([record.get(name) for record in records] for name in ("text", "label"))
    return Samples(range(len(texts)), texts, labels)


def _decode(path: Path) -> str:
    """Read a file of UTF-8 without its byte-order mark; line ends stay as they are."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        msg = f"expected UTF-8 in {path.name}, got byte {error.object[error.start]:#x} at {error.start}"
        raise ValueError(msg) from error


def _lines(path: Path) -> list[str]:
    r"""Return the lines that are not blank; they end at \n or \r\n alone, which str.splitlines does not."""
    lines = (line.removesuffix("\r") for line in _decode(path).split("\n"))
    return [line for line in lines if line.strip()]


def _read_record(number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:  # which counts from the start of the line
        msg = f"expected JSON in sample {number}, got {shorten(line)!r}: {error.msg} at {error.pos}"
        raise ValueError(msg) from error


def _read_csv(path: Path) -> list[dict[str, Any]]:
    """Read a table whose texts may hold line ends; classes are text: "01" is not 1."""
    csv.field_size_limit(2**31 - 1)  # else 128 KiB a text
    table = csv.DictReader(io.StringIO(_decode(path), newline=""), strict=True)
    names = [*(table.fieldnames or ())]
    if names.count("text") != 1 or names.count("label") > 1:
        msg = f"expected one column 'text', got {names}"
        raise ValueError(msg)
    records = list(table)
    for number, record in enumerate(records):
        if table.restkey in record:  # a comma in a text without quotes
            msg = f"expected the columns {names} in sample {number}, got {record[table.restkey]} beyond them"
            raise ValueError(msg)
    return records


READERS: dict[str, Callable[[Path], list[Any]]] = {
    ".txt": lambda path: [{"text": line} for line in _lines(path)],
    ".csv": _read_csv,
    ".jsonl": lambda path: [_read_record(number, line) for number, line in enumerate(_lines(path))],
    ".parquet": lambda path: pyarrow.parquet.read_table(path).to_pylist(),
}


@dataclass(frozen=True)
class Problem:
    """A model, its loss, one number a sample, and what makes a batch of pairs (content, class)."""

    model: Any
    loss: Callable[[Any, Any], torch.Tensor]
    collate: Callable[[list[tuple[Any, Any]]], Any]


def load_problem(model: str, *, images: bool, max_length: int) -> Problem:
    """Load a transformers model, a folder or a name on the hub, with its tokenizer or image processor."""
    # of such a path transformers says that it is no name on the hub
    if not Path(model).is_dir() and (model.startswith((".", "~", "/")) or model.count("/") > 1):
        msg = "expected a folder that save_pretrained wrote, or a name on the hub, got neither"
        raise ValueError(msg)
    config = transformers.AutoConfig.from_pretrained(model)
    (architecture, *_) = config.architectures or [""]
    # code that comes with a model is not run
    if not hasattr(transformers, architecture):
        msg = f"expected an architecture of transformers in config.json, got {architecture!r}"
        raise ValueError(msg)
    loaded = getattr(transformers, architecture).from_pretrained(model)
    if images:
        processor = transformers.AutoImageProcessor.from_pretrained(model)
        return Problem(loaded, classification_losses, partial(collate_images, processor, config.label2id))
    loss = usual_loss(loaded)
    classes = config.label2id if loss is classification_losses else None
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    if len(tokenizer) <= len(tokenizer.all_special_ids):  # what transformers makes where there is no file
        msg = "expected a tokenizer beside the model, got none; write it there by tokenizer.save_pretrained"
        raise ValueError(msg)
    _set_padding(loaded.config, tokenizer, needed=classes is not None)
    # keys and values are cached for generation alone
    loaded.config.use_cache = False
    longest = getattr(config, "max_position_embeddings", None) or max_length
    # a longer text would have positions that the model has no embedding of
    limits = max_length, tokenizer.model_max_length, longest
    taken = tuple(inspect.signature(loaded.forward).parameters)
    return Problem(loaded, loss, partial(collate_texts, tokenizer, classes, min(limits), taken))


def _set_padding(config: Any, tokenizer: Any, *, needed: bool) -> None:
    """Pad with the model's own token, on the right, where positions count from a text's first token.

    A decoder that classifies finds a text's end by that token, so that both have to name the same one. A
    language model's padding is masked, and may be any token.
    """
    known = config.pad_token_id is not None and tokenizer.convert_ids_to_tokens(config.pad_token_id)
    found = known or tokenizer.pad_token or tokenizer.eos_token
    if not found and needed:
        msg = "expected a tokenizer with a padding token, for a classifier, got none; set pad_token, save it"
        raise ValueError(msg)
    tokenizer.pad_token = found or tokenizer.convert_ids_to_tokens(0)
    tokenizer.padding_side = "right"
    config.pad_token_id = tokenizer.pad_token_id


def collate_texts(
    tokenizer: Any,
    classes: dict[str, int] | None,
    max_length: int,
    taken: Sequence[str],  # the model's arguments
    pairs: list[tuple[Any, Any]],
) -> Any:
    """Tokenize texts; the targets are the classes, or, of a language model, the tokens themselves."""
    texts, labels = zip(*pairs, strict=True)
    options = {"padding": True, "truncation": True, "max_length": max_length, "return_tensors": "pt"}
    tokens = tokenizer(list(texts), return_attention_mask=True, **options)
    mask = tokens["attention_mask"]
    for text, length in zip(texts, mask.sum(1).tolist(), strict=True):
        if not length:
            msg = f"expected texts with at least one token of the tokenizer, got {shorten(text)!r}"
            raise ValueError(msg)
    inputs = {name: value for name, value in tokens.items() if name in taken}
    # a classifier's targets are classes; a language model's are the tokens, without padding
    if classes is not None:
        return inputs, {"labels": class_numbers(labels, classes)}
    return inputs, {"labels": tokens["input_ids"].masked_fill(mask == 0, IGNORED)}


def collate_images(processor: Any, classes: dict[str, int], pairs: list[tuple[Any, Any]]) -> Any:
    paths, labels = zip(*pairs, strict=True)
    inputs = dict(processor([_open_image(path) for path in paths], return_tensors="pt"))
    return inputs, {"labels": class_numbers(labels, classes)}


def _open_image(path: Path) -> Any:
    try:
        return Image.open(path).convert("RGB")
    except Exception as error:  # each format has its own
        msg = f"expected an image in {path}, got one that cannot be read: {error}"
        raise ValueError(msg) from error


def class_numbers(labels: Sequence[Any], classes: dict[str, int]) -> torch.Tensor:
    """Return the classes' numbers, from names that the model has or from the numbers themselves."""
    # a name that is a number, too, is the name
    known = {**{str(number): number for number in classes.values()}, **classes}
    unknown = sorted({str(label) for label in labels} - {*known})
    if unknown:
        msg = (
            f"label: expected one of the model's classes, {sorted(classes)}, or its number, got "
            f"{unknown[:5]}; a file's column `label` or a folder's first level says it"
        )
        raise ValueError(msg)
    return torch.tensor([known[str(label)] for label in labels], device="cpu")


SHOWN = 60
"""Characters of a text that the terminal shows; the report shows ten times as many."""
THUMBNAIL = (320, 320)
"""Largest width and height of an image in the report."""
SKETCH = 32
"""Width of the sketch by which LAI reads the pairs of a language model's tokens."""
SAMPLES = click.Path(exists=True, path_type=Path)


@click.group(help="lai_torch from the command line.")
def main() -> None:
    """Collect the commands."""


@main.command()
@click.option("--model", required=True, help="A folder that save_pretrained wrote, or a name on the hub.")
@click.option(
    "--data",
    required=True,
    type=SAMPLES,
    help="What to score: a file of texts, a folder of images.",
)
@click.option("--validation", required=True, type=SAMPLES, help="Good samples, in the same form.")
@click.option(
    "--output", default="scores", show_default=True, type=click.Path(path_type=Path), help="Folder."
)
@click.option(
    "--estimator", default="lai", show_default=True, type=click.Choice(["lai", "lli", "ghost", "exact"])
)
@click.option("--batch-size", default=16, show_default=True, type=click.IntRange(min=1))
@click.option(
    "--max-length", default=512, show_default=True, type=click.IntRange(min=2), help="Tokens of a text."
)
@click.option("--worst", default=10, show_default=True, type=click.IntRange(min=0), help="How many to list.")
@click.option("--device", help="Of the model.  [default: cuda where there is one, else cpu]")
def score(
    model: str,
    data: Path,
    validation: Path,
    output: Path,
    estimator: str,
    worst: int,
    device: str | None,
    **sizes: int,
) -> None:
    """Score every sample of DATA by what a training step on it does to the loss on VALIDATION.

    Texts: a .txt file with one text a line; a .csv, .jsonl or .parquet file with a column `text` and, for a
    classifier, `label`. Images: a folder, whose first level names the class, as the model names it; below it,
    files may lie at any depth.

    Writes scores.csv, lowest score first, and scores.html to the output folder. A positive score helps. A
    run that was interrupted goes on when it is started again.
    """
    with name_argument(f"--data {data}"):
        samples = read_samples(data)
    with name_argument(f"--validation {validation}"):
        good = read_samples(validation)
        # one model reads both
        if good.are_images != samples.are_images:
            msg = f"expected {'images' if samples.are_images else 'texts'}, as in --data, got the other"
            raise ValueError(msg)
    with name_argument(f"--model {model}"):
        problem = load_problem(model, images=samples.are_images, max_length=sizes["max_length"])
    with name_argument("--device"):
        problem.model.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    try:
        table = score_samples(problem, samples, good, output / "parts", estimator, sizes["batch_size"])
    except (TypeError, ValueError, OSError) as error:
        raise click.ClickException(" ".join(str(error).split())) from error
    contents = dict(zip(samples.ids, samples.contents, strict=True))
    title = f"{data.name}, scored against {validation.name}"
    write_report(table, output / "scores.html", title=title, show=lambda name: preview(contents[name]))
    names = [str(contents[name]) for name in table["id"].to_pylist()]
    table = table.append_column("sample", [names]).sort_by("score")
    pyarrow.csv.write_csv(table, output / "scores.csv")
    harmful = pc.sum(pc.less(table["score"], 0.0)).as_py() or 0
    click.echo(f"{len(table)} samples, {harmful} with a negative score; the lowest:")
    for row in table.slice(0, worst).to_pylist():
        click.echo(f"{row['score']:12.4g}  {row['id']}: {shorten(row['sample'])}")
    for reason in empty_columns(table):
        click.echo(reason)
    click.echo(f"All of them: {output / 'scores.csv'}, {output / 'scores.html'}")


def score_samples(
    problem: Problem, samples: Samples, good: Samples, folder: Path, estimator: str, batch_size: int
) -> pa.Table:
    """Score the samples; LAI reads a language model's pairs of tokens by a sketch."""
    chosen: Any = estimator
    # output gradients are as wide as the vocabulary
    if estimator == "lai" and problem.loss is next_token_losses:
        chosen = LAI(positions="tokens", sketch=min(SKETCH, problem.model.config.vocab_size))
    sides: Any = (list(zip(side.contents, side.labels, strict=True)) for side in (samples, good))
    data, validation = (
        DataLoader[Any](side, batch_size=batch_size, collate_fn=problem.collate) for side in sides
    )
    found: pa.Table = score_dataset(
        problem.model,
        problem.loss,
        data,
        validation,
        folder,
        estimator=chosen,
        batch_size=batch_size,
        ids=samples.ids,
    )
    return found


def preview(content: Any) -> Any:
    """Return a text's beginning, or a small copy of an image."""
    if isinstance(content, str):
        return shorten(content, 10 * SHOWN)
    image = _open_image(content)
    image.thumbnail(THUMBNAIL)
    return image


def shorten(text: str, length: int = SHOWN) -> str:
    """Return a text's first characters, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[: length - 3]}..."
