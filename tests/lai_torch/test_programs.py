"""Random torch programs: exact or refused, whatever they are made of."""

import lai_torch
import pytest

import lai_core as lai
from tests.lai_torch.judged import ghost, readouts
from tests.lai_torch.random_programs import HEADS, STEPS, draw
from tests.support.torch_programs import error, gradients, program

SEEDS = range(0, 400, 10)


@pytest.mark.quick
@pytest.mark.parametrize("seed", SEEDS)
def test_ghost_of_ten_random_programs_is_exact_and_refused_for_coupled_samples(seed):
    for one in range(seed, seed + 10):
        drawn = draw(one)
        assert ghost(drawn) == ("refused" if drawn.coupled else "exact"), one


@pytest.mark.quick
@pytest.mark.parametrize("seed", SEEDS)
def test_lai_of_ten_random_programs_reads_every_layer_or_names_it(seed):
    for one in range(seed, seed + 10):
        assert readouts(draw(one)) in {"exact", "refused"}


def test_the_programs_are_made_of_every_part():
    drawn = [draw(seed).model for seed in range(400)]
    assert {name for model in drawn for name in model.names} == set(STEPS)
    assert {model.head_name for model in drawn} == set(HEADS)


@pytest.mark.filterwarnings("ignore")  # of hooks, scripts, sparse tables: the programs' own
@pytest.mark.quick
@pytest.mark.parametrize("seed", range(0, 200, 10))
def test_ghost_of_ten_programs_made_for_exact_scores_is_exact_or_refused(seed):
    for one in range(seed, seed + 10):
        drawn = program(one)
        try:
            trace = lai_torch.trace(drawn.model, drawn.loss, *drawn.training, gradients="all")
        except ValueError:
            continue
        rows = gradients(program(one), drawn.training, alone=True)
        assert error(lai.ghost_kernel(trace, trace), rows @ rows.T) < 1e-7
