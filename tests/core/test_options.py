"""Numbers at their ends: what an option takes, and what it refuses by its name."""

import inspect
from functools import partial

import numpy as np
import pytest

import lai_core as lai
from lai_core import assumptions, mixtures
from lai_core.optimizers import Adam
from lai_core.propagation import RandomLayer
from tests.core.test_theory import FUNCTIONS, call

PARTS = np.array([[1.0, -1.0], [0.0, -2.0]])
TRACE = lai.Trace([lai.LayerTrace(np.ones((1, 1)), np.ones((1, 1)))])
POSITIVE, NOT_NEGATIVE, BELOW_ONE = (
    ((1e-3,), (0.0, -1.0)),
    ((0.0, 1e-3), (-1e-3,)),
    ((0.0, 0.999), (-1e-3, 1.0)),
)
ENDS = {
    "rho": NOT_NEGATIVE, "C_a": NOT_NEGATIVE, "alpha_bar": ((1e-3,), (-1e-3,)),
    "damping": NOT_NEGATIVE, "smoothness": NOT_NEGATIVE, "learning_rate": POSITIVE, "epsilon": POSITIVE,
    "depth": ((1, 2), (0, -1, True, 2.0)), "step": ((1, 2), (0,)),
    "first": ((0, 1, 3), (-1, 4)), "last": ((-1, 0, 2), (-2, 3)),
}  # fmt: skip
"""What an option takes, up to its ends, and what it refuses."""
OWN_ENDS = {
    ("certified_learning_rate", "smoothness"): POSITIVE,
}
CALLED = [
    (FUNCTIONS[name], parameter.name, OWN_ENDS.get((name, parameter.name), ENDS.get(parameter.name)))
    for name in FUNCTIONS
    for parameter in inspect.signature(FUNCTIONS[name]).parameters.values()
    if parameter.kind is parameter.KEYWORD_ONLY and name != "separating_operator"  # whose layers are keys
    if parameter.name != "adam"
]
OTHERS = [
    *((Adam, name, POSITIVE) for name in ("learning_rate", "epsilon", "max_norm")),
    *((Adam, name, BELOW_ONE) for name in ("beta1", "beta2")),
    *((Adam, name, NOT_NEGATIVE) for name in ("weight_decay", "norm_epsilon")),
    (partial(RandomLayer.gated, width=2, variance=1.0, both=0.0), "each", ((0.0, 1e-3, 1.0), (-1e-3, 1.001))),
    (partial(RandomLayer.gated, width=2, variance=1.0, each=0.5), "both", ((0.0, 1e-3, 0.5), (-1e-3, 0.501))),
    (partial(lai.drop_harmful, PARTS), "rate", ((1e-3, 1.0), (0.0, 1.001))),
    (partial(assumptions.measure_assumptions, TRACE, TRACE), "tolerance", NOT_NEGATIVE),
    (partial(lai.keep_top, PARTS[0]), "fraction", ((1e-3, 1.0), (0.0, 1.5, True))),
    (partial(lai.sampling_probabilities, PARTS[0]), "floor", ((0.0, 1.0), (-1e-3, 1.1))),
    (partial(lai.update_second_moment, None, PARTS), "decay", BELOW_ONE),
    (partial(lai.preconditioned_lai_scores, TRACE, TRACE, np.ones(1)), "epsilon", POSITIVE),
    (
        partial(lai.preconditioned_lai_scores, TRACE, TRACE, np.ones(1)),
        "exponent",
        ((-1, 0.0), (None, np.inf)),
    ),
    (partial(lai.lai_kernel, TRACE, TRACE), "memory_budget", ((2**10,), (0, -1, 1e9))),
    *(
        (partial(mixtures.Mixture, 2), name, ends)
        for name, ends in (
            ("horizon", ((1.0, 9.0), (0.5,))),
            ("floor", ((0.0, 1.0), (-1e-3, 2.0))),
            ("confidence", BELOW_ONE),
        )
    ),
]


@pytest.mark.parametrize(("function", "option", "ends"), CALLED + OTHERS)
def test_options_are_checked_at_their_ends(function, option, ends):
    positional, options = call(function) if function in FUNCTIONS.values() else ((), {})
    for value in ends[0]:
        function(*positional, **options | {option: value})
    for value in ends[1]:
        with pytest.raises((ValueError, TypeError), match=f"^{option}: expected"):
            function(*positional, **options | {option: value})
