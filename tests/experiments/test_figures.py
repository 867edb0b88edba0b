"""Figures of chains obey the theorems."""

from experiments.figures import chains


def test_printed_bound_covers_only_lli():
    found = chains.gaps()
    pairs = zip(found["printed bound"], found["LLI's error"], found["LAI's error"], strict=True)
    assert all(bound >= last * (1 - 1e-12) for bound, last, _ in pairs)
    assert found["LAI's error"][0] > 100 * found["printed bound"][0]
    assert all(b >= e for b, e in zip(found["corrected bound"], found["LAI's error"], strict=True))
