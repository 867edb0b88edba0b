"""The shapes alone choose the contraction; read off what is computed, not off a flag."""

import tracemalloc

import pytest

import lai_core as lai
from tests.support.backends import BACKENDS
from tests.support.traces import Layout, trace

NUMPY = BACKENDS[0]


def batch(samples: int, widths=((8, 8), (8, 4)), positions=None, seed=0) -> lai.Trace:
    return trace(Layout(widths, positions=positions).draw(samples, seed), NUMPY)


def peak(call) -> int:
    """Return the most bytes that were allocated at once during `call`."""
    call()
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_the_peak_of_allocated_bytes_does_not_grow_with_the_validation_set():
    training = batch(64, ((256, 256), (256, 10)))
    summaries = [lai.summarize(batch(n, ((256, 256), (256, 10)), seed=n), "lai") for n in (10, 1000)]
    small, large = (peak(lambda s=s: lai.lai_scores(s, training)) for s in summaries)
    assert large <= 1.05 * small


def test_nothing_of_size_validation_times_training_times_width_is_allocated():
    sides = batch(300, ((50, 50), (50, 5))), batch(300, ((50, 50), (50, 5)), seed=1)
    allowed = 7 * 300 * 300 * 8  # a few kernels, no kernel times a width of 50
    for call in (lai.ghost_kernel, lai.ghost_scores, lai.lai_kernel, lai.lai_scores):
        assert peak(lambda call=call: call(*sides)) < allowed


@pytest.mark.parametrize("positions", [None, 4])
def test_temporaries_keep_to_the_budget(positions):
    """Beside the budget: the result, and the batch laid out anew."""
    sides = [batch(60, ((64, 64), (64, 64)), positions, seed) for seed in (0, 1)]
    result = 60 * 60 * 8
    for budget in (2**16, 2**20):
        for call in (lai.ghost_kernel, lai.lai_kernel):
            used = peak(lambda call=call, budget=budget: call(*sides, memory_budget=budget))
            assert used <= budget + 3 * result + 2**16
    ample = peak(lambda: lai.lai_kernel(*sides))
    if positions:
        assert ample > 3 * 240 * 240 * 8  # what the budget held down: all pairs of positions, three times


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_scores_and_summaries_keep_to_the_budget(dtype):
    """Beside the budget: vectors of scores and a bias's summed gradients; casting half types counts."""
    layers = Layout(((256, 256), (256, 64)), positions=4, bias=(True, True))
    validation, training = (trace(layers.draw(60, seed), NUMPY, dtype) for seed in (0, 1))
    summary = lai.summarize(validation, "ghost")
    size, budget = 4 if dtype == "float16" else 8, 2**18
    beside = 2 * 60 * 320 * size + 2**15
    for call in (
        lambda: lai.ghost_scores(validation, training, memory_budget=budget),
        lambda: lai.lai_scores(validation, training, memory_budget=budget),
        lambda: lai.ghost_scores(summary, training, memory_budget=budget),
        lambda: lai.ghost_scores(validation, training, memory_budget=budget, exclude_self=True),
        lambda: lai.lli_scores(training, training, memory_budget=budget, exclude_self=True),
    ):
        assert peak(call) <= budget + beside
    assert peak(lambda: lai.ghost_scores(summary, training)) > budget + beside


def test_a_summary_counts_all_its_parts():
    with pytest.raises(
        ValueError, match=r"^memory_budget: expected at least 80 bytes for the summary, got 79"
    ):
        lai.summarize(batch(2, ((2, 2), (2, 3))), "ghost", memory_budget=79)
