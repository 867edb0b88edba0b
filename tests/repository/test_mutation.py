"""The mutants that `make mutation` takes for equivalent are there, each for a reason."""

import tomllib

from tests.mutation.places import places, sources
from tests.support import ledger


def test_equivalent_mutants_are_mutants():
    root = ledger.ROOT
    named = tomllib.loads((root / "tests/mutation/equivalent.toml").read_text(encoding="utf-8"))
    listed = {p.name for file in sources(root) for p in places(file, root)}
    assert set(named) <= listed
    assert all(named.values())
