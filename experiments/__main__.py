"""`python -m experiments STUDY`: run a study, show what it found, write it under `build/`."""

from functools import partial
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from experiments.demo import noisy_labels as demo
from experiments.harness.study import Study
from experiments.studies import STUDIES

OUT = Path("build", "experiments")
SIZE = (
    click.Option(["--quick", "size"], flag_value="quick", help="Minutes less, fewer seeds: does it run?"),
    click.Option(["--full", "size"], flag_value="full", help="What the documentation shows."),
)
OPTIONS = (
    click.Option(["--seeds"], type=click.IntRange(min=1), help="How many.  [default: the size's]"),
    click.Option(["--out"], type=click.Path(file_okay=False, path_type=Path), default=OUT, show_default=True),
)


@click.group(help="Studies: each trains models, judges claims, and writes its figures as JSON and pictures.")
def studies() -> None:
    """Collect the studies."""


def run_one(study: Study, size: str | None, **options: Any) -> None:
    """Run a study and print every claim with its verdict."""
    try:
        record = study.run(size or "full", **options)
    except (FileNotFoundError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    for text, claim in record["claims"].items():
        ends = " to ".join("?" if end is None else f"{end:+.3g}" for end in claim["interval"])
        click.echo(f"{claim['verdict']:>10}  {text}: {claim['found']:+.3g} ({ends}); paper: {claim['paper']}")


def run_all(size: str | None, **options: Any) -> None:
    for study in STUDIES.values():
        click.echo(f"== {study.title} ({study.about})")
        run_one(study, size, **options)


def demo_or_study(size: str | None, **options: Any) -> None:
    """Run the demo, as `make demo` does; with a size, the whole table."""
    if size is None:
        demo.callback(**options)
        return
    options.pop("epochs")
    given = click.get_current_context().get_parameter_source("seeds") is ParameterSource.COMMANDLINE
    options |= {"out": options["out"] or OUT, "seeds": options["seeds"] if given else None}
    run_one(STUDIES["noisy-labels"], size, **options)


for name, parameters, run, about in (
    *(
        (each.name, (*SIZE, *OPTIONS), partial(run_one, each), f"{each.title} ({each.about}).")
        for each in STUDIES.values()
    ),
    ("all", (*SIZE, *OPTIONS), run_all, "All of them."),
    ("noisy-labels", (*SIZE, *demo.params), demo_or_study, demo.help),
):
    studies.add_command(click.Command(name, params=list(parameters), callback=run, help=about))

if __name__ == "__main__":
    studies(prog_name="python -m experiments")
