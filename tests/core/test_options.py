"""Numbers at their ends: what an option takes and what it is by default, and where an assumption holds."""

import inspect
import re

import numpy as np
import pytest
import torch

import lai_core as lai
from lai_core import assumptions, bounds, calibration, influence, optimizers, propagation, shapley

ONE, ROW, TABLE = np.ones(1), np.ones((1, 1)), np.ones((1, 1, 1))
PARTS = np.array([[1.0, -1.0], [0.0, -2.0]])
TRACE = lai.Trace([lai.LayerTrace(ROW, ROW)])


def loss(at):
    return at[0]


def adam(**options):
    """Take a step with these settings, whatever is left of them."""
    step = options.pop("step", 1)
    return optimizers.adam_step(ONE, ONE, ONE, ONE, adam=optimizers.Adam(**options), step=step)


def adam_derivative(*, step):
    return optimizers.adam_derivative_scores(ONE, ROW, ONE, ONE, ONE, ONE, adam=optimizers.Adam(), step=step)


POSITIVE = (1e-3,), (0.0, -1.0)
NOT_NEGATIVE = (0.0, 1e-3), (-1e-3,)
BELOW_ONE = (0.0, 0.999), (-1e-3, 1.0, 1.5)
CASES = {
    "descent_remainder learning_rate": (
        lambda v: influence.descent_remainder(ROW, learning_rate=v, smoothness=1.0),
        POSITIVE,
    ),
    "descent_remainder smoothness": (
        lambda v: influence.descent_remainder(ROW, learning_rate=1.0, smoothness=v),
        NOT_NEGATIVE,
    ),
    "certified_learning_rate smoothness": (
        lambda v: influence.certified_learning_rate(ONE, ROW, smoothness=v),
        POSITIVE,
    ),
    "hessian_cosine_bound condition_number": (
        lambda v: influence.hessian_cosine_bound(condition_number=v),
        ((1.0, 1.5), (0.999, 0.0)),
    ),
    "directional_scores step": (
        lambda v: influence.directional_scores(lambda at: at, ONE, ONE, step=v),
        POSITIVE,
    ),
    "removal_influence damping": (
        lambda v: influence.removal_influence(ROW, ROW, ROW, damping=v),
        NOT_NEGATIVE,
    ),
    "leave_one_out damping": (
        lambda v: influence.leave_one_out(np.ones((2, 1)), np.ones((2, 1, 1)), damping=v),
        NOT_NEGATIVE,
    ),
    "Adam learning_rate": (lambda v: adam(learning_rate=v), POSITIVE),
    "Adam beta1": (lambda v: adam(beta1=v), BELOW_ONE),
    "Adam beta2": (lambda v: adam(beta2=v), BELOW_ONE),
    "Adam epsilon": (lambda v: adam(epsilon=v), POSITIVE),
    "Adam weight_decay": (lambda v: adam(weight_decay=v), NOT_NEGATIVE),
    "Adam norm_epsilon": (lambda v: adam(norm_epsilon=v), NOT_NEGATIVE),
    "Adam max_norm": (lambda v: adam(max_norm=v), POSITIVE),
    "adam_step step": (lambda v: adam(step=v), ((1, 2), (0,))),
    "adam_derivative_scores step": (lambda v: adam_derivative(step=v), ((1, 2), (0,))),
    "adam_direction_scores epsilon": (
        lambda v: optimizers.adam_direction_scores(ROW, ROW, ONE, epsilon=v),
        POSITIVE,
    ),
    "gated each": (
        lambda v: propagation.RandomLayer.gated(width=2, variance=1.0, each=v, both=0.0),
        ((0.0, 1e-3, 1.0), (-1e-3, 1.001)),
    ),
    "gated both": (
        lambda v: propagation.RandomLayer.gated(width=2, variance=1.0, each=0.5, both=v),
        ((0.0, 1e-3, 0.5), (-1e-3, 0.501)),
    ),
    "linear_random_weights_variance width": (
        lambda v: propagation.linear_random_weights_variance(ONE, ONE, width=v, depth=1),
        ((1, 2), (0,)),
    ),
    "linear_random_weights_variance depth": (
        lambda v: propagation.linear_random_weights_variance(ONE, ONE, width=2, depth=v),
        ((0, 1), (-1,)),
    ),
    "gain_product first": (
        lambda v: propagation.gain_product(np.ones(3), first=v, last=1),
        ((0, 1, 3), (-1, 4)),
    ),
    "gain_product last": (
        lambda v: propagation.gain_product(np.ones(3), first=1, last=v),
        ((-1, 0, 2), (-2, 3)),
    ),
    "one_step_shapley learning_rate": (
        lambda v: shapley.one_step_shapley(loss, ONE, ROW, learning_rate=v),
        POSITIVE,
    ),
    "monte_carlo_shapley learning_rate": (
        lambda v: shapley.monte_carlo_shapley(loss, ONE, ROW, [[0], [0]], learning_rate=v),
        POSITIVE,
    ),
    "midpoint_scores learning_rate": (
        lambda v: shapley.midpoint_scores(lambda at: at, ONE, ROW, learning_rate=v),
        POSITIVE,
    ),
    "shapley_first_order_bound learning_rate": (
        lambda v: shapley.shapley_first_order_bound(ROW, learning_rate=v, smoothness=1.0),
        POSITIVE,
    ),
    "shapley_first_order_bound smoothness": (
        lambda v: shapley.shapley_first_order_bound(ROW, learning_rate=1.0, smoothness=v),
        NOT_NEGATIVE,
    ),
    "midpoint_error_bound learning_rate": (
        lambda v: shapley.midpoint_error_bound(ROW, learning_rate=v, hessian_lipschitz=1.0),
        POSITIVE,
    ),
    "midpoint_error_bound hessian_lipschitz": (
        lambda v: shapley.midpoint_error_bound(ROW, learning_rate=1.0, hessian_lipschitz=v),
        NOT_NEGATIVE,
    ),
    "least_squares_weights ridge": (
        lambda v: calibration.least_squares_weights(TABLE, TABLE, ridge=v),
        NOT_NEGATIVE,
    ),
    "measure_assumptions tolerance": (
        lambda v: assumptions.measure_assumptions(TRACE, TRACE, tolerance=v),
        NOT_NEGATIVE,
    ),
    "geometric_sum depth": (lambda v: bounds.geometric_sum(rho=0.5, depth=v), ((1, 2), (0, -1))),
    "geometric_sum rho": (lambda v: bounds.geometric_sum(rho=v, depth=2), NOT_NEGATIVE),
    "truncation_probabilities share": (
        lambda v: bounds.truncation_probabilities(np.ones((2, 1)), costs=[3.0, 1.0], share=v),
        ((0.251, 1.0), (0.25, 1.001)),
    ),
    "truncation_probabilities share of one layer": (
        lambda v: bounds.truncation_probabilities(ROW, costs=[3.0], share=v),
        ((1e-3, 1.0), (0.0, 1.001)),
    ),
    "truncation_probabilities costs[0]": (
        lambda v: bounds.truncation_probabilities(ROW, costs=[v], share=1.0),
        POSITIVE,
    ),
    "score_intervals level": (lambda v: lai.score_intervals(PARTS, level=v), ((1e-3, 0.999), (0.0, 1.0))),
    "score_intervals bound": (lambda v: lai.score_intervals(PARTS, bound=v), POSITIVE),
    "score_intervals sizes[1]": (lambda v: lai.score_intervals(PARTS, sizes=[1.0, v]), NOT_NEGATIVE),
    "drop_harmful rate": (lambda v: lai.drop_harmful(PARTS, rate=v), ((1e-3, 1.0), (0.0, 1.001))),
}


