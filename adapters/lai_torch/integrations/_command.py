"""`python -m lai_torch score`: a transformers model scores a data set against good samples.

Needs `pip install "lai-core[command]"`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet
import torch
import transformers
from lai_storage.report import write_report
from lai_storage.tables import read_scores
from torch.utils.data import DataLoader, Dataset

from lai_torch.dataset import score_dataset
from lai_torch.integrations._trainer import usual_loss
from lai_torch.integrations.losses import IGNORED, classification_losses, next_token_losses
from lai_torch.options import LAI

READERS: dict[str, Callable[[Path], pa.Table]] = {
    ".txt": lambda path: pa.table({"text": [line for line in path.read_text().splitlines() if line.strip()]}),
    ".csv": pyarrow.csv.read_csv,
    ".json": pyarrow.json.read_json,
    ".jsonl": pyarrow.json.read_json,
    ".parquet": pyarrow.parquet.read_table,
}
IMAGES = {".bmp", ".gif", ".jpeg", ".jpg", ".png", ".webp"}


@dataclass(frozen=True)
class Samples(Dataset[tuple[Any, Any]]):
    """Texts or paths of images, with what each is called and its class, if it has one."""

    names: Sequence[Any]
    contents: Sequence[Any]
    labels: Sequence[Any] | None

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.contents)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        """Return a sample's content and its class."""
        return self.contents[index], None if self.labels is None else self.labels[index]


def read_samples(path: Path) -> Samples:
    """Read a file of texts, numbered from 1, or a folder of images `CLASS/NAME.png`, named by path."""
    if path.is_dir():
        files = sorted(file for file in path.glob("*/*") if file.suffix.lower() in IMAGES)
        _expect_samples(files, f"images in the folders of {path}, as CLASS/NAME.png")
        names = [file.relative_to(path).as_posix() for file in files]
        return Samples(names, files, [file.parent.name for file in files])
    if path.suffix not in READERS:
        msg = f"{path}: expected a folder of images or a file of texts, one of {', '.join(READERS)}"
        raise ValueError(msg)
    table = READERS[path.suffix](path)
    if "text" not in table.column_names:
        msg = f"{path}: expected a column 'text', got {table.column_names}"
        raise ValueError(msg)
    texts = table["text"].to_pylist()
    _expect_samples(texts, f"texts in {path}")
    labels = table["label"].to_pylist() if "label" in table.column_names else None
    return Samples(range(1, len(texts) + 1), texts, labels)


def _expect_samples(found: Sequence[Any], what: str) -> None:
    if not found:
        msg = f"expected {what}, got none"
        raise ValueError(msg)


@dataclass(frozen=True)
class Problem:
    """A model, its loss, one number a sample, and what makes a batch of pairs (content, class)."""

    model: Any
    loss: Callable[[Any, Any], torch.Tensor]
    collate: Callable[[list[tuple[Any, Any]]], Any]


def load_problem(model: str, *, images: bool, max_length: int) -> Problem:
    """Load a transformers model, a folder or a name on the hub, with its tokenizer or image processor."""
    config = transformers.AutoConfig.from_pretrained(model)
    (architecture, *_) = config.architectures or [""]
    if not hasattr(transformers, architecture):
        msg = f"{model}: expected an architecture of transformers in config.json, got {architecture!r}"
        raise ValueError(msg)
    loaded = getattr(transformers, architecture).from_pretrained(model)
    if images:
        processor = transformers.AutoImageProcessor.from_pretrained(model)
        return Problem(loaded, classification_losses, ImageBatches(processor, config.label2id))
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    loss = usual_loss(loaded)
    classes = config.label2id if loss is classification_losses else None
    loaded.config.use_cache = False
    if loaded.config.pad_token_id is None:
        loaded.config.pad_token_id = tokenizer.pad_token_id
    return Problem(loaded, loss, TextBatches(tokenizer, classes, max_length))


@dataclass(frozen=True)
class TextBatches:
    """Tokenizes texts; the targets are the classes, or, of a language model, the tokens themselves."""

    tokenizer: Any
    classes: dict[str, int] | None
    max_length: int

    def __call__(self, pairs: list[tuple[Any, Any]]) -> Any:
        """Return inputs and targets."""
        texts, labels = zip(*pairs, strict=True)
        options = {"padding": True, "truncation": True, "max_length": self.max_length, "return_tensors": "pt"}
        inputs = dict(self.tokenizer(list(texts), **options))
        if self.classes is not None:
            return inputs, {"labels": class_numbers(labels, self.classes)}
        return inputs, {"labels": inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, IGNORED)}


