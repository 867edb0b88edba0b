"""`python -m benchmarks NAME`: measure, print, and write JSON under `build/`."""

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

import click

from benchmarks.compatibility.command import SUITES, run_suites

FRAMEWORKS = ("torch", "jax")


def _run(module: str, function: str = "run", *given: Any) -> None:
    """Import late: one benchmark needs torch, another jax."""
    run: Callable[..., None] = getattr(import_module(f"benchmarks.{module}"), function)
    run(*given)


def _known(models: Iterable[str], known: Iterable[str]) -> None:
    if unknown := set(models) - {*known}:
        raise click.BadParameter(f"expected among {', '.join(known)}, got {', '.join(sorted(unknown))}")


@click.group(help=__doc__)
def main() -> None:
    """Gather the commands."""


@main.command()
def processes() -> None:
    """Compare curated runs on 2 and 4 processes with one process on the whole batch."""
    _run("processes")


@main.command()
@click.argument("framework", type=click.Choice(FRAMEWORKS))
def exactness(framework: str) -> None:
    """Compare Ghost with per-sample autograd, architecture by architecture."""
    _run("exactness", f"run_{framework}")


@main.command()
@click.argument("framework", type=click.Choice(FRAMEWORKS))
def cost(framework: str) -> None:
    """Compare a curated step with a plain one: operations, time, memory."""
    _run("seconds", f"cost_{framework}")


@main.command()
@click.option("--model", "models", multiple=True, help="Again for several; none: those that a CPU can time.")
@click.option("--rounds", default=12, show_default=True, help="Measurements of each method; 0: count alone.")
def seconds(rounds: int, models: tuple[str, ...]) -> None:
    """Time curated steps beside plain ones and one by hand, in turn in one process; on a GPU if any."""
    from benchmarks import jax_steps
    from benchmarks.models import FOR_GPU, TIMED

    usual = (*TIMED, *jax_steps.TIMED)
    _known(models, (*usual, *FOR_GPU))
    _run("seconds", "run", rounds, models or usual)


@main.command()
@click.option("--suite", "suites", multiple=True, type=click.Choice(list(SUITES)), help="Again for several.")
@click.option("--case", "named", multiple=True, help="Run what is named so, as in 'nn.Linear#*'.")
@click.option("--pin", "write", is_flag=True, help="Write the counts that later runs may not fall below.")
def compatibility(suites: tuple[str, ...], **options: Any) -> None:
    """Judge the adapters on suites that ship inside other packages, sample by sample."""
    run_suites(list(suites or SUITES), **options)


@main.command()
@click.option(
    "--library", "libraries", multiple=True, help="Again for several; none: those that are installed."
)
@click.option("--case", "cases", multiple=True, help="Again for several; none: all.")
@click.option("--pin", is_flag=True, help="Write the record that the guide shows.")
def judge(libraries: tuple[str, ...], cases: tuple[str, ...], pin: bool) -> None:
    """Judge libraries of per-sample gradients on one zoo of models, this one among them."""
    from benchmarks.judge.command import run
    from benchmarks.judge.libraries import LIBRARIES
    from benchmarks.judge.zoo import CASES

    _known(libraries, LIBRARIES)
    _known(cases, CASES)
    run(libraries, cases, pin=pin)


if __name__ == "__main__":
    main()
