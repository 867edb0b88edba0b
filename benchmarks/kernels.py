"""The core's scores and kernels beside what the machine allows: a matmul, or a copy, of as much.

What a call must do at least follows from shapes: so many multiply-adds, and so many bytes that are read and
written once. A square matmul of as many multiply-adds and a copy of as many bytes are timed in turn with the
call, in the same namespace and type; the longer of the two is what the machine allows.
"""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

import lai_core as lai
from benchmarks import report, ruler

NAMESPACES = ("numpy", "torch", "jax")
ROUNDS = 21
BOUND = 0.5
"""The least share of what the machine allows."""
Put = Callable[[Any], Any]
"""Makes a namespace's array of numpy's."""


@dataclass(frozen=True)
class Case:
    """One call: with what it is called, n samples on each side, and its multiply-adds."""

    call: Callable[[lai.Trace, lai.Trace], Any]
    trace: Callable[[np.random.Generator, Put], lai.Trace]
    multiply_adds: int


def summed(n: int, t: int, width: int, height: int) -> int:
    """Return a matrix's multiply-adds in scores: pairs of positions, or one side's sum and its products."""
    return min((n * t) ** 2 * (width + height), 2 * n * t * width * height)


def paired(n: int, t: int, width: int, height: int) -> int:
    """Return a matrix's multiply-adds in a kernel: pairs of positions, or gradients built and multiplied."""
    return min((n * t) ** 2 * (width + height), (2 * n * t + n * n) * width * height)


def _drawn(generator: np.random.Generator, put: Put, *shape: int) -> Any:
    return put(generator.standard_normal(shape, dtype="float32"))


def _dense(
    shape: tuple[int, ...],
    widths: tuple[int, ...],
    all_layers: bool,
    generator: np.random.Generator,
    put: Put,
) -> lai.Trace:
    """Return layers of these widths; output gradients of the last one alone, or of all."""
    draw = partial(_drawn, generator, put, *shape)
    sides = list(pairwise(widths))
    last = len(sides) - 1
    return lai.Trace(
        lai.LayerTrace(draw(inside), draw(outside) if all_layers or index == last else None)
        for index, (inside, outside) in enumerate(sides)
    )


def _convolution(n: int, channels: int, length: int, generator: np.random.Generator, put: Put) -> lai.Trace:
    """Return a 3x3 convolution of as many channels in and out, padded by one."""
    maps = (_drawn(generator, put, n, channels, length, length) for _ in range(2))
    return lai.Trace([lai.ConvolutionTrace(*maps, kernel=(3, 3), padding=((1, 1), (1, 1)))])


def _embedding(n: int, t: int, rows: int, width: int, generator: np.random.Generator, put: Put) -> lai.Trace:
    ids = put(generator.integers(0, rows, (n, t)))
    return lai.Trace([lai.EmbeddingTrace(ids, _drawn(generator, put, n, t, width), rows)])


