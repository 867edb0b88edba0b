"""Judge lai_jax on random JAX programs: ``python -m tests.random_jax --programs 2000``.

Writes ``build/random-jax.json`` and exits with 1 if a program is traced, scored or trained wrongly, or
crashes. With ``--steps`` exact scores and curated steps are judged as well as Ghost's kernel.
"""

import argparse
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # a program runs once: compiling takes longest

import jax

from tests.support.jax_programs import program, verdict

BUILD = Path(__file__).resolve().parents[1] / "build"


def main() -> int:
    """Judge, write what was found, and say whether every answer was right."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--programs", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--steps", action="store_true", help="judge exact scores and steps as well")
    options = parser.parse_args()
    start, tally, told = time.perf_counter(), Counter[str](), []
    with jax.enable_x64(True):
        for seed in range(options.first, options.first + options.programs):
            outcome, word = verdict(seed, steps=options.steps)
            tally[outcome] += 1
            if outcome != "exact":
                made_of = program(seed).made_of
                told.append({"seed": seed, "outcome": outcome, "word": word, "made_of": made_of})
                print(seed, outcome, made_of, word, flush=True)
            if seed % 100 == 99:
                jax.clear_caches()
    seconds = round(time.perf_counter() - start, 1)
    BUILD.mkdir(exist_ok=True)
    record = {"programs": options.programs, "first": options.first, "seconds": seconds, **tally, "told": told}
    (BUILD / "random-jax.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(f"{options.programs} programs in {seconds} s: {dict(tally)}")
    return 1 if tally["wrong"] or tally["crash"] else 0


if __name__ == "__main__":
    sys.exit(main())
