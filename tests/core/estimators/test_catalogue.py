"""The catalogue says of each estimator what the code does with it."""

import numpy as np
import pytest

import lai_core as lai
from lai_core.estimators.catalogue import CATALOGUE, find_estimator

NAMES = tuple(each.name for each in CATALOGUE)

GOES_WITH = {
    "gradients": "all output output output output output - -",
    "summary": "ghost lai lli lai - lai - -",
    "positions": "- yes - yes - yes - -",
    "layer_weights": "- yes - yes - yes - -",
    "sketch": "- yes - - - yes - -",
    "shared_forward": "yes yes yes yes yes yes - -",
    "chunks": "yes yes yes - yes yes yes -",
    "batch_as_validation": "yes yes yes yes yes - yes yes",
    "exclude_self": "yes yes yes yes yes - - -",
    "second_moment": "- - - yes - - - -",
    "gates": "- - - - yes - - -",
    "fits_weights": "- - - - - yes - -",
    "learning_rate": "- - - - - - - yes",
}


def made() -> lai.Trace:
    layer = lai.LayerTrace(np.ones((5, 3)), np.ones((5, 4)))
    return lai.Trace([layer, lai.LayerTrace(np.ones((5, 4)), np.ones((5, 2)))])


def test_estimators_match_the_contract():
    assert " ".join(NAMES) == "ghost lai lli preconditioned_lai gate_lai calibrated_lai exact midpoint"


@pytest.mark.parametrize("fact", GOES_WITH)
def test_each_fact_stands_in_the_table(fact):
    written = {None: "-", False: "-", True: "yes"}
    found = [written.get(getattr(each, fact), getattr(each, fact)) for each in CATALOGUE]
    assert found == GOES_WITH[fact].split()


@pytest.mark.parametrize("name", NAMES)
def test_only_summarizable_estimators_are_summarized(name):
    estimator = find_estimator(name)
    if estimator.summary is None or estimator.fits_weights:
        with pytest.raises(ValueError, match="estimator: expected one of"):
            lai.summarize(made(), name)
    else:
        summary = lai.summarize(made(), name)
        assert summary.estimator == estimator.summary
        assert (summary.positions is not None) == estimator.positions


def test_misspelled_names_get_a_suggestion():
    for name, meant in (("LAI", "lai"), ("gate-lai", "gate_lai"), ("midpoints", "midpoint")):
        said = f"estimator: expected one of .*{name!r}; did you mean '{meant}'\\?$"
        with pytest.raises(ValueError, match=said):
            find_estimator(name)
