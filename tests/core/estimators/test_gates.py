"""Gate-corrected LAI: unbiased over column directions, within its bound, and where it is Ghost itself."""

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lai_core as lai
from lai_core.estimators.gates import (
    GateTrace,
    gate_factors,
    gate_lai_kernel,
    gate_lai_scores,
    gate_step_error,
    relu_gates,
    squared_column_norms,
)
from tests.support.draws import GENERATORS
from tests.support.entries import halves
from tests.support.inequalities import hunt
from tests.support.networks import Networks, Shape, unconstrained


def paired(traces, gates, norms):
    """Both sides, as the estimator takes them."""
    return [GateTrace(*side, norms) for side in zip(traces, gates, strict=True)]


class Gated:
    """A random linear or ReLU network, as what the estimator takes."""

    def __init__(self, seed, array=np.asarray, bias=False):
        self.case = unconstrained(np.random.default_rng(seed), Shape(depth=3, n_val=2, n_train=3))
        weights = self.case.networks.weights
        self.widths = [weight.shape[1] for weight in weights]
        self.norms = [np.sum(weight[0] ** 2, axis=0) for weight in weights[1:]]
        self.gates = [
            [gate[0] for gate in self.case.networks.gates(batch.activations[0])]
            for batch in (self.case.validation, self.case.training)
        ]
        self.traces = [
            lai.Trace(
                [
                    lai.LayerTrace(array(a[0]), array(g[0]) if last else None, bias=bias)
                    for a, g, last in zip(
                        batch.activations, batch.gradients, (False, False, True), strict=True
                    )
                ]
            )
            for batch in (self.case.validation, self.case.training)
        ]
        norms = [array(norm) for norm in self.norms]
        self.sides = [
            GateTrace(trace, [array(gate) for gate in gates], norms)
            for trace, gates in zip(self.traces, self.gates, strict=True)
        ]

    def expected(self, bias=False):
        """Return the kernel, pair by pair and layer by layer."""
        alpha, beta = self.case.alpha[0] + bias, self.case.beta[0]
        kernel = np.zeros_like(beta[-1])
        for z, j in np.ndindex(*kernel.shape):
            for layer in range(3):
                term = alpha[layer, z, j] * beta[-1, z, j]
                for t in range(layer, 2):
                    both = self.gates[0][t][z] * self.gates[1][t][j]
                    term *= np.sum(self.norms[t] * both) / self.widths[t + 1]
                kernel[z, j] += term
        return kernel


@pytest.mark.equation("gate-corrected")
@given(seed=GENERATORS, bias=st.booleans())
def test_kernel_is_its_formula_and_scores_are_its_sums(backend, seed, bias):
    gated = Gated(seed, backend.array, bias)
    expected = gated.expected(bias)
    close = {"rtol": 1e-9, "atol": 1e-9}
    np.testing.assert_allclose(backend.numpy(gate_lai_kernel(*gated.sides)), expected, **close)
    scores = gate_lai_scores(*gated.sides)
    np.testing.assert_allclose(backend.numpy(scores), expected.sum(0), **close)
    small = gate_lai_kernel(*gated.sides, memory_budget=5 * 2 * 8)  # one training sample at a time
    np.testing.assert_allclose(backend.numpy(small), expected, **close)
    small = gate_lai_scores(*gated.sides, memory_budget=5 * 2 * 8)
    np.testing.assert_allclose(backend.numpy(small), expected.sum(0), **close)


@pytest.mark.equation("gate-corrected")
@given(seed=GENERATORS)
def test_scores_without_oneself(backend, seed):
    gated = Gated(seed, backend.array)
    one = [gated.sides[1]] * 2
    kernel = backend.numpy(gate_lai_kernel(*one))
    scores = backend.numpy(gate_lai_scores(*one, exclude_self=True))
    np.testing.assert_allclose(scores, kernel.sum(0) - np.diag(kernel), rtol=1e-8, atol=1e-8)
    assert (np.diag(kernel) >= 0).all()


@pytest.mark.equation("gate-corrected")
@given(seed=GENERATORS)
def test_factors_are_normalised_traces_of_the_jacobians(backend, seed):
    rng = np.random.default_rng(seed)
    weight, slopes_z, slopes_j = (rng.standard_normal(size) for size in ((4, 3), (2, 3), (3, 3)))
    norms = squared_column_norms(backend.array(weight))
    found = gate_factors(backend.array(slopes_z), backend.array(slopes_j), norms, width=4)
    for z, j in np.ndindex(2, 3):
        left, right = (slopes[:, None] * weight.T for slopes in (slopes_z[z], slopes_j[j]))
        assert backend.numpy(found)[z, j] == pytest.approx(np.trace(left.T @ right) / 4, rel=1e-9)


