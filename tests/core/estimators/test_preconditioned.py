"""Preconditioned LAI against its formula, and the running second moment against a plain loop."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lai_core as lai
from tests.support import explicit
from tests.support.traces import LAYOUTS, Layer, trace

layouts = st.sampled_from((LAYOUTS[0], LAYOUTS[3], LAYOUTS[4]))
seeds = st.integers(0, 2**20)


@pytest.mark.equation("optimizer-preconditioning")
@given(layouts, seeds, st.sampled_from((1.0, 0.5, 0.0)), st.sampled_from(("tokens", "mean", "flatten")))
def test_exponents_against_the_formula(backend, layout, seed, exponent, positions):
    """Exponent 1 as printed, D^-1/2 on both sides; 0.5 as Adam, D^-1/2 once."""
    pair = layout.draw(3, seed), layout.draw(5, seed + 1)
    width = pair[0][-1].output_gradients.shape[-1]
    moment = np.random.default_rng(seed).uniform(0.1, 4.0, size=width)
    half = (moment + 1e-8) ** (-exponent / 2)
    scaled = [
        [*side[:-1], Layer(side[-1].activations, side[-1].output_gradients * half, side[-1].bias)]
        for side in pair
    ]
    expected = explicit.lai_kernel(*scaled, positions)
    validation, training = (trace(side, backend) for side in pair)
    options = {"exponent": exponent, "positions": positions}
    kernel = lai.preconditioned_lai_kernel(validation, training, backend.array(moment), **options)
    scores = lai.preconditioned_lai_scores(validation, training, backend.array(moment), **options)
    np.testing.assert_allclose(backend.numpy(kernel), expected, rtol=0, atol=1e-11 * np.abs(expected).max())
    expected = expected.sum(axis=0)
    np.testing.assert_allclose(
        backend.numpy(scores), expected, rtol=0, atol=1e-11 * np.abs(kernel_sum(kernel, backend))
    )


def kernel_sum(kernel, backend):
    return np.abs(backend.numpy(kernel)).sum()


@pytest.mark.equation("optimizer-preconditioning")
@given(layouts, seeds)
def test_a_constant_second_moment_changes_no_ranking(backend, layout, seed):
    validation, training = (trace(layout.draw(n, seed + n), backend) for n in (3, 5))
    width = training.layers[-1].output_gradients.shape[-1]
    plain = backend.numpy(lai.lai_scores(validation, training))
    scores = lai.preconditioned_lai_scores(validation, training, backend.array(np.full(width, 2.5)))
    np.testing.assert_allclose(backend.numpy(scores) * 2.5, plain, rtol=1e-6)
    assert list(np.argsort(backend.numpy(scores))) == list(np.argsort(plain))


@given(layouts, seeds)
def test_a_lai_summary_serves_the_preconditioned_variant(backend, layout, seed):
    validation, training = (trace(layout.draw(n, seed + n), backend) for n in (3, 5))
    width = training.layers[-1].output_gradients.shape[-1]
    moment = backend.array(np.random.default_rng(seed).uniform(0.1, 4.0, size=width))
    direct = backend.numpy(lai.preconditioned_lai_scores(validation, training, moment))
    summary = lai.summarize(validation, "preconditioned_lai")
    from_summary = backend.numpy(lai.preconditioned_lai_scores(summary, training, moment))
    np.testing.assert_allclose(from_summary, direct, rtol=0, atol=1e-11 * np.abs(direct).max())


@pytest.mark.equation("second-moment")
@given(st.sampled_from(((3, 2), (4, 3, 2))), seeds, st.sampled_from((0.0, 0.5, 0.999)))
def test_the_second_moment_is_a_running_mean_over_samples_and_positions(backend, shape, seed, decay):
    generator = np.random.default_rng(seed)
    batches = [generator.normal(size=shape) for _ in range(3)]
    running, expected = None, None
    for batch in batches:
        running = lai.update_second_moment(running, backend.array(batch), decay=decay)
        mean = [np.mean([row[i] ** 2 for row in batch.reshape(-1, shape[-1])]) for i in range(shape[-1])]
        expected = np.array(mean) if expected is None else decay * expected + (1 - decay) * np.array(mean)
    np.testing.assert_allclose(backend.numpy(running), expected, rtol=1e-12)
