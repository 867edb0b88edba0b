"""`python -m lai_torch score`: a transformers model scores a data set against good samples.

Needs `pip install "lai-core[command]"`.
"""

from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import torch
from lai_storage.report import write_report
from lai_storage.tables import read_scores
from torch.utils.data import DataLoader

from lai_torch.dataset import score_dataset
from lai_torch.integrations._samples import Problem, Samples, load_problem, read_samples
from lai_torch.integrations.losses import next_token_losses
from lai_torch.options import LAI

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