@pytest.mark.parametrize("name", CASES)
def test_an_option_is_taken_up_to_its_ends_and_refused_by_name_beyond(name):
    call, (taken, refused) = CASES[name]
    for value in taken:
        call(value)
    for value in refused:
        with pytest.raises(ValueError, match=f"^{re.escape(name.split()[1])}: expected"):
            call(value)


def test_adams_defaults_are_those_that_are_usual():
    """Those of torch; a gradient of 1e-6 that it clips at 1e-6 is halved."""
    torchs = {name: option.default for name, option in inspect.signature(torch.optim.Adam).parameters.items()}
    chosen = optimizers.Adam()
    assert chosen.learning_rate == torchs["lr"]
    assert (chosen.beta1, chosen.beta2) == torchs["betas"]
    assert (chosen.epsilon, chosen.weight_decay) == (torchs["eps"], torchs["weight_decay"])
    assert chosen.decoupled is torchs["decoupled_weight_decay"] is False
    assert chosen.max_norm is None
    clipped = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    clipped.grad = torch.full((1,), 1e-6, dtype=torch.float64)
    torch.nn.utils.clip_grad_norm_([clipped], 1e-6)
    assert 1e-12 / (1e-6 + chosen.norm_epsilon) == pytest.approx(float(clipped.grad), rel=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sixteen_units_of_the_precision_are_forgiven_as_rounding(dtype):
    layer = lai.LayerTrace(np.ones((1, 1), dtype), np.ones((1, 1), dtype))
    report = assumptions.measure_assumptions(*[lai.Trace([layer])] * 2)
    assert report.tolerance == 16 * np.finfo(dtype).eps


DEFAULTS = {
    "removal_influence damping": (0.0, lambda **o: influence.removal_influence(ROW, ROW, ROW, **o)),
    "printed_influence damping": (0.0, lambda **o: influence.printed_influence(ROW, ROW, ROW, **o)),
    "leave_one_out damping": (
        0.0,
        lambda **o: influence.leave_one_out(np.ones((2, 1)), np.ones((2, 1, 1)), **o),
    ),
    "directional_scores step": (
        1e-3,
        lambda **o: influence.directional_scores(lambda at: at**3, ONE, ONE, **o),
    ),
    "adam_direction_scores epsilon": (
        1e-8,
        lambda **o: optimizers.adam_direction_scores(ROW, ROW, np.full(1, 1e-16), **o),
    ),
    "least_squares_weights ridge": (
        0.0,
        lambda **o: calibration.least_squares_weights(
            np.array([[[1.0, 2.0]], [[1.0, 1.0]]]), np.array([[[0.5, 1.0]], [[1.0, 2.0]]]), **o
        ),
    ),
    "score_intervals level": (0.95, lambda **o: lai.score_intervals(PARTS, **o)),
    # Student's p-value with one degree of freedom, where the score is 1.963 standard errors below 0: .15
    "drop_harmful rate": (0.1, lambda **o: lai.drop_harmful(np.array([[-1.4815], [-0.4815]]), **o)),
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_what_an_option_is_where_it_is_not_given(name):
    default, call = DEFAULTS[name]
    option = name.split()[1]
    np.testing.assert_array_equal(call(), call(**{option: default}))
    assert not np.array_equal(call(), call(**{option: 2 * default if 0 < default < 0.5 else 0.5}))


def report(**margins):
    """Make a report of these margins, with a tolerance of 1/4; an assumption without one holds well."""
    scalars = {"rho": 0.5, "C_a": 2.0, "alpha_bar": 1.0, "smallest_alpha": 1.0, "smallest_cosine": 1.0}
    layers = dict.fromkeys(("layer_rates", "layer_inputs", "layer_cosines"), np.ones(1))
    values = {**scalars, "excess": 0.0, "opposing_share": 0.0, **margins}
    return assumptions.AssumptionReport(
        **{k: np.asarray(v) for k, v in values.items()}, **layers, tolerance=0.25
    )


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
