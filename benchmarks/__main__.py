"""`python -m benchmarks NAME`: measure, print, and write JSON under `build/`."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import click

from benchmarks.compatibility.command import SUITES, run_suites

FRAMEWORKS = click.Choice(["torch", "jax"])
COSTS = click.Choice(["torch", "jax", "peers"])


def _run(module: str) -> None:
    """Import late: one benchmark needs torch, another jax."""
    run: Callable[[], None] = import_module(f"benchmarks.{module}").run
    run()


@click.group(help=__doc__)
def main() -> None:
    """Gather the commands."""


@main.command()
def kernels() -> None:
    """Compare the core's scores and kernels with a matmul or a copy of as much, on numpy, torch and jax."""
    _run("kernels")


@main.command()
def growth() -> None:
    """Fit how a curated step's counts grow with batch, validation set, depth, width, length, vocabulary."""
    _run("growth")


@main.command()
@click.argument("framework", type=FRAMEWORKS)
def exactness(framework: str) -> None:
    """Compare Ghost with per-sample autograd, architecture by architecture."""
    _run(f"exactness_{framework}")


@main.command()
@click.argument("framework", type=COSTS)
def cost(framework: str) -> None:
    """Compare a curated step with a plain one, or a peer's: operations, time, memory."""
    _run(f"cost_{framework}")


@main.command()
def routes() -> None:
    """Compare the ways torch's LAI scores a language model: what each costs and how near it comes."""
    _run("routes_torch")


@main.command()
def formats() -> None:
    """Compare scores of torch models in bfloat16 and in torchao's float8 with those in float32."""
    _run("formats")


@main.command()
def processes() -> None:
    """Compare curated runs on 2 and 4 processes with one process on the whole batch."""
    _run("processes")


@main.command()
def adapted() -> None:
    """Compare which layers LAI reads on frozen and adapted models with the exact scores."""
    _run("adapted_torch")


@main.command()
def selective() -> None:
    """Check torch's selective backward against the masked gradient, architecture by architecture."""
    _run("selective_torch")


@main.command()
@click.option("--rounds", default=12, show_default=True, help="Measurements of each method; 0: count alone.")
@click.option("--model", "models", multiple=True, help="Again for several; none: all of them.")
def seconds(rounds: int, models: tuple[str, ...]) -> None:
    """Time curated steps beside plain ones and one written by hand, in turn in one process."""
    from benchmarks.models import TIMED
    from benchmarks.seconds import command, jax_steps

    known = (*TIMED, *jax_steps.MODELS)
    if unknown := set(models) - set(known):
        raise click.BadParameter(f"expected among {', '.join(known)}, got {', '.join(sorted(unknown))}")
    command.run(rounds, models or known)


@main.command()
@click.option("--rounds", default=5, show_default=True, help="Measurements of each way.")
@click.option("--model", "models", multiple=True, help="Again for several; none: four of them.")
def scoring(rounds: int, models: tuple[str, ...]) -> None:
    """Compare every way to score a batch: this library's, other packages', and those written by hand."""
    from benchmarks.models import TIMED
    from benchmarks.scoring import command

    if unknown := set(models) - set(TIMED):
        raise click.BadParameter(f"expected among {', '.join(TIMED)}, got {', '.join(sorted(unknown))}")
    command.run(rounds, models)


@main.command()
@click.option("--rounds", default=9, show_default=True, help="Measurements of each method.")
@click.option("--model", "models", multiple=True, help="Again for several; none: all of them.")
def gpu(rounds: int, models: tuple[str, ...]) -> None:
    """Time curated steps on a GPU, float32 and bfloat16; on a CPU they run at toy size."""
    from benchmarks.gpu import command
    from benchmarks.models import ON_GPU

    if unknown := set(models) - set(ON_GPU):
        raise click.BadParameter(f"expected among {', '.join(ON_GPU)}, got {', '.join(sorted(unknown))}")
    command.run(rounds, models)


@main.command()
def vocabulary() -> None:
    """Compare scoring a language model with its forward pass, for vocabularies of 2,000 to 128,000."""
    _run("seconds.vocabulary")


@main.command()
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
def compare(before: Path, after: Path) -> None:
    """Show what changed between two `build/seconds.json`; fail where a count got worse, never for seconds."""
    from benchmarks.seconds import command

    command.compare(before, after)


@main.command()
@click.option("--suite", "suites", multiple=True, type=click.Choice(list(SUITES)), help="Again for several.")
@click.option("--sample", type=int, help="Run so many cases alone; every suite has its turn.")
@click.option("--every", default=1, show_default=True, help="Run every n-th case.")
@click.option("--case", "named", multiple=True, help="Run what is named so, as in 'nn.Linear*' or 'cdist#3'.")
@click.option("--pin", is_flag=True, help="Write the counts that later runs may not fall below.")
def compatibility(
    suites: tuple[str, ...], sample: int | None, every: int, named: tuple[str, ...], pin: bool
) -> None:
    """Judge the adapters on suites that ship inside other packages, sample by sample."""
    run_suites(list(suites or SUITES), sample=sample, every=every, named=named, write=pin)


@main.command(name="all")
def everything() -> None:
    """Every benchmark, one after the other; ends with the names of those whose bounds did not hold."""
    failed = []
    for module in (
        "growth",
        "exactness_torch",
        "cost_torch",
        "routes_torch",
        "selective_torch",
        "formats",
        "processes",
        "exactness_jax",
        "cost_jax",
    ):
        try:
            _run(module)
        except SystemExit as error:
            failed.append(f"{module} ({error})")
    if failed:
        raise SystemExit("bounds that did not hold: " + ", ".join(failed))


if __name__ == "__main__":
    main()
