"""What a curated JAX step is given wrong is named by it, before anything changes; nothing is compiled."""

import lai_jax
import pytest

from tests.lai_jax.support import SGD, classified, cross_entropy, dense, weights

PARAMS, BATCH = weights(w=(4, 5), o=(5, 3)), classified(4)


ESTIMATORS = ("ghost", "lai", "lli", "preconditioned_lai", "gate_lai", "calibrated_lai", "exact")
USES = {
    "positions": ("mean", {"lai", "preconditioned_lai", "calibrated_lai"}),
    "calibration": (3, {"calibrated_lai"}),
    "last": ("w", {*ESTIMATORS} - {"exact"}),
    "decay": (0.5, {"preconditioned_lai"}),
    "exponent": (0.5, {"preconditioned_lai"}),
    "scale_inputs": (True, {"preconditioned_lai"}),
}
"""Of each option a value that is not the usual one, and the estimators that have a use for it."""

OF_SUMMARIES, OF_BOTH = ("positions", "calibration"), ("last",)
UNUSED = [(option, name) for option, (_, users) in USES.items() for name in ESTIMATORS if name not in users]


@pytest.mark.parametrize(("option", "estimator"), UNUSED)
def test_an_option_that_an_estimator_has_no_use_for_is_refused(option, estimator):
    """By each call that takes it, before anything is read."""
    given = {"estimator": estimator, option: USES[option][0]}
    calls = [
        lambda: lai_jax.curated_update(dense, cross_entropy, SGD, **given),
        lambda: lai_jax.score(dense, PARAMS, cross_entropy, None, *BATCH, **given),
    ]
    if option in (*OF_SUMMARIES, *OF_BOTH):
        summarized = [lambda: lai_jax.summarize(dense, PARAMS, cross_entropy, *BATCH, **given)]
        calls = summarized + (calls if option in OF_BOTH else [])
    for call in calls:
        with pytest.raises(ValueError, match=f"{option}: expected the estimator to be .*, got '{estimator}'"):
            call()
