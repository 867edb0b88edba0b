"""The theory measured on trained networks: the certificates hold there, and the page's tables are whole."""

import json
from pathlib import Path

import pytest
import torch

from experiments.figures import chains, trained
from experiments.figures.trained import digits
from experiments.measured import study as measured
from experiments.measured.command import ADVICE, CERTIFICATES, CONSTANTS, MEASURED, tables
from experiments.measured.study import BUILDERS, Trained, certificates
from experiments.methods.base import LOSS
from experiments.networks import perceptron

ROOT = Path(__file__).parents[2]


def test_the_committed_numbers_fill_every_table():
    found = json.loads(MEASURED.read_text(encoding="utf-8"))
    for name, columns in (("constants", CONSTANTS), ("advice", ADVICE), ("certificates", CERTIFICATES)):
        assert all(set(columns) <= set(row) for row in found[name].values())
        assert all(row in tables() for row in found[name])
    assert list(found["constants"]) == list(found["advice"]) == list(BUILDERS)
    assert found["command"] == f"python -m experiments measured --out {MEASURED.relative_to(ROOT).as_posix()}"


@pytest.mark.slow
def test_certificates_hold_and_decide_more_with_more_layers():
    found = dict(certificates())
    for name in ("ReLU, 0 steps", "GELU, 300 steps"):
        shares = [found[f"{name}, top {top} of 4"]["signs"] for top in (1, 2, 3)]
        assert shares == sorted(shares)


def test_the_conservative_bound_is_above_the_gap_of_a_network():
    training, pool = digits()
    model = perceptron((64, 8, 10))
    batches = [(x[:8], y[:8]) for x, y in (pool, training)]
    network = Trained(model, torch.optim.Adam(model.parameters()), LOSS, *batches, [batches[1]])
    assert measured.constants(network)["conservative_over_gap"] >= 1.0


def test_the_printed_bound_holds_for_lli_and_not_for_lai():
    found = chains.gaps()
    pairs = zip(found["printed bound"], found["LLI's error"], found["LAI's error"], strict=True)
    assert all(bound >= last * (1 - 1e-12) for bound, last, _ in pairs)
    assert found["LAI's error"][0] > 100 * found["printed bound"][0]
    assert all(b >= e for b, e in zip(found["corrected bound"], found["LAI's error"], strict=True))


def test_the_border_of_the_map_is_the_theorems():
    for row, layers in zip(chains.nearer(), chains.DEPTHS, strict=True):
        assert abs(chains.RATES[row.argmax()] - chains.threshold(layers)) < 0.006


def test_drawn_weights_spread_as_the_recursion_says():
    for one, other in zip(chains.spread(32)[:4], chains.simulated_spread(32)[:4], strict=True):
        assert abs(other / one - 1) < 0.15


def test_error_bars_hold_nearly_as_often_as_they_say():
    found = trained.error_bars(draws=20, steps=50)
    assert 0.85 < found["normal, every sample"]["held"] <= 1.0
    assert found["empirical Bernstein, every sample"]["held"] == 1.0


@pytest.mark.parametrize("steps", trained.STEPS)
def test_the_recorded_errors_of_two_layers_are_measured_again(steps):
    found = trained.errors(steps, trained.DEPTHS[0])
    recorded = {name: curve[0] for name, curve in trained.read("depth")[str(steps)].items()}
    assert found == pytest.approx(recorded, rel=0.01), "run `python -m experiments figures`"


def test_the_recorded_correlations_of_an_untrained_network_are_measured_again():
    found = trained.correlations(0, trained.RATES[:1])
    recorded = {name: curve[:1] for name, curve in trained.read("one_step")["0"].items()}
    assert found == {name: pytest.approx(of, abs=0.001) for name, of in recorded.items()}


@pytest.mark.slow
def test_the_recorded_error_bars_are_measured_again():
    recorded = trained.read("error_bars")
    found = trained.error_bars()
    assert found == {name: pytest.approx(of, rel=0.02, abs=0.002) for name, of in recorded.items()}
