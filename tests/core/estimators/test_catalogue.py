"""The catalogue says of each estimator what the code does with it."""

import pytest

from lai_core.estimators.catalogue import CATALOGUE, find_estimator

NAMES = tuple(each.name for each in CATALOGUE)

FLAGS = (
    *("positions", "layer_weights", "sketch", "shared_forward", "chunks", "batch_as_validation"),
    *("exclude_self", "second_moment", "gates", "fits_weights", "learning_rate"),
)
# the gradients that it reads, the summary that it is scored against, and those of the flags that are set
SHARED = "shared_forward chunks batch_as_validation exclude_self"
GOES_WITH = {
    "ghost": f"all ghost {SHARED}",
    "lai": f"output lai positions layer_weights sketch {SHARED}",
    "lli": f"output lli {SHARED}",
    "preconditioned_lai": (
        "output lai positions layer_weights shared_forward batch_as_validation exclude_self second_moment"
    ),
    "gate_lai": f"output None {SHARED} gates",
    "calibrated_lai": "output lai positions layer_weights sketch shared_forward chunks fits_weights",
    "exact": "None None chunks batch_as_validation",
    "midpoint": "None None batch_as_validation learning_rate",
}


def test_estimators_match_the_contract():
    assert " ".join(NAMES) == "ghost lai lli preconditioned_lai gate_lai calibrated_lai exact midpoint"


@pytest.mark.parametrize("name", NAMES)
def test_each_fact_stands_in_the_table(name):
    known = find_estimator(name)
    found = [str(known.gradients), str(known.summary), {flag for flag in FLAGS if getattr(known, flag)}]
    gradients, summary, *flags = GOES_WITH[name].split()
    assert found == [gradients, summary, {*flags}]


def test_misspelled_names_get_a_suggestion():
    for name, meant in (("LAI", "lai"), ("gate-lai", "gate_lai"), ("midpoints", "midpoint")):
        said = f"estimator: expected one of .*{name!r}; did you mean '{meant}'\\?$"
        with pytest.raises(ValueError, match=said):
            find_estimator(name)
