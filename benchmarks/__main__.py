"""`python -m benchmarks NAME`: measure, print, and write JSON under `build/`."""

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

import click

from benchmarks.compatibility.command import SUITES, run_suites

COSTS = {"torch": ("seconds", "cost"), "jax": ("jax_steps", "run")}
IN_ALL = {
    "processes": ("processes", "run"),
    **{f"exactness {name}": ("exactness", f"run_{name}") for name in ("torch", "jax")},
    **{f"cost {name}": COSTS[name] for name in ("torch", "jax")},
}


def _run(module: str, function: str = "run", *given: Any) -> None:
    """Import late: one benchmark needs torch, another jax."""
    run: Callable[..., None] = getattr(import_module(f"benchmarks.{module}"), function)
    run(*given)


def _timed(rounds: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of those that time models."""

    def options(function: Callable[..., None]) -> Callable[..., None]:
        shown = {"show_default": True, "help": "Measurements of each method; 0: count alone."}
        function = click.option("--rounds", default=rounds, **shown)(function)
        help_ = "Again for several; none: those that the command is for."
        return main.command()(click.option("--model", "models", multiple=True, help=help_)(function))

    return options


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
@click.argument("framework", type=click.Choice(["torch", "jax"]))
def exactness(framework: str) -> None:
    """Compare Ghost with per-sample autograd, architecture by architecture."""
    _run("exactness", f"run_{framework}")


@main.command()
@click.argument("framework", type=click.Choice(list(COSTS)))
def cost(framework: str) -> None:
    """Compare a curated step, and opacus' where installed, with a plain one: operations, time, memory."""
    _run(*COSTS[framework])


@_timed(12)
def seconds(rounds: int, models: tuple[str, ...]) -> None:
    """Time curated steps beside plain ones and one written by hand, in turn in one process."""
    from benchmarks import jax_steps
    from benchmarks.models import TIMED

    known = (*TIMED, *jax_steps.TIMED)
    _known(models, known)
    _run("seconds", "run", rounds, models or known)


@_timed(9)
def gpu(rounds: int, models: tuple[str, ...]) -> None:
    """Time curated steps on a GPU, float32 and bfloat16; on a CPU they run at toy size."""
    from benchmarks.models import ON_GPU

    _known(models, ON_GPU)
    _run("gpu", "run", rounds, models)


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


@main.command(name="all")
def everything() -> None:
    """Every benchmark, one after the other; ends with the names of those whose bounds did not hold."""
    failed = []
    for name, where in IN_ALL.items():
        try:
            _run(*where)
        except SystemExit as error:
            failed.append(f"{name} ({error})")
    if failed:
        raise SystemExit("bounds that did not hold: " + ", ".join(failed))


if __name__ == "__main__":
    main()
