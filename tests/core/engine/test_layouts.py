"""How the engine lays factors out and cuts work to its budget: by hand, entry by entry."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lai_core as lai
from lai_core import _adapters, propagation
from lai_core._engine import factors, pairs
from lai_core._engine.axes import check_array
from lai_core._engine.checks import check_number
from lai_core._engine.gradients import VectorGradient, Workspace, column_sums, inner_products
from lai_core._engine.namespace import namespace_of
from lai_core._engine.outer import OuterGradient
from tests.support.entries import halves

XP = namespace_of({"numpy": np.ones(1)})


def work(numbers: int = 2**20) -> Workspace:
    return Workspace(XP, np.dtype(np.float64), 8 * numbers)


@given(st.integers(1, 12), st.integers(1, 40), st.integers(1, 60))
def test_as_many_units_fit_as_the_budget_holds(entries, most, numbers):
    if entries > numbers:
        with pytest.raises(ValueError, match="one unit"):
            work(numbers).fit(entries, most, "one unit")
    else:
        assert work(numbers).fit(entries, most, "one unit") == min(most, numbers // entries)


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 90))
def test_rows_are_halved_then_columns_until_they_fit(rows, columns, numbers):
    """The list of all halvings, the first that fits."""
    steps = [(rows, columns)]
    while steps[-1] != (1, 1):
        n, m = steps[-1]
        steps.append((-(-n // 2), m) if n > 1 else (1, -(-m // 2)))
    fitting = [(n, m) for n, m in steps if n * m + n + 2 * m <= numbers]
    if fitting:
        assert work(numbers).fit_both(lambda n, m: n * m + n + 2 * m, rows, columns, "a pair") == fitting[0]
    else:
        with pytest.raises(ValueError, match="a pair"):
            work(numbers).fit_both(lambda n, m: n * m + n + 2 * m, rows, columns, "a pair")


FACTOR = np.arange(24.0).reshape(2, 3, 4)
"""Two samples, three positions, four channels: two groups of two."""


def test_positions_side_by_side_by_group():
    found = factors.by_group(FACTOR, slice(0, 2), 2, work())
    assert found.shape == (2, 6, 2)
    for group, sample, position, channel in np.ndindex(2, 2, 3, 2):
        assert found[group, 3 * sample + position, channel] == FACTOR[sample, position, 2 * group + channel]
    np.testing.assert_array_equal(factors.by_group(FACTOR, slice(1, 2), 1, work())[0], FACTOR[1])


def test_positions_of_each_sample_by_group():
    found = factors.by_sample(FACTOR, slice(0, 2), 2, work())
    assert found.shape == (2, 2, 3, 2)
    for sample, group, position, channel in np.ndindex(2, 2, 3, 2):
        assert found[sample, group, position, channel] == FACTOR[sample, position, 2 * group + channel]


def test_the_channels_of_some_groups():
    np.testing.assert_array_equal(factors.of_groups(FACTOR, slice(1, 2), 2), FACTOR[..., 2:4])
    np.testing.assert_array_equal(factors.of_groups(FACTOR, slice(1, 3), 4), FACTOR[..., 1:3])


@given(halves((2, 3, 4)), halves((2, 3, 2)))
def test_rows_of_the_gradients_are_sums_over_positions(rows, columns):
    sides = (factors.by_sample(side, slice(0, 2), 2, work()) for side in (rows, columns))
    found = factors.built(*sides, slice(1, 2), work())
    for sample in range(2):
        gradient = [
            sum(rows[sample, t, 2 * g + 1] * columns[sample, t, g] for t in range(3)) for g in range(2)
        ]
        assert found[sample].tolist() == gradient


@pytest.mark.parametrize("numbers", [11, 16, 20, 26])
def test_vectors_are_multiplied_in_blocks_as_large_as_fit(numbers):
    """Of n x m pairs of width 2 alive: n m products and 2 (n + m) entries of the sides."""
    values = np.arange(14.0).reshape(7, 2)
    sides = VectorGradient(values[:4]), VectorGradient(values[4:])
    blocks = list(sides[0].blocks(sides[1], work(numbers)))
    rows = max(row.stop - row.start for row, _, _ in blocks)
    assert rows == {11: 1, 16: 2, 20: 2, 26: 4}[numbers]
    np.testing.assert_array_equal(inner_products(*sides, work(numbers)), values[:4] @ values[4:].T)
    np.testing.assert_array_equal(column_sums(*sides, work(numbers)), (values[:4] @ values[4:].T).sum(0))


@given(halves((3, 2, 4), -2, 2), halves((3, 2, 2), -2, 2), st.sampled_from([1, 2]), st.integers(0, 3))
def test_a_matrix_gradient_is_the_sum_over_positions_however_it_is_cut(rows, columns, groups, spare):
    """Totals, products with one and pairs, at the least budgets and at ample ones, against loops."""
    gradient = OuterGradient(rows, (columns,), groups=groups)
    high, wide = 4 // groups, 2 // groups
    full = np.zeros((3, 4, wide))
    for j, t, r, c in np.ndindex(3, 2, 4, wide):
        full[j, r, c] += rows[j, t, r] * columns[j, t, r // high * wide + c]
    kernel = np.einsum("zrc,jrc->zj", full, full)
    for numbers in (60 + 40 * spare, 2**16):
        (total,) = gradient.total(work(numbers))
        np.testing.assert_array_equal(total, full.sum(0))
        np.testing.assert_array_equal(gradient.along((total,), work(numbers)), kernel.sum(0))
        np.testing.assert_array_equal(gradient.paired(gradient, work(numbers)), np.diag(kernel))
        np.testing.assert_array_equal(inner_products(gradient, gradient, work(numbers)), kernel)
    assert gradient.total_entries() == 4 * wide
    assert gradient.total_cost() == 3 * 2 * 4 * wide
    assert gradient.pairwise_cost(gradient) == (3 * 2) ** 2 * (4 + 2)
    assert gradient.factor_entries() == 2 * (4 + 2)


@pytest.mark.parametrize(
    "options", [("start", None, None), ("midpoint", 0.1, None), ("midpoint", None, "sgd")]
)
def test_options_of_exact_scores_that_go_together(options):
    at, rate, optimizer = options
    _adapters.check_exact_options(at, rate, "mean", optimizer)
    _adapters.check_exact_options("start", 0.1, "sum", "an optimizer has its own")


def test_a_vector_has_one_axis():
    assert check_array("scores", np.ones(3), "n") is not None
    for array in (np.ones((3, 1)), np.array(1.0)):
        with pytest.raises(ValueError, match="scores: expected"):
            check_array("scores", array, "n")


@pytest.mark.parametrize(
    ("bound", "inside", "outside"),
    [("above", 1.5, 1.0), ("at_least", 1.0, 0.5), ("at_most", 1.0, 1.5), ("below", 0.5, 1.0)],
)
def test_a_number_keeps_to_each_bound_at_its_end(bound, inside, outside):
    check_number("x", inside, **{bound: 1.0})
    for value in (outside, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="x: expected a finite number"):
            check_number("x", value, **{bound: 1.0})


def test_one_layer_has_both_sides_whatever_is_swapped():
    """Rows are validation samples and columns training samples: three against two."""
    pair = [lai.Trace([lai.LayerTrace(np.arange(2.0 * n).reshape(n, 2), np.ones((n, 1)))]) for n in (3, 2)]
    assert lai.ghost_kernel(*pair).tolist() == [[1.0, 3.0], [3.0, 13.0], [5.0, 23.0]]


def test_uses_that_are_at_hand_are_added_and_others_left_apart():
    first, second = np.arange(6.0).reshape(3, 2), np.ones((3, 2))
    joined = VectorGradient(first).joined([VectorGradient(second)], work())
    assert joined.values.tolist() == (first + second).tolist()
    other = OuterGradient(np.ones((3, 1, 2)), (np.ones((3, 1, 1)),))
    assert VectorGradient(first).joined([other], work()) is None


def test_a_summary_says_what_it_is_in_a_line():
    side = lai.Trace([lai.LayerTrace(np.ones((3, 2)), np.ones((3, 1)))])
    deep = lai.Trace([lai.LayerTrace(np.ones((3, 4, 2)), np.ones((3, 4, 1)))])
    assert repr(lai.summarize(side, "lli")).startswith("ValidationSummary('lli', ")
    assert repr(lai.summarize(deep, "lai", positions="mean")) == (
        "ValidationSummary('lai', positions='mean', samples=3, numbers=2)"
    )


@pytest.mark.parametrize("edge", [(1, 1), (2, 1)])
def test_an_edge_leads_upwards(edge):
    with pytest.raises(ValueError, match="expected keys"):
        propagation.separating_operator({(0, 1): np.eye(2), edge: np.eye(2)}, layer=0, last=1)


def test_gradients_are_built_as_many_rows_at_once_as_are_multiplied_in_the_cache(monkeypatch):
    """40 rows of 5 + 3 gradients 6 wide, 16 at once: three parts that add up to it; 15 are too few."""
    draws = np.random.default_rng(0)
    sides = [OuterGradient(draws.normal(size=(n, 50, 40)), (draws.normal(size=(n, 50, 6)),)) for n in (5, 3)]
    parts = []
    built = pairs.built
    monkeypatch.setattr(pairs, "built", lambda *given: parts.append(given[2]) or built(*given))
    found = []
    for rows, count in ((0, 1), (15, 1), (16, 3), (40, 1)):
        monkeypatch.setattr(pairs, "cached_numbers", lambda _, rows=rows: rows * (5 + 3) * 6 or None)
        parts.clear()
        found.append(inner_products(*sides, work(2**20)))
        assert len(parts) == 2 * count, rows
        np.testing.assert_allclose(found[-1], found[0], rtol=1e-12)
