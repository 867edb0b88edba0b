"""The list of cases that `make test` leaves out names tests that there are."""

from pathlib import Path

from tests.support.tiers import LIST, listed

ROOT = Path(__file__).parents[2]


def test_every_listed_case_is_of_a_test_that_there_is():
    for case in listed():
        path, _, name = case.partition("[")[0].partition("::")
        assert f"def {name}(" in (ROOT / path).read_text(), (
            f"{case}: not there; python -m pytest --write-tiers"
        )


def test_the_list_is_sorted_and_names_no_case_twice():
    lines = LIST.read_text().splitlines()
    assert lines == sorted(set(lines))
