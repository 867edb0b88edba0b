"""The shapes alone choose the contraction; read off what is computed, not off a flag."""

import tracemalloc

import numpy as np
import pytest

import lai_core as lai
from tests.support.backends import BACKENDS
from tests.support.traces import Layout, trace

NUMPY = BACKENDS[0]


def products(monkeypatch: pytest.MonkeyPatch, call) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return the shapes of every matrix product that `call` makes, through the namespace that it uses."""
    import array_api_compat.numpy as namespace

    seen = []
    matmul = namespace.matmul

    def counting(left, right):
        seen.append((left.shape, right.shape))
        return matmul(left, right)

    with monkeypatch.context() as patch:
        patch.setattr(namespace, "matmul", counting)
        call()
    return seen


def multiply_adds(shapes) -> int:
    return sum(int(np.prod(left[:-1])) * left[-1] * right[-1] for left, right in shapes)


def batch(samples: int, widths=((8, 8), (8, 4)), positions=None, seed=0) -> lai.Trace:
    return trace(Layout(widths, positions=positions).draw(samples, seed), NUMPY)


@pytest.mark.parametrize("positions", [None, 4])
@pytest.mark.parametrize(("n_val", "n_train"), [(2, 2), (3, 40), (60, 2), (60, 60)])
def test_lai_takes_the_cheaper_contraction(monkeypatch, n_val, n_train, positions):
    """Pairs cost n_val n t^2 (D + d_L), the summed gradient (n_val + n) t d_L D, with D = 16, d_L = 4."""
    sides = batch(n_val, positions=positions), batch(n_train, positions=positions, seed=1)
    seen = products(monkeypatch, lambda: lai.lai_scores(*sides))
    t = positions or 1
    pairwise, summed = n_val * n_train * t**2 * (16 + 4), (n_val + n_train) * t * 4 * 16
    assert multiply_adds(seen) == min(pairwise, summed)
    assert any(shape[-2:] == (n_val * t, n_train * t) for shape in results(seen)) == (pairwise < summed)


@pytest.mark.parametrize(("n_val", "n_train"), [(2, 2), (60, 60)])
def test_ghost_takes_the_cheaper_contraction_per_layer(monkeypatch, n_val, n_train):
    """Layer 1 (2 x 2) sums its gradient before layer 2 (64 x 64) does."""
    sides = batch(n_val, ((2, 2), (64, 64))), batch(n_train, ((2, 2), (64, 64)), seed=1)
    seen = products(monkeypatch, lambda: lai.ghost_scores(*sides))
    cheapest = sum(min(n_val * n_train * 2 * d, (n_val + n_train) * d * d) for d in (2, 64))
    assert multiply_adds(seen) == cheapest


def test_few_samples_of_many_positions_build_gradients(monkeypatch):
    """With 50 positions of width 2 the gradients, 2 x 2, are cheaper than 50 x 50 pairs; not the converse."""
    few = batch(3, ((2, 2),), positions=50)
    seen = products(monkeypatch, lambda: lai.ghost_kernel(few, few))
    assert multiply_adds(seen) == 2 * 3 * 50 * 4 + 9 * 4
    wide = batch(3, ((64, 64),), positions=2)
    seen = products(monkeypatch, lambda: lai.ghost_kernel(wide, wide))
    assert multiply_adds(seen) == 9 * 4 * 128


def results(seen) -> list[tuple[int, ...]]:
    return [(*left[:-1], right[-1]) for left, right in seen]


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


def test_kernels_of_biases_keep_to_the_budget():
    sides = [batch(400, ((1, 1),), seed=seed) for seed in (0, 1)]
    biased = [
        lai.Trace([lai.LayerTrace(x.activations, x.output_gradients, True) for x in side.layers])
        for side in sides
    ]
    result = 400 * 400 * 8
    assert peak(lambda: lai.ghost_kernel(*biased, memory_budget=2**16)) <= 2**16 + 4 * result


def test_a_summary_counts_all_its_parts():
    with pytest.raises(
        ValueError, match=r"^memory_budget: expected at least 80 bytes for the summary, got 79"
    ):
        lai.summarize(batch(2, ((2, 2), (2, 3))), "ghost", memory_budget=79)
