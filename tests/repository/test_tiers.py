"""The list of long tests names tests that there are, and their cases are marked by it."""

from pathlib import Path

from tests.support.tiers import read_tiers

ROOT = Path(__file__).parents[2]


def test_listed_tests_exist_in_every_tier():
    for test, (quick, checked) in read_tiers().items():
        path, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / path).read_text(), f"{test}: not there"
        assert 0 <= quick <= checked
        assert checked