def cases(scale: int = 1) -> dict[str, Case]:
    """Return what is measured; for a test, with every size divided by `scale`."""
    found: dict[str, Case] = {}
    n, width, few, many = 128 // scale, 512 // scale, 10, 1000 // scale
    tokens, narrow, length = 8, 256 // scale, 64 // scale
    for name, samples, t, widths in (
        ("dense, 4 layers of 512", n, 1, (width,) * 5),
        ("dense at 64 positions, 4 layers of 256", tokens, length, (narrow,) * 5),
    ):
        shape = (samples,) if t == 1 else (samples, t)
        layers = list(pairwise(widths))
        trace = partial(_dense, shape, widths, True)
        for how, call, each in (("scores", lai.ghost_scores, summed), ("kernel", lai.ghost_kernel, paired)):
            found[f"Ghost {how}: {name}"] = Case(call, trace, sum(each(samples, t, *pair) for pair in layers))
    for samples, channels, side in ((32, 64, 8), (16, 16, 32)):
        maps = (samples, max(channels // scale, 1), max(side // scale, 3))
        for how, call, each in (("scores", lai.ghost_scores, summed), ("kernel", lai.ghost_kernel, paired)):
            counted = each(maps[0], maps[2] ** 2, 9 * maps[1], maps[1])
            name = f"Ghost {how}: convolution 3x3, {channels} channels, {side}x{side}"
            found[name] = Case(call, partial(_convolution, *maps), counted)
    for rows in (1_000, 30_000):
        trace = partial(_embedding, 16, length, rows // scale, narrow)
        read = 16 * length
        for how, call, counted in (
            ("scores", lai.ghost_scores, 2 * read * narrow),
            ("kernel", lai.ghost_kernel, read * read * narrow),
        ):
            found[f"Ghost {how}: embedding of {rows:,} rows"] = Case(call, trace, counted)
    for outputs, said in ((few, "10"), (many, "1,000")):
        widths = (width,) * 5 + (outputs,)
        trace, sides = partial(_dense, (n,), widths, False), (n, 1, 5 * width, outputs)
        found[f"LAI scores: 5 layers of 512, {said} outputs"] = Case(lai.lai_scores, trace, summed(*sides))
        found[f"LAI kernel: 5 layers of 512, {said} outputs"] = Case(lai.lai_kernel, trace, paired(*sides))
        last = partial(_dense, (n,), widths[-2:], False)
        found[f"LLI scores: 512, {said} outputs"] = Case(lai.lli_scores, last, summed(n, 1, width, outputs))
    return found


def measured(namespace: str, case: Case, rounds: int) -> dict[str, Any]:
    """Return the medians of a call's CPU seconds, of what it is measured by, and the share it reaches."""
    xp = import_module({"jax": "jax.numpy"}.get(namespace, namespace))
    put = xp.from_numpy if namespace == "torch" else xp.asarray
    compiled: Callable[[Any], Any] = import_module("jax").jit if namespace == "jax" else partial
    generator = np.random.default_rng(0)
    sides = [case.trace(generator, put) for _ in range(2)]
    read = sum(array.nbytes for side in sides for layer in side.layers for array in layer.arrays().values())
    size = max(round(case.multiply_adds ** (1 / 3)), 1)
    square = _drawn(generator, put, size, size)
    copied = _drawn(generator, put, (read + int(case.call(*sides).nbytes)) // 8)  # half is read, half written
    calls = {
        "seconds": (compiled(case.call), *sides),
        "matmul": (compiled(xp.matmul), square, square),
        "copy": (compiled(lambda array: array * 2), copied),
    }

    def done(call: Callable[..., Any], *given: Any) -> None:
        found = call(*given)
        if namespace == "jax":
            found.block_until_ready()

    waiting = {name: partial(done, *each) for name, each in calls.items()}
    ruler.in_turn(waiting, 2)  # the first calls compile
    medians = {name: cpu for name, (_, cpu) in ruler.medians(ruler.in_turn(waiting, rounds)).items()}
    allowed = max(medians["matmul"], medians["copy"])
    by = "matmul" if allowed == medians["matmul"] else "copy"
    return {**medians, "multiply_adds": case.multiply_adds, "share": allowed / medians["seconds"], "by": by}


def one_thread() -> AbstractContextManager[Any]:
    """Keep numpy's, torch's and jax's products on one thread."""
    import torch

    torch.set_num_threads(1)
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return nullcontext()
    return threadpool_limits(1)


def run(rounds: int = ROUNDS) -> None:
    """Measure, print the table, write `build/bench/kernels.json`; fail where a share is below the bound."""
    figures: dict[str, dict[str, Any]] = {}
    with one_thread():
        import lai_jax  # noqa: F401  # records are pytrees then

        for namespace in NAMESPACES:
            for name, case in track(cases().items(), namespace, console=Console(stderr=True)):
                figures[f"{namespace}: {name}"] = measured(namespace, case, rounds)
    report.table(
        "what the machine allows, over what a call takes; float32, one thread, CPU seconds",
        ("call", "ms", "allowed by", "ms", "share"),
        (
            (
                name,
                f"{row['seconds'] * 1e3:.2f}",
                row["by"],
                f"{row[row['by']] * 1e3:.2f}",
                f"{row['share']:.2f}",
            )
            for name, row in figures.items()
        ),
        ["allowed by: a matmul of as many multiply-adds, or a copy of as many bytes, whichever takes longer"],
    )
    slow = [f"{name} {row['share']:.2f} < {BOUND}" for name, row in figures.items() if row["share"] < BOUND]
    report.close("kernels", figures, BOUND, slow, packages=NAMESPACES, rounds=rounds, threads=1)
