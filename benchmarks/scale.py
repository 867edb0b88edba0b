"""Scoring one batch from a summary costs the same whatever the size of the validation set was."""

import time
from collections.abc import Callable, Iterator
from statistics import median

import numpy as np
from rich.console import Console
from rich.progress import track

import lai_core as lai
from benchmarks import report

WIDTHS = (256, 256, 256, 10)
BATCH = 128
SIZES = (100, 1_000, 10_000, 100_000)
PART = 1_000
"""Validation samples that are alive at once."""
ROUNDS = 41
BOUND = 1.1
"""What the time at the largest size may be, over that at the smallest."""


def batch(samples: int, seed: int) -> lai.Trace:
    """Return a trace of a network with these widths, in float32."""
    generator = np.random.default_rng(seed)
    layers = [lai.LayerTrace(generator.standard_normal((samples, d), dtype="float32")) for d in WIDTHS[:-1]]
    outputs = generator.standard_normal((samples, WIDTHS[-1]), dtype="float32")
    return lai.Trace([*layers[:-1], lai.LayerTrace(layers[-1].activations, outputs)])


def parts(n_val: int) -> Iterator[lai.Trace]:
    """Stream a validation set of `n_val` samples."""
    return (batch(min(PART, n_val - start), start) for start in range(0, n_val, PART))


def seconds(call: Callable[[], object]) -> float:
    """Time one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def pairwise_seconds(n_val: int, training: lai.Trace) -> float:
    """Time the kernel of every validation with every training sample, part by part."""
    return sum(seconds(lambda part=part: lai.lai_kernel(part, training)) for part in parts(n_val))


def run() -> None:
    """Measure, print the table, write `build/bench/scale.json`.

    Raises
    ------
    SystemExit
        If the time to score from a summary grew by more than the bound.
    """
    training = batch(BATCH, 10**9)
    summaries, summarizing = {}, {}
    for n in track(SIZES, "summarize", console=Console(stderr=True)):
        whole, summarizing[n] = None, 0.0
        for part in parts(n):  # drawing the numbers is not timed
            start = time.perf_counter()
            one = lai.summarize(part, "lai")
            whole = one if whole is None else whole + one
            summarizing[n] += time.perf_counter() - start
        summaries[n] = whole
    timings: dict[int, list[float]] = {n: [] for n in SIZES}
    for _ in range(ROUNDS):  # in turn, so that a drift of the machine's speed meets every size alike
        for n, summary in summaries.items():
            timings[n].append(seconds(lambda summary=summary: lai.lai_scores(summary, training)))
    from_summary = {n: median(times) for n, times in timings.items()}
    pairwise = {n: pairwise_seconds(n, training) for n in SIZES}
    ratio = median(last / first for first, last in zip(timings[SIZES[0]], timings[SIZES[-1]], strict=True))
    report.table(
        f"Time to score one batch of {BATCH}, widths {', '.join(map(str, WIDTHS))}",
        (
            "validation samples",
            "from a summary [ms]",
            "all pairs [ms]",
            "pairs / summary",
            "making the summary [ms]",
        ),
        (
            (
                f"{n:,}",
                f"{taken * 1e3:.3f}",
                f"{pairwise[n] * 1e3:.2f}",
                f"{pairwise[n] / taken:.1f}",
                f"{summarizing[n] * 1e3:.1f}",
            )
            for n, taken in from_summary.items()
        ),
        [f"from a summary, last / first: {ratio:.3f} (at most {BOUND})"],
    )
    timed = {
        n: {"summary": from_summary[n], "pairwise": pairwise[n], "summarize": summarizing[n]} for n in SIZES
    }
    report.close(
        "scale",
        {"seconds": timed, "ratio": ratio},
        BOUND,
        report.over({"ratio": ratio}, {"ratio": BOUND}),
        packages=("numpy",),
        widths=WIDTHS,
        batch=BATCH,
    )
