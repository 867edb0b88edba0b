"""Random programs, judged by `jax.grad` of one sample: Ghost's kernel, exact scores and curated steps."""

import lai_jax
import numpy as np
import optax
import pytest
from lai_jax._program.errors import UnexplainedError

from tests.lai_jax.support import HALF, computed, explained, gradients, kernel_error, relative, stepped
from tests.support.jax_programs import losses, program

PROGRAMS, GROUPS = 20, 4


def find_last(model, batch):
    """Return the last layer that LAI names; None where it says that it can read none."""
    try:
        return explained(*model, batch)[-1]
    except UnexplainedError as refusal:
        if not any(why in str(refusal) for why in ("without another layer behind it", "(a layer), got none")):
            raise
        return None


def find_error(seed):
    """Return the largest error of Ghost's kernel, exact scores, and a step on half of the rows."""
    drawn = program(seed)
    model, batch = (drawn.apply, drawn.params, losses), (drawn.inputs, drawn.targets)
    assert find_last(model, batch) == drawn.last
    rows = gradients(*model, batch)
    errors = [kernel_error(computed(lai_jax.trace, *model, *batch, gradients="all"), rows)]
    if drawn.last:
        scores = computed(lai_jax.exact_scores, *model, batch, batch)
        errors.append(relative(scores, rows @ rows.sum(0)))
        try:
            after, _, report = stepped(model, batch, batch, tx=optax.sgd(1.0), policy=HALF, rows=0.5)
        except UnexplainedError as refusal:
            if "samples pass through cond" not in str(refusal):  # no step on some of the rows
                raise
        else:
            moved = [(drawn.params[name] - after[name]).ravel() for name in sorted(drawn.params)]
            errors.append(relative(np.concatenate(moved), report.weights @ rows))
    return max(errors)


@pytest.mark.parametrize("group", range(GROUPS))
def test_random_programs_are_exact(group):
    for seed in range(group, PROGRAMS, GROUPS):
        assert find_error(seed) < 1e-10, (seed, program(seed).made_of)
