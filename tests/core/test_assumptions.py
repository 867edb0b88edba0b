"""A1, A2, A3 and the non-expansive variant, measured: the constants hold, and no smaller ones do."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lai_core as lai
from lai_core.assumptions import (
    AssumptionReport,
    activation_bound,
    alignment_excess,
    cosines,
    decay_rate,
    measure_assumptions,
    similarities,
    smallest_cosine,
)
from tests.support.backends import BACKENDS
from tests.support.draws import GENERATORS, SHAPES
from tests.support.entries import halves
from tests.support.inequalities import at_most
from tests.support.networks import unconstrained
from tests.support.refusals import Table, check_refusal
from tests.support.traces import Layout, trace


def _report(case, **options):
    return measure_assumptions(case.validation.trace(), case.training.trace(), **options)


@pytest.mark.equation("similarities")
@given(GENERATORS, SHAPES)
def test_similarities_are_layerwise_inner_products(seed, shape):
    case = unconstrained(np.random.default_rng(seed), shape)
    measured = similarities(case.validation.trace(), case.training.trace())
    np.testing.assert_allclose(measured.alpha, case.alpha[0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(measured.beta, case.beta[0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(measured.validation_gradients, case.validation_norms[0], rtol=1e-9)
    np.testing.assert_allclose(measured.training_gradients, case.training_norms[0], rtol=1e-9)


@pytest.mark.equation("similarities")
@given(GENERATORS, st.tuples(*[st.booleans()] * 3))
def test_similarities_reproduce_ghost_and_lai(seed, bias):
    traces = [trace(Layout(((3, 2),) * 3, bias=bias).draw(n, seed + n), BACKENDS[0]) for n in (2, 4)]
    found = similarities(*traces)
    np.testing.assert_allclose((found.alpha * found.beta).sum(0), lai.ghost_kernel(*traces), rtol=1e-9)
    layer_aware = found.alpha.sum(0) * found.beta[-1]
    np.testing.assert_allclose(layer_aware, lai.lai_kernel(*traces), rtol=1e-9, atol=1e-12)


@pytest.mark.equation("gradient-norm-decay", "bounded-activations", "non-negative-alignment")
@given(GENERATORS, SHAPES)
def test_reports_break_down_by_layer(seed, shape):
    case = unconstrained(np.random.default_rng(seed), shape)
    report = _report(case)
    assert report.layer_rates.max() == report.rho
    assert report.layer_rates[-1] == 0.0
    assert report.layer_inputs.max() == report.C_a
    assert report.layer_cosines.min() == report.smallest_cosine
    for layer in range(shape.depth - 1):
        pairs = [(n[0, layer], n[0, -1]) for n in (case.validation_norms, case.training_norms)]
        alone = max(float(decay_rate(np.stack(pair)).max()) for pair in pairs)
        np.testing.assert_allclose(report.layer_rates[layer], alone ** (1 / (shape.depth - 1 - layer)))
    inputs = [np.linalg.norm(a[0], axis=-1).max() for a in case.validation.activations]
    assert at_most(inputs, report.layer_inputs)


@pytest.mark.equation("gradient-norm-decay")
@given(halves((3, 3), 0, 3))
def test_decay_rate_handles_dead_units(norms):
    """Where the last gradient is 0 and a lower one is not no rate is large enough; where all are 0 any is."""
    rates = decay_rate(norms)
    for rate, (lowest, lower, last) in zip(rates, norms.T, strict=True):
        if last == 0:
            assert rate == (np.inf if lowest or lower else 0.0)
        else:
            np.testing.assert_allclose(rate, max(np.sqrt(lowest / last), lower / last), rtol=1e-12)


@pytest.mark.equation("non-negative-alignment", "non-expansive", "lai-lower-bound", "bounded-activations")
@given(halves((2, 4, 2), -2, 2), halves((2, 4, 2), -2, 2))
def test_reports_cover_vanishing_and_repeated_vectors(inputs, gradients):
    """Two layers, two validation and two training samples; a gradient of 0 has the cosine 0 to any other."""
    sides = [
        lai.Trace([lai.LayerTrace(a[rows], g[rows]) for a, g in zip(inputs, gradients, strict=True)])
        for rows in (slice(0, 2), slice(2, 4))
    ]
    report = measure_assumptions(*sides, tolerance=0.0)
    pairs = [(z, j) for z in (0, 1) for j in (2, 3)]
    alpha = [[a[z] @ a[j] for z, j in pairs] for a in inputs]
    products = [[(g[z] @ g[j], np.sqrt((g[z] @ g[z]) * (g[j] @ g[j]))) for z, j in pairs] for g in gradients]
    angles = np.array([[beta / size if size else 0.0 for beta, size in layer] for layer in products])
    assert report.alpha_bar == min(alpha[1])
    assert report.smallest_alpha == min(alpha[0] + alpha[1])
    np.testing.assert_allclose(report.smallest_cosine, angles.min(), atol=1e-12)
    np.testing.assert_allclose(report.excess, max(0.0, (angles[0] - angles[1]).max()), atol=1e-12)
    assert (
        report.opposing_share
        == (np.array([[beta for beta, _ in layer] for layer in products]) < 0).any(0).mean()
    )
    np.testing.assert_allclose(report.C_a, np.linalg.norm(inputs, axis=-1).max(), rtol=1e-12)
    np.testing.assert_allclose(report.rho, decay_rate(np.linalg.norm(gradients, axis=-1)).max(), rtol=1e-12)


@pytest.mark.equation("gradient-norm-decay", "bounded-activations", "non-negative-alignment", "non-expansive")
def test_examples_satisfy_or_violate_each_assumption():
    kept, halved = np.ones((3, 1)), np.array([[0.25], [0.5], [1.0]])
    assert decay_rate(halved) == 0.5  # layers of norm 1/2
    assert decay_rate(kept) == 1.0  # a residual block whose branch is 0

    def angles(z, j):  # of gradients (L, n, d)
        norms = np.linalg.norm(z, axis=-1), np.linalg.norm(j, axis=-1)
        return cosines(z @ np.swapaxes(j, 1, 2), *norms)

    same = np.random.default_rng(0).standard_normal((3, 1, 4))
    assert smallest_cosine(angles(same, same)) == pytest.approx(1.0)
    assert alignment_excess(angles(same, same)) == pytest.approx(0.0)
    labels = np.array([[[-0.3, 0.3]]]), np.array([[[0.6, -0.6]]])  # probabilities less one-hot labels
    assert smallest_cosine(angles(*labels)) == pytest.approx(-1.0)
    g = np.array([[1.0, 1.0]]), np.array([[1.0, -1.0]])
    narrow = [np.stack([side @ np.diag([1.0, 0.0]), side]) for side in g]
    assert alignment_excess(angles(*narrow)) == pytest.approx(1.0)
    turned = [np.stack([2.0 * side @ np.array([[0.0, 1.0], [-1.0, 0.0]]), side]) for side in g]
    assert alignment_excess(angles(*turned)) == pytest.approx(0.0)
    assert activation_bound(np.array([[1.0, 3.0]])) == 3.0  # of a finite set, the largest norm


def refused(*layers, other=None, measure=similarities):
    sides = lai.Trace(layers), lai.Trace(layers if other is None else other)
    return partial(measure, *sides)


ONE, SHARED = (lai.LayerTrace(np.ones((2, 2)), np.ones((2, 2)), weight=key) for key in (None, "W"))
REFUSED: Table = {
    "ValueError: …has positions": refused(lai.LayerTrace(np.ones((2, 3, 1)), np.ones((2, 3, 1)))),
    "ValueError: …is block-diagonal": refused(lai.LayerTrace(np.ones((2, 2)), np.ones((2, 2)), groups=2)),
    "ValueError: …shares its matrix": refused(SHARED, SHARED),
    "ValueError: training: expected 2 layers as in validation, got 1": [
        refused(ONE, ONE, other=[ONE], measure=measure) for measure in (similarities, measure_assumptions)
    ],
}


@pytest.mark.parametrize("said", REFUSED)
def test_layers_need_one_alpha_and_beta(said):
    similarities(*[lai.Trace([ONE, SHARED])] * 2)  # one use of a named matrix is not shared
    check_refusal(said, REFUSED[said])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tolerance_is_sixteen_machine_epsilons(dtype):
    layer = lai.LayerTrace(np.ones((1, 1), dtype), np.ones((1, 1), dtype))
    report = measure_assumptions(*[lai.Trace([layer])] * 2)
    assert report.tolerance == 16 * np.finfo(dtype).eps


def report(**margins):
    """Make a report of these margins, with a tolerance of 1/4; an assumption without one holds well."""
    scalars = {"rho": 0.5, "C_a": 2.0, "alpha_bar": 1.0, "smallest_alpha": 1.0, "smallest_cosine": 1.0}
    layers = dict.fromkeys(("layer_rates", "layer_inputs", "layer_cosines"), np.ones(1))
    values = {**scalars, "excess": 0.0, "opposing_share": 0.0, **margins}
    return AssumptionReport(**{k: np.asarray(v) for k, v in values.items()}, **layers, tolerance=0.25)


@pytest.mark.equation("gradient-norm-decay", "bounded-activations", "non-negative-alignment", "non-expansive")
@pytest.mark.parametrize(
    ("assumption", "margin", "holds", "fails"),
    [
        ("decay_holds", "rho", 0.999, 1.0),
        ("activations_bounded", "C_a", 1e100, np.inf),
        ("alignment_holds", "smallest_cosine", -0.25, -0.251),
        ("non_expansive_holds", "excess", 0.25, 0.251),
        ("embeddings_agree", "smallest_alpha", -1.0, -1.001),  # 1/4 of the largest squared norm, 4
    ],
)
def test_where_an_assumption_ceases_to_hold(assumption, margin, holds, fails):
    assert getattr(report(**{margin: holds}), assumption)
    assert not getattr(report(**{margin: fails}), assumption)
    assert report(**{margin: holds}).describe().count("holds") == 5
    assert report(**{margin: fails}).describe().count("fails") == 1
