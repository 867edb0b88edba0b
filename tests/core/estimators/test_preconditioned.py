"""Preconditioned LAI against its formula, and the running second moment against a plain loop."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lai_core as lai
from tests.support import explicit
from tests.support.draws import GENERATORS
from tests.support.traces import LAYOUTS, Layer, rows, trace

layouts = st.sampled_from((LAYOUTS[0], LAYOUTS[3], LAYOUTS[4]))


@pytest.mark.equation("optimizer-preconditioning")
@given(
    layouts,
    GENERATORS,
    st.sampled_from((1.0, 0.5, 0.0)),
    st.sampled_from(("tokens", "mean", "flatten")),
    st.sampled_from((1e-8, 0.5)),
)
def test_exponents_against_the_formula(backend, layout, seed, exponent, positions, epsilon):
    """Exponent 1 as printed, D^-1/2 on both sides; 0.5 as Adam, D^-1/2 once; a summary serves."""
    pair = layout.draw(3, seed), layout.draw(5, seed + 1)
    width = pair[0][-1].output_gradients.shape[-1]
    moment = np.random.default_rng(seed).uniform(0.1, 4.0, size=width)
    half = (np.sqrt(moment) + epsilon) ** -exponent
    scaled = [
        [*side[:-1], Layer(side[-1].activations, side[-1].output_gradients * half, side[-1].bias)]
        for side in pair
    ]
    expected = explicit.lai_kernel(*scaled, positions)
    validation, training = (trace(side, backend) for side in pair)
    options = {"exponent": exponent, "epsilon": epsilon, "positions": positions}
    atol = 1e-11 * np.abs(expected).sum()
    sides = [(validation, expected.sum(axis=0))]
    for z, row in enumerate(expected):  # each validation sample alone
        sides.append((trace(rows(pair[0], [z]), backend), row))
    if positions != "flatten":
        summary = lai.summarize(validation, "preconditioned_lai", positions=positions)
        sides.append((summary, expected.sum(axis=0)))
    for side, wanted in sides:
        scores = lai.preconditioned_lai_scores(side, training, backend.array(moment), **options)
        np.testing.assert_allclose(backend.numpy(scores), wanted, rtol=0, atol=atol)


@pytest.mark.equation("second-moment")
@given(st.sampled_from(((3, 2), (4, 3, 2))), GENERATORS, st.sampled_from((0.0, 0.5, 0.999)))
def test_second_moments_average_samples_and_positions(backend, shape, seed, decay):
    generator = np.random.default_rng(seed)
    batches = [generator.normal(size=shape) for _ in range(3)]
    running, expected = None, None
    for batch in batches:
        running = lai.update_second_moment(running, backend.array(batch), decay=decay)
        mean = [np.mean([row[i] ** 2 for row in batch.reshape(-1, shape[-1])]) for i in range(shape[-1])]
        expected = np.array(mean) if expected is None else decay * expected + (1 - decay) * np.array(mean)
    np.testing.assert_allclose(backend.numpy(running), expected, rtol=1e-12)


@pytest.mark.equation("adam-readouts")
@given(layouts, GENERATORS, st.sampled_from(("tokens", "mean")))
def test_input_moments_act_as_scaled_inputs(backend, layout, seed, positions):
    sides = layout.draw(3, seed), layout.draw(5, seed + 1)
    validation, training = (trace(side, backend) for side in sides)
    width = training.layers[-1].output_gradients.shape[-1]
    moments = lai.update_input_second_moments(None, training)
    for layer, moment in zip(sides[1], moments, strict=True):
        mean = (layer.activations**2).reshape(-1, layer.activations.shape[-1]).mean(0)
        np.testing.assert_allclose(backend.numpy(moment), mean, rtol=1e-6)
    scaled = [
        [
            Layer(x.activations * (backend.numpy(m) ** 0.5 + 1e-8) ** -0.5, x.output_gradients, x.bias)
            for x, m in zip(side, moments, strict=True)
        ]
        for side in sides
    ]
    expected = explicit.lai_kernel(*scaled, positions).sum(0)
    unit = backend.array(np.full(width, (1 - 1e-8) ** 2))
    given = {"input_second_moments": moments, "exponent": 0.5, "positions": positions}
    for side in (validation, lai.summarize(validation, "lai", positions=positions)):
        scores = backend.numpy(lai.preconditioned_lai_scores(side, training, unit, **given))
        np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-9 * (1 + np.abs(expected).max()))
    again = lai.update_input_second_moments(moments, training, decay=0.5)
    np.testing.assert_allclose(backend.numpy(again[0]), backend.numpy(moments[0]), rtol=1e-6)


def test_second_moments_average_valid_positions():
    gradients = np.array([[[1.0], [2.0]], [[3.0], [9.0]]])
    valid = np.array([[True, True], [True, False]])
    assert lai.update_second_moment(None, gradients, valid=valid).tolist() == [(1 + 4 + 9) / 3]
    assert lai.update_second_moment(None, gradients, valid=~valid).tolist() == [81.0]
    assert lai.update_second_moment(None, gradients, valid=valid & ~valid).tolist() == [0.0]
    wide = gradients * np.array([1.0, 2.0, 3.0])
    moment = lai.update_second_moment(None, wide, valid=valid)
    np.testing.assert_allclose(moment, np.array([1, 4, 9]) * 14 / 3)