@dataclass(frozen=True)
class ImageBatches:
    """Reads images by the model's processor."""

    processor: Any
    classes: dict[str, int]

    def __call__(self, pairs: list[tuple[Any, Any]]) -> Any:
        """Return inputs and targets."""
        from PIL import Image

        paths, labels = zip(*pairs, strict=True)
        pictures = [Image.open(path).convert("RGB") for path in paths]
        inputs = dict(self.processor(pictures, return_tensors="pt"))
        return inputs, {"labels": class_numbers(labels, self.classes)}


def class_numbers(labels: Sequence[Any], classes: dict[str, int]) -> torch.Tensor:
    """Return the classes' numbers, from names that the model has or from the numbers themselves."""
    known = {**{str(number): number for number in classes.values()}, **classes}
    unknown = sorted({str(label) for label in labels} - {*known})
    if unknown:
        msg = (
            f"label: expected one of the model's classes, {sorted(classes)}, or its number, got {unknown[:5]}"
        )
        raise ValueError(msg)
    return torch.tensor([known[str(label)] for label in labels], device="cpu")


SHOWN = 60
"""Characters of a text that a list shows."""
SKETCH = 32
"""Width of the sketch by which LAI reads the pairs of a language model's tokens."""
SAMPLES = click.Path(exists=True, path_type=Path)


@click.group(help="lai_torch from the command line.")
def main() -> None:
    """Collect the commands."""


@main.command()
@click.option("--model", required=True, help="A folder that save_pretrained wrote, or a name on the hub.")
@click.option(
    "--data", required=True, type=SAMPLES, help="What to score: a file of texts, a folder of images."
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

    Texts: a .txt file with one text a line, or a .csv, .json, .jsonl or .parquet file with a column `text`
    and, for a classifier, `label`. Images: a folder with one folder for each class, named as the model
    names it.

    Writes scores.csv, lowest score first, and scores.html to the output folder. A positive score helps. A
    run that was interrupted goes on when it is started again.
    """
    try:
        samples, good = read_samples(data), read_samples(validation)
        problem = load_problem(model, images=data.is_dir(), max_length=sizes["max_length"])
        problem.model.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        table = scored(problem, samples, good, output / "parts", estimator, sizes["batch_size"])
    except (TypeError, ValueError, OSError) as error:
        raise click.ClickException(str(error)) from error
    write_report(table, output / "scores.html", title=f"{data.name}, scored against {validation.name}")
    table = with_samples(table, samples).sort_by("score")
    pyarrow.csv.write_csv(table, output / "scores.csv")
    harmful = pc.sum(pc.less(table["score"], 0.0)).as_py() or 0
    click.echo(f"{len(table)} samples, {harmful} with a negative score; the lowest:")
    for row in table.slice(0, worst).to_pylist():
        click.echo(f"{row['score']:12.4g}  {row['id']}: {shortened(row['sample'])}")
    click.echo(f"All of them: {output / 'scores.csv'}, {output / 'scores.html'}")


def scored(
    problem: Problem, samples: Samples, good: Samples, folder: Path, estimator: str, batch_size: int
) -> pa.Table:
    """Score the samples; LAI reads a language model's pairs of tokens by a sketch."""
    chosen: Any = estimator
    if estimator == "lai" and problem.loss is next_token_losses:
        chosen = LAI(positions="tokens", sketch=min(SKETCH, problem.model.config.vocab_size))
    data, validation = (
        DataLoader[Any](side, batch_size=batch_size, collate_fn=problem.collate) for side in (samples, good)
    )
    score_dataset(
        problem.model,
        problem.loss,
        data,
        validation,
        folder,
        estimator=chosen,
        batch_size=batch_size,
        ids=samples.names,
    )
    return read_scores(folder)


def with_samples(table: pa.Table, samples: Samples) -> pa.Table:
    """Add to each row the text, or the path of the image."""
    contents = dict(zip(samples.names, samples.contents, strict=True))
    return table.append_column("sample", [[str(contents[name]) for name in table["id"].to_pylist()]])


def shortened(text: str) -> str:
    """Return a text's first characters, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 3]}..."
