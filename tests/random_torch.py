"""Judge what is read of random torch programs: ``python -m tests.random_torch --nets 5000``.

Writes ``build/random-torch.json`` and exits with 1 if a program is read wrongly, crashes, leaves
something behind, or is refused though a kernel of its samples' gradients says what is right.
"""

import argparse
import json
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

from tests.support.torch_judge import FAULTS, METHODS, judge
from tests.support.torch_programs import program

BUILD = Path(__file__).resolve().parents[1] / "build"


def main() -> int:
    """Judge, write what was found, and say whether every answer was right."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nets", type=int, default=5000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--method", choices=METHODS, default="exact")
    options = parser.parse_args()
    start, tally, bad = time.perf_counter(), Counter[str](), []
    for seed in range(options.first, options.first + options.nets):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outcome, word = judge(options.method, seed)
            made_of = program(seed).made_of
        tally[outcome] += 1
        if outcome in FAULTS:
            bad.append({"seed": seed, "outcome": outcome, "word": word, "made_of": made_of})
            print(seed, outcome, made_of, word)
    seconds = round(time.perf_counter() - start, 1)
    BUILD.mkdir(exist_ok=True)
    record = {"nets": options.nets, "first": options.first, "seconds": seconds, **tally, "bad": bad}
    (BUILD / "random-torch.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(f"{options.nets} programs in {seconds} s: {dict(tally)}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
