"""Gate-corrected LAI: its formula, its factors, and what they refuse."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lai_core as lai
from lai_core.estimators.gates import (
    GateTrace,
    gate_lai_scores,
    squared_column_norms,
)
from tests.support.draws import GENERATORS
from tests.support.networks import Shape, unconstrained
from tests.support.refusals import Table, refusals


def test_columns_norms_are_squared():
    assert squared_column_norms(np.asarray([[3.0, 1.0], [4.0, 2.0]])).tolist() == [25.0, 5.0]


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
        norms = [array(norm) for norm in self.norms]
        self.sides = [self.side(place, slice(None), array, bias, norms) for place in range(2)]

    def side(self, place, rows, array, bias, norms):
        batch = (self.case.validation, self.case.training)[place]
        outputs = None, None, array(batch.gradients[-1][0][rows])
        pairs = zip(batch.activations, outputs, strict=True)
        trace = lai.Trace([lai.LayerTrace(array(a[0][rows]), g, bias=bias) for a, g in pairs])
        return GateTrace(trace, [array(gate[rows]) for gate in self.gates[place]], norms)

    def single(self, z, array, bias):
        """Return one validation sample, without column norms, which are not read."""
        return self.side(0, slice(z, z + 1), array, bias, ())

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
def test_scores_match_the_formula(backend, seed, bias):
    gated = Gated(seed, backend.array, bias)
    expected = gated.expected(bias)
    close = {"rtol": 1e-9, "atol": 1e-9}
    for budget in (2**20, 5 * 2 * 8):  # one training sample at a time
        scores = gate_lai_scores(*gated.sides, memory_budget=budget)
        np.testing.assert_allclose(backend.numpy(scores), expected.sum(0), **close)
    singles = [gated.single(z, backend.array, bias) for z in range(2)]
    for single, row in zip(singles, expected, strict=True):
        np.testing.assert_allclose(backend.numpy(gate_lai_scores(single, gated.sides[1])), row, **close)
    own = [backend.numpy(gate_lai_scores(one, gated.sides[0])) for one in singles]
    scores = backend.numpy(gate_lai_scores(*[gated.sides[0]] * 2, exclude_self=True))
    np.testing.assert_allclose(scores, np.sum(own, 0) - np.diag(own), rtol=1e-8, atol=1e-8)


ones = np.ones


def chain(*records):
    return lai.Trace([*records, lai.LayerTrace(ones((2, 3)), ones((2, 1)))])


def gated(side=0, trace=None, **change):
    """Call with sides of which one is changed; alphas are 2 and 3, the gain of 3 gates and norms 3."""
    given = {"gates": [ones((2, 3))], "column_norms": [ones(3)]}
    sides = [GateTrace(chain(lai.LayerTrace(ones((2, 2)))), **given) for _ in range(2)]
    assert gate_lai_scores(*sides).tolist() == [2 * (2 * 3 + 3)] * 2
    sides[side] = replace(sides[side], trace=trace or sides[side].trace, **change)
    return partial(gate_lai_scores, *sides)


def both(*layers):
    return partial(gate_lai_scores, *[GateTrace(lai.Trace(layers), [ones((2, 2))], [ones(2)])] * 2)


DENSE = "validation.layers[0]: expected a dense layer with activations (n, d) and groups=1, got "
MANY, GROUPED = lai.LayerTrace(*[ones((2, 3, 2))] * 2), lai.LayerTrace(*[ones((2, 2))] * 2, groups=2)
USED = [lai.LayerTrace(ones((2, 3)), weight=key) for key in ("a", None, "b", None)]
REFUSED: Table = {
    "ValueError: validation.gates: expected 1 arrays, one for every layer but the last, got 0": gated(
        gates=[]
    ),
    "ValueError: training.column_norms: expected 1 arrays, one for every": gated(1, column_norms=[]),
    "ValueError: validation.gates[0]: expected shape (2, 3), got (3, 3)": gated(gates=[ones((3, 3))]),
    "TypeError: training.gates[0]: expected a real floating dtype, got int64": (
        gated(1, gates=[ones((2, 3), int)])
    ),
    "TypeError: validation: expected a GateTrace, got Trace": (
        lambda: gate_lai_scores(chain(), GateTrace(chain(), []))
    ),
    f"ValueError: {DENSE}shape (2, 3, 2); lai_kernel knows positions and groups": both(MANY, MANY),
    f"ValueError: {DENSE}shape (2, 2)": both(GROUPED, GROUPED),
    f"ValueError: {DENSE}none": both(
        lai.EmbeddingTrace(np.zeros((2, 3), int), None, rows=4), lai.LayerTrace(*[ones((2, 2))] * 2)
    ),
    "ValueError: validation.layers[1]: expected a matrix of its own": (
        both(*[lai.LayerTrace(ones((2, 2)), ones((2, 2)), weight="w")] * 2)
    ),
    "ValueError: weight: expected shape": lambda: squared_column_norms(ones(3)),
}


test_unfit_gates_are_named = refusals(REFUSED)


def test_uniquely_named_chains_have_gates():
    one = GateTrace(chain(*USED), [ones((2, 3))] * 4, [ones(3)] * 4)
    assert gate_lai_scores(one, one).shape == (2,)
    assert gate_lai_scores(*[GateTrace(chain(), [])] * 2).tolist() == [6.0] * 2
