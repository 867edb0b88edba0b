"""Every way to score a batch that `python -m benchmarks scoring` compares, on the smallest model."""

from benchmarks.models import TIMED
from benchmarks.scoring import measured


def test_ways_that_are_exact_give_what_a_loop_over_the_samples_gives():
    found, refused = measured(TIMED["tiny_mlp"](), rounds=0)
    assert found.keys() | refused.keys() >= {"Ghost", "exact", "vmap of grad", "double backward", "loop"}
    assert not {"LAI", "Ghost", "exact", "loop"} & refused.keys()
    for name, row in found.items():
        if row["judged"]:
            assert row["error"] < 1e-5, name
    assert found["exact"]["fresh flops"] < 1.1 * found["loop"]["fresh flops"]
    assert found["LAI"]["cached flops"] < 0.5