@pytest.mark.equation("gate-corrected")
@given(inputs=halves((3, 2), -2, 2), weight=halves((2, 2), -2, 2))
def test_gates_of_relu_layers_are_read_off_the_trace_and_closed_at_zero(backend, inputs, weight):
    before = inputs @ weight.T
    layers = [
        lai.LayerTrace(backend.array(inputs)),
        lai.LayerTrace(backend.array(np.maximum(before, 0)), backend.array(np.ones((3, 1)))),
    ]
    (gates,) = relu_gates(lai.Trace(layers))
    np.testing.assert_array_equal(backend.numpy(gates), before > 0)


def directions(norms, rows):
    """List matrices whose columns lie along the axes, either way: every direction alike, on average."""
    choices = [sign * axis for axis in np.eye(rows) for sign in (1.0, -1.0)]
    for columns in itertools.product(choices, repeat=len(norms)):
        yield np.stack(columns, axis=1) * np.sqrt(norms)


@pytest.mark.equation("gate-corrected")
@pytest.mark.parametrize("rows", [2, 3])
@settings(max_examples=2)
@given(seed=GENERATORS)
def test_ghost_on_average_over_column_directions(seed, rows):
    """Given activations, gates, column norms and last gradients: every weight matrix listed."""
    rng = np.random.default_rng(seed)
    norms = [rng.uniform(0.2, 2.0, 2), rng.uniform(0.2, 2.0, rows)]
    activations = [rng.standard_normal((2, 1, width)) for width in (3, 2, rows)]
    slopes = [rng.uniform(0.0, 1.0, (2, 1, width)) for width in (2, rows)]
    last = rng.standard_normal((2, 1, 2))
    listed = [np.stack(list(directions(norms[0], rows))), np.stack(list(directions(norms[1], 2)))]
    pairs = np.indices([len(each) for each in listed]).reshape(2, -1)
    lower, upper = (each[index] for each, index in zip(listed, pairs, strict=True))

    def trace(side, gradients):
        together = zip(activations, gradients, strict=True)
        return lai.Trace(
            [lai.LayerTrace(np.broadcast_to(a[side], (len(g), a.shape[-1])), g) for a, g in together]
        )

    traces = []  # one sample each for every choice of the two matrices
    for side in (0, 1):
        middle = (last[side] @ upper)[:, 0] * slopes[1][side]
        bottom = (middle[:, None] @ lower)[:, 0] * slopes[0][side]
        traces.append(trace(side, (bottom, middle, np.repeat(last[side], len(upper), 0))))
    average = np.diag(lai.ghost_kernel(*traces)).mean()
    gates = [[slope[side] for slope in slopes] for side in (0, 1)]
    traces = [
        lai.Trace(
            [lai.LayerTrace(a[side], g) for a, g in zip(activations, (None, None, last[side]), strict=True)]
        )
        for side in (0, 1)
    ]
    found = float(gate_lai_kernel(*paired(traces, gates, norms))[0, 0])
    assert found == pytest.approx(average, rel=1e-9, abs=1e-9)


@pytest.mark.equation("gate-corrected")
def test_counterexample_columns_with_a_preferred_direction():
    """Both columns along the first axis, gradients along the second: below, 0 for Ghost, 1 here."""
    one, weight = np.ones((1, 1)), np.array([[1.0, 1.0], [0.0, 0.0]])
    g = np.array([[0.0, 1.0]])
    layers = [lai.LayerTrace(one, g @ weight), lai.LayerTrace(np.zeros((1, 2)), g)]
    trace, slopes = lai.Trace(layers), [np.ones((1, 2))]
    assert float(lai.ghost_kernel(trace, trace)[0, 0]) == 0.0
    gated = GateTrace(trace, slopes, [squared_column_norms(weight)])
    assert float(gate_lai_kernel(gated, gated)[0, 0]) == 1.0


