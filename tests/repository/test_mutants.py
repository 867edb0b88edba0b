"""The suite catches each change of `lai_core`, and passes on an unchanged copy."""

import pytest

from tests.mutants import MUTANTS, ROOT, survives


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_changes_what_is_there(name):
    mutant = MUTANTS[name]
    assert (ROOT / mutant.file).read_text().count(mutant.old) == 1


@pytest.mark.slow
@pytest.mark.parametrize("tests", sorted({mutant.tests for mutant in MUTANTS.values()}))
def test_the_suite_passes_on_an_unchanged_copy(tests):
    assert survives(None, tests)


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_the_suite_catches_the_mutant(name):
    assert not survives(MUTANTS[name], MUTANTS[name].tests)
