"""What LAI costs on a language model by each route, and how near each comes to exact pairs of tokens."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lai_torch
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

import lai_core as lai
from benchmarks.cost_models import Work, gpt_neo_small
from benchmarks.cost_torch import Operations, PeakBytes, forward, plain_step
from lai_core.sketches import sketch_outputs

OUT = Path("build/language-routes-torch.json")
WIDTHS = (8, 32, 48, 128)


def trained(steps: int = 60) -> Work:
    """Return the small GPT-Neo after some training on sequences with a pattern, some of them shuffled."""
    torch.manual_seed(0)
    work = gpt_neo_small()
    optimizer = torch.optim.Adam(work.model.parameters(), lr=2e-3)
    for _ in range(steps):
        ids = patterned(16)
        fresh = Work(work.model, work.loss, ({"input_ids": ids, "use_cache": False}, ids), work.validation)
        plain_step(fresh, optimizer)
    work.model.eval()
    training, validation = patterned(16, shuffled=6), patterned(16)
    sides = [({"input_ids": ids, "use_cache": False}, ids) for ids in (training, validation)]
    return Work(work.model, work.loss, *sides)


def patterned(samples: int, shuffled: int = 0) -> Tensor:
    """Return sequences that count upwards by their own step; the first `shuffled` are noise."""
    starts, steps = torch.randint(1, 100, (samples, 1)), torch.randint(1, 5, (samples, 1))
    ids = (starts + steps * torch.arange(64)) % 997 + 1
    ids[:shuffled] = torch.randint(1, 998, (shuffled, 64))
    return ids


def routes(work: Work) -> dict[str, Callable[[], Tensor]]:
    """Return, per route, a call that scores the batch; the validation side is summed up before."""
    sides = [lai_torch.trace(work.model, work.loss, *side) for side in (work.validation, work.batch)]
    found: dict[str, Callable[[], Tensor]] = {}
    for positions in ("tokens", "mean"):
        summary = lai.summarize(sides[0], "lai", positions=positions)
        found[positions] = functools.partial(lai.lai_scores, summary, sides[1])
    found["flatten"] = functools.partial(lai.lai_scores, *sides, positions="flatten")
    outputs = sides[0].layers[-1].output_gradients.shape[-1]
    signs = torch.randint(2, (outputs,)) * 2.0 - 1.0
    permutation = torch.randperm(outputs)
    for width in WIDTHS:
        sketch = functools.partial(sketch_outputs, signs=signs, permutation=permutation, width=width)
        summary = lai.summarize(sketch(sides[0]), "lai")

        def scored(summary: Any = summary, sketch: Any = sketch) -> Tensor:
            return lai.lai_scores(summary, sketch(sides[1]))

        found[f"tokens, sketch of {width}"] = scored
    return found


def run() -> dict[str, dict[str, float]]:
    """Measure every route, print the table, write `build/language-routes-torch.json`."""
    work = trained()
    with Operations() as counter:
        forward(work)
    once = counter.total
    found = {}
    calls = routes(work)
    exact = calls["tokens"]()
    for name, call in calls.items():
        counter, tracker = Operations(), PeakBytes()
        with counter, tracker:
            scores = call()
        correlation = float(torch.corrcoef(torch.stack([scores, exact]))[0, 1])
        found[name] = {"forwards": counter.total / once, "bytes": tracker.peak, "correlation": correlation}
    table = Table("route", "forward passes", "peak MB", "correlation", title="LAI on a language model")
    for name, row in found.items():
        table.add_row(
            name, f"{row['forwards']:.3f}", f"{row['bytes'] / 1e6:.1f}", f"{row['correlation']:.4f}"
        )
    Console().print(table)
    sketches = (row for name, row in found.items() if "sketch" in name)
    cheap = [row["correlation"] for row in sketches if row["forwards"] <= 0.25]
    Console().print(f"best sketch within a quarter of a forward pass: correlation {max(cheap):.3f}")
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(found, indent=2) + "\n")
    return found
