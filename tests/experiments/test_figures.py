"""Figures of chains obey the theorems."""

from experiments.figures import chains


def test_printed_bound_covers_only_lli():
    found = chains.gaps()
    pairs = zip(found["printed bound"], found["LLI's error"], found["LAI's error"], strict=True)
    assert all(bound >= last * (1 - 1e-12) for bound, last, _ in pairs)
    assert found["LAI's error"][0] > 100 * found["printed bound"][0]
    assert all(b >= e for b, e in zip(found["corrected bound"], found["LAI's error"], strict=True))


def test_map_border_matches_the_theorem():
    for row, layers in zip(chains.nearer(), chains.DEPTHS, strict=True):
        assert abs(chains.RATES[row.argmax()] - chains.threshold(layers)) < 0.006


def test_simulated_spread_matches_the_recursion():
    for one, other in zip(chains.spread(32)[:4], chains.simulated_spread(32)[:4], strict=True):
        assert abs(other / one - 1) < 0.15