@pytest.mark.equation("gate-corrected")
@given(seed=GENERATORS)
def test_it_is_ghost_in_linear_networks_of_scaled_orthogonal_layers(backend, seed):
    rng = np.random.default_rng(seed)
    turns = [rng.uniform(0.2, 2.0) * np.linalg.qr(rng.standard_normal((3, 3)))[0][None] for _ in range(3)]
    networks = Networks(tuple(turns))
    batches = [networks.run(*rng.standard_normal((2, 1, n, 3))) for n in (2, 4)]
    traces = [batch.trace(0, backend.array) for batch in batches]
    gates = [[backend.array(g[0]) for g in networks.gates(batch.activations[0])] for batch in batches]
    norms = [squared_column_norms(backend.array(turn[0])) for turn in turns[1:]]
    ghost = backend.numpy(lai.ghost_kernel(*traces))
    found = gate_lai_kernel(*paired(traces, gates, norms))
    np.testing.assert_allclose(backend.numpy(found), ghost, rtol=1e-8, atol=1e-8)


@pytest.mark.equation("gate-step-error")
@given(seed=GENERATORS)
def test_one_steps_error_is_within_its_bound(backend, seed):
    rng = np.random.default_rng(seed)
    weight, slopes_z, slopes_j = (rng.standard_normal(size) for size in ((3, 4), (5, 4), (5, 4)))
    g, h = rng.standard_normal((2, 5, 3))
    inputs = [backend.array(array) for array in (weight, slopes_z, slopes_j, g, h)]
    errors, bounds = (backend.numpy(side) for side in gate_step_error(*inputs))
    for index in range(5):
        below = [s * (v @ weight) for s, v in ((slopes_z[index], g[index]), (slopes_j[index], h[index]))]
        gamma = np.sum(weight**2 * slopes_z[index] * slopes_j[index]) / 3
        assert errors[index] == pytest.approx(
            abs(below[0] @ below[1] - gamma * (g[index] @ h[index])), rel=1e-8, abs=1e-10
        )
    hunt(errors, bounds)
    assert (errors <= bounds * (1 + 1e-9) + 1e-12).all()


@pytest.mark.equation("gate-step-error")
@given(seed=GENERATORS)
def test_top_directions_attain_the_bound(seed):
    """Both gradients along the direction that the operator stretches most."""
    rng = np.random.default_rng(seed)
    weight, slopes = rng.standard_normal((3, 4)), rng.uniform(0, 1, 4)
    operator = (weight * slopes**2) @ weight.T
    rest = operator - np.trace(operator) / 3 * np.eye(3)
    values, vectors = np.linalg.eigh(rest)
    top = vectors[:, np.argmax(np.abs(values))]
    error, bound = gate_step_error(weight, slopes, slopes, top, top)
    assert float(error) == pytest.approx(float(bound), rel=1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ((0, {"gates": []}), "validation.gates: expected 2 arrays, one for every layer but the last, got 0"),
        ((1, {"gates": [np.ones((3, 2))]}), "training.gates: expected 2 arrays"),
        ((0, {"gates": [np.ones((2, 9))] * 2}), r"validation.gates\[0\]: expected shape \(2, "),
        ((1, {"column_norms": [np.ones(9), np.ones(9)]}), r"training.column_norms\[0\]: expected shape"),
    ],
)
def test_gates_that_do_not_fit_are_refused(change, message):
    sides, (place, fields) = Gated(0).sides, change
    sides[place] = replace(sides[place], **fields)
    with pytest.raises(ValueError, match=message):
        gate_lai_kernel(*sides)


@pytest.mark.parametrize(("place", "role"), [(0, "validation"), (1, "training")])
def test_a_trace_without_gates_is_refused(place, role):
    sides = Gated(0).sides
    sides[place] = sides[place].trace
    with pytest.raises(TypeError, match=f"^{role}: expected a GateTrace, got Trace$"):
        gate_lai_scores(*sides)


def test_sides_that_do_not_fit_are_named_in_their_order():
    (validation, training), narrow = Gated(0).sides, np.ones((3, 1))
    last = replace(training.trace.layers[-1], activations=narrow)
    with pytest.raises(ValueError, match=r"^training\.layers\[2\]: .* 3 as in validation, got 1"):
        gate_lai_scores(validation, replace(training, trace=lai.Trace([*training.trace.layers[:-1], last])))
    with pytest.raises(ValueError, match=r"^exclude_self: .* got 2 validation and 3 training samples"):
        gate_lai_scores(validation, training, exclude_self=True)


