"""Judge lai_jax on random JAX programs: ``python -m tests.random_jax --programs 2000``.

Prints what is not exact, and exits with 1 if a program is traced, scored or trained wrongly, or crashes.
With ``--steps`` exact scores and curated steps are judged as well as Ghost's kernel.
"""

import argparse
import os
import sys
from collections import Counter

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import lai_jax
import numpy as np
import optax
from lai_jax._program.errors import UnexplainedError

from tests.lai_jax.support import HALF, computed, explained, ghost_error, gradients, relative, stepped
from tests.support.jax_programs import Program, losses, program


def verdict(seed: int, *, steps: bool = False) -> tuple[str, str]:
    """Return `exact`, `wrong`, `refused` or `crash`, and what was found, by `jax.grad` of one sample.

    Ghost's kernel is judged on every program; with `steps` so are exact scores, and where a step of LAI on
    half of the rows leads. LAI has to name the last layer, or to refuse where it reads none.
    """
    drawn = program(seed)
    model, batch = (drawn.apply, drawn.params, losses), (drawn.inputs, drawn.targets)
    try:
        found = _last(drawn)
        if found != drawn.last:
            return "wrong", f"last layer {found!r}, not {drawn.last!r}"
        errors = [ghost_error(*model, batch)]
        if steps and drawn.last:
            rows = gradients(*model, batch)
            scores = computed(lai_jax.exact_scores, *model, batch, batch)
            after, _, report = stepped(model, batch, batch, tx=optax.sgd(1.0), policy=HALF, rows=0.5)
            moved = [(drawn.params[name] - after[name]).ravel() for name in sorted(drawn.params)]
            errors.append(relative(scores, rows @ rows.sum(0)))
            errors.append(relative(np.concatenate(moved), report.weights @ rows))
    except UnexplainedError as refusal:
        return "refused", str(refusal)
    except Exception as raised:  # whatever it is, it is no refusal
        return "crash", f"{type(raised).__name__}: {raised}"
    return "exact" if max(errors) < 1e-10 else "wrong", f"{max(errors):.1e}"


def _last(drawn: Program) -> str | None:
    """Return the last layer that LAI names; None where it says that it can read none."""
    try:
        return explained(drawn.apply, drawn.params, losses, (drawn.inputs, drawn.targets))[-1]
    except UnexplainedError as refusal:
        if not any(why in str(refusal) for why in ("without another layer behind it", "(a layer), got none")):
            raise
        return None


def main() -> int:
    """Judge, print what was found, and say whether every answer was right."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--programs", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--steps", action="store_true", help="judge exact scores and steps as well")
    options = parser.parse_args()
    tally = Counter[str]()
    with jax.enable_x64(True):
        for seed in range(options.first, options.first + options.programs):
            outcome, word = verdict(seed, steps=options.steps)
            tally[outcome] += 1
            if outcome != "exact":
                print(seed, outcome, program(seed).made_of, word, flush=True)
            if seed % 100 == 99:
                jax.clear_caches()
    print(f"{options.programs} programs: {dict(tally)}")
    return 1 if tally["wrong"] or tally["crash"] else 0


if __name__ == "__main__":
    sys.exit(main())
