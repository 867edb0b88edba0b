"""The theory's functions inside compilers: no value is looked at, so what is traced is what is computed."""

import jax
import numpy as np
import pytest
import torch

from lai_core import influence, optimizers, shapley

ADAM = optimizers.Adam(weight_decay=0.1, max_norm=0.5)
CLASSES = np.array([0, 1, 1])


def everything(rows, others, square, scale, labels):
    """Call every function of arrays once: rows and others `(3, 2)`, square and scale `(2, 2)`."""
    positive = scale[0, ...]
    return (
        influence.removal_influence(rows, others, square, damping=0.5),
        influence.printed_influence(rows, others, square),
        influence.leave_one_out(others, others[:, :, None] * others[:, None, :], damping=0.5),
        influence.inner_product_scores(rows, others),
        influence.directional_scores(lambda at: others @ at, positive, rows[0, ...]),
        influence.descent_remainder(others, learning_rate=0.1, smoothness=2.0),
        influence.certified_learning_rate(rows[:, 0], others, smoothness=2.0),
        influence.pre_activation_gradients(rows, others),
        influence.softmax_feedback(rows, labels, others, labels),
        influence.self_votes(rows @ rows.T),
        optimizers.adam_step(positive, rows[0, ...], rows[1, ...], positive, adam=ADAM, step=3),
        optimizers.adam_derivative_scores(
            rows[2, ...], others, positive, rows[0, ...], rows[1, ...], positive, adam=ADAM, step=3
        ),
        optimizers.adam_direction_scores(rows, others, positive),
        optimizers.preconditioned_ghost_kernel(rows, rows, others, others, scale),
        optimizers.preconditioned_ghost_scores(rows, rows, others, others, scale),
        shapley.one_step_shapley(lambda at: (at * at).sum(), positive, rows, learning_rate=0.1),
        shapley.monte_carlo_shapley(
            lambda at: (at * at).sum(), positive, rows, [[0, 1, 2], [2, 0, 1]], learning_rate=0.1
        ),
        shapley.midpoint_scores(lambda at: 2 * at, positive, rows, learning_rate=0.1),
        shapley.shapley_first_order_bound(rows, learning_rate=0.1, smoothness=2.0),
        shapley.midpoint_error_bound(rows, learning_rate=0.1, hessian_lipschitz=2.0),
    )


def numbers(seed, batch=()):
    generator = np.random.default_rng(seed)
    root = generator.normal(size=(*batch, 2, 2))
    square = root @ np.swapaxes(root, -1, -2) + np.eye(2)
    rows = (generator.normal(size=(*batch, 3, 2)) for _ in range(2))
    return *rows, square, generator.uniform(0.5, 1.0, (*batch, 2, 2)), np.broadcast_to(CLASSES, (*batch, 3))


def flat(found):
    for part in found:
        yield from part if isinstance(part, tuple) else (part,)


def assert_same(found, expected):
    for one, other in zip(flat(found), flat(expected), strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-9, atol=1e-12)


def test_jitted_is_eager():
    arrays = numbers(0)
    assert_same(jax.jit(everything)(*arrays), everything(*arrays))


def test_mapped_is_one_at_a_time():
    arrays = numbers(0, (4,))
    found = jax.jit(jax.vmap(everything))(*arrays)
    for index in range(4):
        one = [array[index] for array in arrays]
        assert_same([tuple(part[index] for part in flat(found))], [tuple(flat(everything(*one)))])


# Torch warns of the cache around array-api-compat's check of types, which it looks through.
@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`:UserWarning")
def test_compiled_by_torch_in_one_graph_is_eager():
    arrays = [torch.from_numpy(np.array(array)) for array in numbers(1)]
    torch._dynamo.reset()
    compiled = torch.compile(everything, fullgraph=True, backend="aot_eager")
    assert_same(compiled(*arrays), everything(*arrays))


def test_half_precision_is_accumulated_in_single(backend):
    """Gradients of 300 times 300: beyond half's range, and the sum of 90,000 ones beyond its integers."""
    half = backend.array(np.full((1, 2), 300.0))
    if backend.name in {"torch", "jax"}:
        half = half.to(torch.bfloat16) if backend.name == "torch" else half.astype("bfloat16")
        scores = influence.inner_product_scores(half, half)
        assert backend.numpy(scores).dtype == np.float32
    else:
        scores = influence.inner_product_scores(half, half)
    assert backend.numpy(scores).tolist() == [180000.0]
