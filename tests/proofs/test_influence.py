"""What the proofs of these statements are about, in numbers, is what `lai_core` computes."""

import numpy as np
import pytest

import lai_core as lai
from lai_core import influence, optimizers, shapley
from lai_core.estimators import costs
from proofs import (
    prove_adam,
    prove_aggregation,
    prove_descent,
    prove_ghost,
    prove_lai,
    prove_removal,
    prove_shapley,
    prove_trace_kinds,
    prove_virtual_readout,
)
from tests.support.statements import in_numbers

pytestmark = pytest.mark.parametrize("seed", range(3))


def close(found, expected):
    np.testing.assert_allclose(np.asarray(found).ravel(), np.ravel(expected), rtol=1e-8, atol=1e-10)


@pytest.mark.equation("removal-influence", "influence")
def test_removal(seed):
    (v, g, hessian, _, _), expected = in_numbers(prove_removal.REMOVAL, 2, seed)
    close(influence.removal_influence(v[None], g[None], hessian), expected)
    (v, g, hessian, _, _), expected = in_numbers(prove_removal.PRINTED, 2, seed)
    close(influence.printed_influence(v[None], g[None], hessian), expected)


@pytest.mark.equation("IP", "descent-meaning", "directional-derivative")
def test_first_order(seed):
    (v, g), expected = in_numbers(prove_descent.SLOPE, 3, seed)
    close(-influence.inner_product_scores(v[None], g[None]), expected)
    (eta, lam, size), expected = in_numbers(prove_descent.REMAINDER, 1, seed)
    gradient = np.array([[np.sqrt(size)]])
    close(influence.descent_remainder(gradient, learning_rate=eta, smoothness=lam), expected)
    (v, g), expected = in_numbers(prove_descent.DIFFERENCE, 3, seed)
    close(influence.inner_product_scores(v[None], g[None]), expected)


def chain(matrices, x, p):
    """Run the proofs' chain, activation s + s^2 / 2, forward and back, as a trace of one sample."""
    inputs, outputs = [], []
    for matrix in matrices:
        inputs.append(x)
        outputs.append(matrix @ x)
        x = outputs[-1] + outputs[-1] ** 2 / 2
    gradients = [p]
    for matrix, below in zip(matrices[:0:-1], outputs[-2::-1], strict=True):
        gradients.insert(0, (matrix.T @ gradients[0]) * (1 + below))
    return inputs, gradients


def ghost(sides, **flags):
    traces = [
        lai.Trace([lai.LayerTrace(a[None], g[None], **flags) for a, g in zip(*side, strict=True)])
        for side in sides
    ]
    return lai.ghost_kernel(*traces)


@pytest.mark.equation("gradient1", "ghost-pre-activation", "ghost-sharing")
def test_ghost_on_chains(seed):
    (matrices, samples, feedback), expected = in_numbers(prove_ghost.CHAIN, 2, seed)
    close(ghost([chain(matrices, x, p) for x, p in zip(samples, feedback, strict=True)]), expected)
    (matrix, samples, behind), expected = in_numbers(prove_ghost.SLOPES, 2, seed)
    sides = []
    for x, p in zip(samples, behind, strict=True):
        feedback = influence.pre_activation_gradients(p[None], (1 + matrix @ x)[None])
        sides.append(([x], [feedback[0]]))
    close(ghost(sides), expected)
    (matrix, samples, feedback), expected = in_numbers(prove_ghost.SHARING, 2, seed)
    sides = [chain([matrix] * 2, x, p) for x, p in zip(samples, feedback, strict=True)]
    close(ghost(sides, weight="shared"), expected)


@pytest.mark.equation("ghost-positions", "ghost-bias")
def test_ghost_with_positions(seed):
    (a, b, g, h), expected = in_numbers(prove_ghost.POSITIONS, 3, seed)
    close(ghost([([a], [g]), ([b], [h])]), expected)
    (a, b, g, h), expected = in_numbers(prove_ghost.BIAS, 3, seed)
    close(ghost([([a], [g]), ([b], [h])], bias=True), expected)


@pytest.mark.equation("convolution-gradient", "embedding-gradient", "gain-gradient")
def test_ghost_of_other_parameters(seed):
    head = lai.LayerTrace(np.zeros((1, 1)), np.zeros((1, 1)))  # a last layer that adds nothing

    def kernel(*records):
        return lai.ghost_kernel(*(lai.Trace([*side, head]) for side in records))

    (x, y, g, h), expected = in_numbers(prove_trace_kinds.CONVOLUTION, 3, seed, side="lhs")
    sides = [
        [lai.ConvolutionTrace(signal[None, None, :], up.T[None], kernel=(2,))]
        for signal, up in ((x, g), (y, h))
    ]
    close(kernel(*sides), expected)
    for index, ids in enumerate(([0, 0, 0], [0, 0, 0], [0, 1, 2], [0, 1, 2])):
        drawn, expected = in_numbers(prove_trace_kinds.EMBEDDING, 3, seed, side="lhs", index=index)
        g, h, a, b, up, down = drawn
        sides = []
        for read, inputs, outputs, places in ((g, a, up, ids), (h, b, down, ids[::-1])):
            table = lai.EmbeddingTrace(np.array([places]), read[None], rows=3, weight="E")
            tied = lai.LayerTrace(inputs[None], outputs[None], weight="E")
            sides.append([table, tied] if index % 2 else [table])
        close(kernel(*sides), expected)
    for index in (0, 1):
        (x, y, g, h), expected = in_numbers(prove_trace_kinds.GAIN, 2, seed, side="lhs", index=index)
        sides = [[lai.GainTrace(None if index else seen[None], up[None])] for seen, up in ((x, g), (y, h))]
        close(kernel(*sides), expected)


