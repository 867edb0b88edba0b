"""The clocks of the benchmarks: calls are timed in turn, so that a busy machine is busy for all of them."""

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

Call = Callable[[], Any]


def on_cpu(call: Call, repeats: int = 1) -> tuple[float, float]:
    """Return the seconds that a call takes, by the clock and of this process."""
    clock, cpu = time.perf_counter(), time.process_time()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - clock) / repeats, (time.process_time() - cpu) / repeats


def on_gpu(call: Call, repeats: int = 1) -> tuple[float, float]:
    """Return the seconds that a call takes between two events on the GPU, and until the host was done."""
    import torch

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start = time.perf_counter()
    begin.record()
    for _ in range(repeats):
        call()
    end.record()
    host = time.perf_counter() - start
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1e3 / repeats, host / repeats


def in_turn(
    calls: Mapping[str, Call],
    rounds: int,
    *,
    least: float = 0.0,
    clock: Callable[[Call, int], tuple[float, float]] = on_cpu,
) -> dict[str, tuple[float, float]]:
    """Return medians of two times of every call, measured in an order that moves on by one each round.

    What the calls do once for all has been done. A measurement takes at least `least` seconds of this
    process: a shorter call is repeated in it. `clock` takes two times of a call, and its repeats.
    """
    names = list(calls)
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    repeats = dict.fromkeys(names, 1)
    for name in names if rounds and least else ():
        repeats[name] = max(1, round(least / on_cpu(calls[name])[1]))
    gc.collect()
    gc.freeze()  # a call that makes many objects would pay for looking through all that was made before
    try:
        for index in range(rounds):
            shift = index % len(names)
            for name in names[shift:] + names[:shift]:
                taken[name].append(clock(calls[name], repeats[name]))
    finally:
        gc.unfreeze()
    return {
        name: (statistics.median(each[0] for each in times), statistics.median(each[1] for each in times))
        for name, times in taken.items()
        if times
    }


def compare(
    counts: Mapping[str, Mapping[str, float]],
    times: Mapping[str, tuple[float, float]],
    hands: Mapping[str, str],
) -> dict[str, dict[str, float | None]]:
    """Return what methods do and take over a plain step; None where nothing was timed.

    CPU seconds also over those of a plain step on half of the rows, and of the step by hand in `hands`.
    """
    found: dict[str, dict[str, float | None]] = {}
    for name, row in counts.items():
        found[name] = {f"{key}_ratio": row[key] / counts["plain"][key] for key in ("flops", "memory")}
        found[name] |= {key: row[key] for key in ("waits", "launches")}
        for key, other, at in (
            ("seconds_ratio", "plain", 0),
            ("cpu_ratio", "plain", 1),
            ("half_ratio", "half", 1),
            ("hand_ratio", hands.get(name, ""), 1),
        ):
            found[name][key] = None
            if other in times:
                found[name][key] = times[name][at] / times[other][at]
    return found
