"""What an argument is where it is left out, and the sizes at which the library changes its way."""

import inspect
from dataclasses import replace

import lai_storage
import numpy as np
import pytest
from lai_storage import report, tables, top

import lai_core as lai
from lai_core import (
    _adapters,
    assumptions,
    bounds,
    calibration,
    influence,
    mixtures,
    optimizers,
    propagation,
    shapley,
    variance,
)
from lai_core._adapters import AHEAD
from lai_core._engine import factored
from lai_core._engine.checks import DEFAULT_MEMORY_BUDGET
from lai_core._engine.gradients import Workspace
from lai_core._engine.namespace import namespace_of
from lai_core._engine.outer import OuterGradient
from lai_core.estimators import costs, gates, policies, preconditioned, sketches
from lai_core.records._once import KEPT

GIB = 2**30
USUAL = {
    "memory_budget": GIB, "exclude_self": False, "positions": None, "layer_weights": None,
    "normalize": "kept", "decay": 0.999, "bias": False, "weight": None, "groups": 1, "name": "",
    "output_gradients": None, "valid": None, "ids": None, "validation_ids": None, "samples": None,
    "exponent": 1.0, "epsilon": 1e-8, "input_second_moments": None, "padding": None,
    "stride": None, "dilation": None, "kernel": (), "column_norms": (), "factored": False,
    "floor": 0.1, "asarray": None, "average": False, "worst": 20, "top": 10,
    "title": "Scores of a data set", "show": None, "damping": 0.0, "tolerance": None, "rate": 0.1,
    "sizes": None, "horizon": 10.0, "confidence": 0.9999,
}  # fmt: skip
"""One meaning everywhere; where a function takes a trace alone, and a bar for a long run, differ below."""
OWN = {
    ("top_samples", "progress"): False,
    **{(name, "floor"): 0.05 for name in ("Mixture", "update_mixture")},
    **{
        (name, "positions"): "tokens"
        for name in ("lai_kernel", "self_influence", "summarize", "segment_scores")
    },
}  # fmt: skip


def functions():
    """Return the public functions and kinds; what Adam's settings are, torch says."""
    core = lai, costs, gates, preconditioned, sketches, policies, calibration, mixtures
    theory = influence, assumptions, bounds, propagation, variance, optimizers, shapley
    rooms = (*core, *theory, lai_storage, top, tables, report)
    found = {
        each
        for room in rooms
        for name, each in vars(room).items()
        if not name.startswith("_") and getattr(each, "__module__", "").startswith(room.__name__)
    }
    return sorted(
        (each for each in found if callable(each) and each is not optimizers.Adam),
        key=lambda each: each.__name__,
    )


@pytest.mark.parametrize("function", functions(), ids=lambda function: function.__name__)
def test_defaults_are_the_same_everywhere(function):
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.default is not parameter.empty:
            expected = OWN.get((function.__name__, name), USUAL.get(name, "unknown"))
            assert (parameter.default, type(parameter.default)) == (expected, type(expected)), name


def test_budgets_are_as_their_descriptions_say():
    assert DEFAULT_MEMORY_BUDGET == GIB
    assert _adapters.GRADIENT_BUDGET == 2 * GIB
    assert Workspace(np, np.float64, 8).parts == OuterGradient(np.ones((1, 1, 1)), ()).groups == 1
    assert (AHEAD, KEPT) == (1024, 256)


@pytest.mark.parametrize(
    ("positions", "height", "width", "kept"),
    [(1, 256, 256, True), (1, 255, 257, False), (127, 256, 256, True), (128, 256, 256, False)],
)
def test_large_sums_stay_cheaper_factors(positions, height, width, kept):
    """127 * (256 + 256) < 256 * 256 = 2^16, and 255 * 257 = 2^16 - 1."""
    gradient = OuterGradient(np.ones((1, positions, height)), (np.ones((1, positions, width)),))
    work = Workspace(namespace_of({"numpy": np.ones(1)}), np.dtype(np.float64), GIB)
    found = factored.factorize(gradient, work)
    assert (found is not None) == kept == factored.are_cheaper(positions, height, width)
    if kept:
        assert [part.shape for part in found] == [(positions, height), (positions, width)]
        assert factored.count_entries(found) == height * width
        apart = factored.gradient_of(found, work.xp)
        assert (apart.samples, apart.positions) == (positions, 1)
        assert set(factored.factorize(replace(gradient, constant=0.5), work)[-1].tolist()) == {0.5}


def test_small_blocks_are_concatenated():
    """Two blocks of 3 and 5 columns for two samples: 16 numbers, 2^19 products of them with 2^15 rows."""
    blocks = np.ones((2, 1, 3)), np.ones((2, 1, 5))
    gradient = OuterGradient(np.ones((2, 1, 1)), blocks)
    work = Workspace(namespace_of({"numpy": np.ones(1)}), np.dtype(np.float64), 4 * 16 * 8)
    assert [block.shape for block in gradient.side_by_side(2**15, work).columns] == [(2, 1, 8)]
    assert gradient.side_by_side(2**15 + 1, work) is gradient
    assert gradient.side_by_side(1, Workspace(work.xp, work.dtype, 4 * 16 * 8 - 1)) is gradient


def test_a_grouped_matrix_stays_no_factors():
    work = Workspace(namespace_of({"numpy": np.ones(1)}), np.dtype(np.float64), GIB)
    for groups in (1, 2):
        gradient = OuterGradient(np.ones((1, 1, 512)), (np.ones((1, 1, 512)),), groups=groups)
        assert (factored.factorize(gradient, work) is None) == (groups > 1)