@pytest.mark.equation("gradient2", "virtual-readout", "lli")
def test_lai_and_lli(seed):
    for statement, kernel in (
        (prove_lai.DEFINITION, lai.lai_kernel),
        (prove_virtual_readout.STATEMENT, lai.lai_kernel),
        (prove_lai.LAST, lai.lli_kernel),
    ):
        (a, b, g, h), expected = in_numbers(statement, 3, seed)
        traces = [
            lai.Trace([*(lai.LayerTrace(x[None]) for x in below), lai.LayerTrace(top[None], up[None])])
            for (*below, top), up in ((a, g), (b, h))
        ]
        close(kernel(*traces), expected)


@pytest.mark.equation("position-score")
def test_positions(seed):
    (c, g, table), expected = in_numbers(prove_aggregation.POSITIONS, 3, seed)
    # two validation samples whose summed gradient is the table: unit rows, times its rows
    validation = lai.Trace([lai.LayerTrace(table, np.eye(len(table)))])
    training = lai.Trace([lai.LayerTrace(c[None], g[None])])
    close(lai.position_scores(validation, training, "lli").sum(), expected)


@pytest.mark.equation("aggregation", "self-exclusion", "cost-ratio")
def test_sums_over_a_validation_set(seed):
    (c_z, g_z, c, g), expected = in_numbers(prove_aggregation.AGGREGATION, 3, seed)
    summary = lai.summarize(lai.Trace([lai.LayerTrace(c_z, g_z)]), "lai")
    close(lai.lai_scores(summary, lai.Trace([lai.LayerTrace(c, g)])), expected)
    (gradients,), expected = in_numbers(prove_aggregation.OWN, 3, seed)
    own, others = influence.self_votes(gradients @ gradients.T)
    close(own[0] + others[0], expected)
    for index, names in enumerate((("ghost_numbers", "lai_numbers"), ("ghost_passes", "lai_passes"))):
        for side, name in zip(("lhs", "rhs"), names, strict=True):
            (widths,), expected = in_numbers(prove_aggregation.COSTS, 4, seed, side, index)
            close(getattr(costs.cost_ratio(widths), name) * (2 if side == "rhs" else 1), expected)


@pytest.mark.equation("midpoint", "step-midpoint", "shapley-first-order")
def test_shapley(seed):
    for side in ("lhs", "rhs"):
        (moves, v, matrix, eta), expected = in_numbers(prove_shapley.MIDPOINT, 3, seed, side)
        if side == "lhs":
            found = shapley.step_midpoint_scores(
                lambda g, v=v, matrix=matrix, eta=eta: -eta * (v - eta * (matrix @ g)), np.stack(moves)
            )
        else:
            found = shapley.one_step_shapley(
                lambda at, v=v, matrix=matrix: v @ at + at @ matrix @ at / 2,
                np.zeros(2),
                np.stack(moves),
                learning_rate=eta,
            )
        close(found[0], expected)
    (moves, v, matrix), expected = in_numbers(prove_shapley.STEP_MIDPOINT, 3, seed, "lhs")
    close(shapley.step_midpoint_scores(lambda at: v + matrix @ at, np.stack(moves))[0], expected)
    (sizes, lam, eta), expected = in_numbers(prove_shapley.FIRST, 3, seed)
    gradients = np.array(sizes)[:, None]
    close(shapley.shapley_first_order_bound(gradients, learning_rate=eta, smoothness=lam)[0], expected)


@pytest.mark.equation("adam-direction", "second-moment")
def test_preconditioning(seed):
    (v, g, root), expected = in_numbers(prove_adam.DIRECTION, 3, seed, side="lhs")
    found = optimizers.adam_direction_scores(v[None], g[None], (root - 1e-9) ** 2, epsilon=1e-9)
    close(found, expected)
    depth = 4
    (_, start, means), _ = in_numbers(prove_adam.MOMENT, depth, seed)
    moment = np.array([start])
    for mean in means:
        moment = lai.update_second_moment(moment, np.array([[np.sqrt(mean)]]), decay=0.75)
    relation, (keep, first, batches) = (
        prove_adam.MOMENT.relations(depth)[0],
        prove_adam.MOMENT.arguments(depth),
    )
    values = {keep: 0.75, first: start, **dict(zip(batches, means, strict=True))}
    close(moment, float(relation.rhs.subs(values)))


@pytest.mark.equation("adam-derivative")
def test_adam_derivative(seed):
    generator = np.random.default_rng(seed)
    a, g, theta, others, weight, m, root, eps, decay = generator.uniform(0.2, 1.0, 9)
    beta1, beta2, step = 0.5, 0.75, 3
    used = others + weight * g + decay * theta
    moment = (root**2 * (1 - beta2**step) - (1 - beta2) * used**2) / beta2
    statement = prove_adam.DERIVATIVE
    numbers = (a, g, theta, others, weight, m, root, beta1, beta2, eps, decay, step)
    expected = statement.numbers("lhs")(*numbers)
    adam = optimizers.Adam(beta1=beta1, beta2=beta2, epsilon=eps, weight_decay=decay)
    arrays = [np.array([x]) for x in (theta, others + weight * g, m, moment)]
    found = optimizers.adam_derivative_scores(np.array([a]), np.array([[g]]), *arrays, adam=adam, step=step)
    close(found, expected)
