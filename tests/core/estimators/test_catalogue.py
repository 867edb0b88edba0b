"""The catalogue says of each estimator what the code does with it."""

import pytest

from lai_core.estimators.catalogue import CATALOGUE, find_estimator


def test_estimators_match_the_contract():
    names = " ".join(each.name for each in CATALOGUE)
    assert names == "ghost lai lli preconditioned_lai gate_lai calibrated_lai exact midpoint"


def test_misspelled_names_get_a_suggestion():
    for name, meant in (("LAI", "lai"), ("gate-lai", "gate_lai"), ("midpoints", "midpoint")):
        said = f"estimator: expected one of .*{name!r}; did you mean '{meant}'\\?$"
        with pytest.raises(ValueError, match=said):
            find_estimator(name)