def test_column_norms_of_the_validation_side_are_not_read():
    sides = Gated(0).sides
    kernel = gate_lai_kernel(*sides)
    sides[0] = replace(sides[0], column_norms=())
    np.testing.assert_array_equal(gate_lai_kernel(*sides), kernel)


def test_layers_that_gates_do_not_know_are_refused():
    one, many = np.ones((2, 2)), np.ones((2, 3, 2))
    for layer, message in (
        (lai.LayerTrace(many, many), "expected a dense layer with activations"),
        (lai.LayerTrace(one, one, groups=2), "expected a dense layer with activations"),
    ):
        trace = lai.Trace([layer, layer])
        with pytest.raises(ValueError, match=message):
            gate_lai_kernel(*[GateTrace(trace, [one], [one[0]])] * 2)
    shared = lai.Trace([lai.LayerTrace(one, one, weight="w")] * 2)
    with pytest.raises(ValueError, match="expected a matrix of its own"):
        gate_lai_kernel(*[GateTrace(shared, [one], [one[0]])] * 2)
    plain = lai.Trace([lai.LayerTrace(one, one)])
    assert float(gate_lai_kernel(*[GateTrace(plain, [])] * 2)[0, 0]) == 4.0
    with pytest.raises(ValueError, match="weight: expected shape"):
        squared_column_norms(np.ones(3))
    with pytest.raises(ValueError, match="training_gates: expected shape"):
        gate_step_error(one, one[0], np.ones(3), one[0], one[0])


def chain(*records):
    return lai.Trace([*records, lai.LayerTrace(np.ones((2, 3)), np.ones((2, 1)))])


@pytest.mark.parametrize(
    ("record", "got"),
    [
        (lai.EmbeddingTrace(np.zeros((2, 3), int), None, rows=4, name="table"), "none"),
        (lai.LayerTrace(np.ones((2, 5, 3)), name="table"), "shape (2, 5, 3)"),
        (lai.LayerTrace(np.ones((2, 4)), groups=2, name="table"), "shape (2, 4)"),
    ],
)
def test_what_is_no_dense_layer_is_named(record, got):
    message = (
        "trace.layers[0] ('table'): expected a dense layer with activations (n, d) and groups=1, got "
        f"{got}; lai_kernel knows positions and groups"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        relu_gates(chain(record))


def test_a_matrix_is_used_once_in_a_chain():
    layers = [lai.LayerTrace(np.ones((2, 3)), weight=key) for key in ("a", None, "b", None, "a")]
    assert [gate.shape for gate in relu_gates(chain(*layers[:4]))] == [(2, 3)] * 4
    message = "trace.layers[4]: expected a matrix of its own, got the key 'a' of an earlier layer"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        relu_gates(chain(*layers))


@pytest.mark.parametrize(
    ("side", "change", "message"),
    [
        (0, {"gates": []}, "validation.gates: expected 1 arrays, one for every layer but the last, got 0"),
        (1, {"gates": [np.ones((2, 3))] * 2}, "training.gates: expected 1 arrays, one for every layer but"),
        (
            1,
            {"column_norms": []},
            "training.column_norms: expected 1 arrays, one for every layer but the last",
        ),
        (0, {"gates": [np.ones((3, 3))]}, "validation.gates[0]: expected shape (2, 3), got (3, 3)"),
        (1, {"column_norms": [np.ones(4)]}, "training.column_norms[0]: expected shape (3,), got (4,)"),
        (
            1,
            {"gates": [np.ones((2, 3), int)]},
            "training.gates[0]: expected a real floating dtype, got int64",
        ),
    ],
)
def test_gates_that_do_not_fit_are_named(side, change, message):
    given = {"gates": [np.ones((2, 3))], "column_norms": [np.ones(3)]}
    sides = [GateTrace(chain(lai.LayerTrace(np.ones((2, 2)))), **given) for _ in range(2)]
    lai_kernel = gate_lai_kernel(*sides)
    assert lai_kernel.tolist() == [[2 * 3 + 3] * 2] * 2  # alphas of 2 and 3, a gain of 3 gates and norms
    sides[side] = replace(sides[side], **change)
    with pytest.raises((ValueError, TypeError), match=f"^{re.escape(message)}"):
        gate_lai_kernel(*sides)
    with pytest.raises(TypeError, match=r"^training: expected a GateTrace, got Trace$"):
        gate_lai_scores(sides[0], sides[0].trace)
