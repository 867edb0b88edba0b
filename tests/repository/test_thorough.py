"""The thorough run can fail: it counts what is violated, and sees that the printed bounds are."""

import numpy as np
import pytest

from tests import thorough
from tests.support.networks import ALIGNED, ASSUMING, Shape


@pytest.mark.parametrize("family", sorted(ALIGNED)[:1])
def test_the_corrected_claims_hold_and_a_printed_one_does_not(family):
    facts = thorough.Facts(ASSUMING[family](np.random.default_rng(5), Shape(30, 3, 3)))
    tallies = {}
    for kind in (
        thorough.claims_of_any_network,
        thorough.claims_under_the_assumptions,
        thorough.claims_with_aligned_embeddings,
        thorough.claims_as_printed,
    ):
        for name, value, bound, scale in kind(facts):
            tallies.setdefault(name, thorough.Tally()).add(family, value, bound, scale)
    violated = {name for name, tally in tallies.items() if tally.violated}
    assert violated <= {"app-abs-gap, as printed", "app-rel-gap, as printed"}
    assert "app-abs-gap, as printed" in violated
    assert all(tally.networks for tally in tallies.values())


def test_a_run_that_finds_a_violation_exits_with_one(monkeypatch, tmp_path):
    monkeypatch.setattr(thorough, "BUILD", tmp_path)
    monkeypatch.setattr("sys.argv", ["thorough", "--networks", "1"])
    for violated, status in ((0, 0), (1, 1)):
        tally = thorough.Tally(networks=3, violated=violated)
        monkeypatch.setattr(thorough, "check", lambda networks, seed, tally=tally: ({"lli-gap": tally}, 3))
        assert thorough.main() == status
        assert "3 networks" in (tmp_path / "thorough.log").read_text(encoding="utf-8")
