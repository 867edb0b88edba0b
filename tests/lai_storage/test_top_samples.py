"""The samples that help and hurt most: however the kernel is cut, whatever ties and NaNs it holds."""

import math

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given
from lai_storage.top import top_samples

from tests.support.backends import BACKENDS

ENTRIES = st.sampled_from([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, math.nan])
KERNELS = hnp.arrays(np.float64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=7), elements=ENTRIES)


def by_sorting(kernel, top):
    """Return the table's rows by sorting each validation sample's scores, one after the other."""
    rows = []
    for validation, scores in enumerate(kernel.tolist()):
        for effect, sign in ("helps", 1), ("hurts", -1):
            found = [(number, score) for number, score in enumerate(scores) if sign * score > 0]
            best = sorted(found, key=lambda pair: (-sign * pair[1], pair[0]))[:top]
            rows += [(validation, effect, place, *pair) for place, pair in enumerate(best, start=1)]
    return rows


@given(KERNELS, st.integers(1, 4), st.integers(1, 7))
@example(np.array([[math.nan, 1.0]]), 1, 2)
@example(np.array([[1.0, 2.0, 2.0, -1.0]]), 1, 2)
def test_tables_match_sorting_for_any_blocks(kernel, top, size):
    blocks = [kernel[:, start : start + size] for start in range(0, kernel.shape[1], size)]
    table = top_samples(blocks, top=top)
    assert [tuple(row.values()) for row in table.to_pylist()] == by_sorting(kernel, top)


@pytest.mark.parametrize("backend", BACKENDS, ids=str)
def test_blocks_may_use_any_namespace(backend):
    kernel = backend.array([[1.0, -3.0], [2.0, 5.0]])
    rows = top_samples([kernel], ids=["a", "b"], validation_ids=["x", "w"]).to_pylist()
    found = [(row["validation"], row["effect"], row["id"], row["score"]) for row in rows]
    helps = [("w", "helps", "b", 5.0), ("w", "helps", "a", 2.0)]
    assert found == [("x", "helps", "a", 1.0), ("x", "hurts", "b", -3.0), *helps]


BLOCK = np.ones((2, 3))


@pytest.mark.parametrize(
    ("blocks", "options", "message"),
    [
        ([BLOCK], {"top": 0}, "top: expected a whole number of at least 1, got 0"),
        ([], {"top": 1.5}, r"top: expected a whole number of at least 1, got 1\.5"),
        ([BLOCK], {"ids": "a"}, "ids: expected one per sample, 3, got 1"),
        ([BLOCK], {"validation_ids": "abc"}, "validation_ids: expected one per sample, 2, got 3"),
        ([BLOCK, np.ones((4, 3))], {}, r"blocks: expected an array of shape \(2, n\), like the one"),
        ([np.ones(3)], {}, r"blocks: expected an array of shape \(n_val, n\), got \(3,\)"),
        ([[[1.0]]], {}, r"blocks: expected an array of shape \(n_val, n\), got list"),
    ],
)
def test_what_does_not_fit_is_named(blocks, options, message):
    with pytest.raises(ValueError, match=message):
        top_samples(blocks, **options)


def test_wrong_id_counts_fail_before_blocks():
    def never():
        pytest.fail("a block was made")
        yield

    with pytest.raises(ValueError, match="ids: expected one per sample, 3, got 2"):
        top_samples(never(), ids="ab", samples=3)


def test_progress_shows_only_on_request(capsys):
    top_samples([BLOCK], samples=3)
    assert not capsys.readouterr().err
    top_samples([BLOCK] * 2, samples=6, progress=True)
    assert "6/6" in capsys.readouterr().err


def test_no_block_is_an_empty_table():
    assert top_samples([]).num_rows == 0
    assert top_samples([], ids=[], validation_ids=[]).num_rows == 0


def test_wrong_names_fail_after_one_block():
    def blocks():
        yield BLOCK
        raise AssertionError

    with pytest.raises(ValueError, match=r"^validation_ids: "):
        top_samples(blocks(), validation_ids=["one"])
