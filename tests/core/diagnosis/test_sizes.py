"""Naming the row that makes a batch's gradient: sizes against gradients that are built, and the rule."""

import math
import re
from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import lai_core as lai
from lai_core.diagnosis import diagnose
from lai_core.diagnosis.measure import NOTHING, _inner, measure, measure_by_rows, measure_trace

N, T = 9, 5


def trace_of(seed, scale):
    """Return a trace of a tied table, matrices and a kernel at many positions, and its gradients."""
    draw, length = np.random.default_rng(seed), 36
    ids, read = draw.integers(0, 11, size=(N, length)), draw.normal(size=(N, length, 3))
    inputs, hidden, logits = (draw.normal(size=(N, length, width)) for width in (3, 8, 11))
    maps, outputs = draw.normal(size=(N, 2, 6, 6)), draw.normal(size=(N, 4, 6, 6))
    for row, factor in scale.items():
        for gradient in (read, hidden, logits, outputs):
            gradient[row] *= factor
    head = np.einsum("nto,nti->noi", logits, inputs)
    np.add.at(head, (np.arange(N)[:, None], ids), read)
    padded = np.pad(maps, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    parts = {
        "head": head,
        "tall": np.einsum("nto,nti->noi", hidden, inputs + inputs**2),
        "wide": np.concatenate([np.einsum("nto,nti->noi", inputs, hidden), inputs.sum(1)[..., None]], 2),
        "kernel": np.einsum("noxy,ncxyhw->nochw", outputs, windows),
    }
    layers = [
        lai.EmbeddingTrace(ids, read, rows=11, weight="head"),
        lai.LayerTrace(inputs, hidden, weight="tall"),
        lai.LayerTrace(inputs**2, hidden, weight="tall"),
        lai.LayerTrace(hidden, inputs, bias=True, weight="wide"),
        lai.ConvolutionTrace(maps, outputs, kernel=(3, 3), padding=((1, 1), (1, 1)), weight="kernel"),
        lai.LayerTrace(inputs, logits, weight="head"),
    ]
    return lai.Trace(layers), {name: part.reshape(N, -1) for name, part in parts.items()}


@given(st.integers(0, 10**6), st.sampled_from([1.0, 30.0, 1e6]), st.integers(0, N - 1))
def test_sizes_are_those_of_built_gradients(seed, factor, row):
    trace, parts = trace_of(seed, {row: factor})
    found, gradients = diagnose(trace, np.ones(N)), np.concatenate(list(parts.values()), 1)
    whole, norms = gradients.sum(0), np.linalg.norm(gradients, axis=1)
    rest = np.stack([np.delete(gradients, one, 0).sum(0) for one in range(N)])
    cosines = (gradients * rest).sum(1) / np.linalg.norm(rest, axis=1) / norms
    np.testing.assert_allclose(found.norms, norms, rtol=1e-12)
    np.testing.assert_allclose(found.shares, gradients @ whole / (whole @ whole), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.cosines, cosines, rtol=1e-9, atol=1e-10)
    for name, part in parts.items():
        np.testing.assert_allclose(found.layer_norms[name], np.linalg.norm(part, axis=1), rtol=1e-12)
    left = [one for one in range(N) if found.verdict != "rows" or one not in found.named]
    np.testing.assert_allclose(found.rest_norm, np.linalg.norm(gradients[left].sum(0)), rtol=1e-9)
    assert math.isclose(float(found.shares.sum()), 1.0, rel_tol=1e-9)


@pytest.mark.parametrize(("size", "loss", "named"), [(1e25, 1.0, 2), (1e-24, 1.0, None), (9.0, math.nan, 2)])
def test_single_precision_squares_stay_finite(size, loss, named):
    outputs, losses = np.array([[1.0], [1.0], [size], [1.0]], np.float32), np.array([1.0, 1.0, loss, 1.0])
    found = diagnose(lai.Trace([lai.LayerTrace(np.ones((4, 1), np.float32), outputs)]), losses)
    assert found.named == (() if named is None else (named,))
    np.testing.assert_allclose(found.norms, np.where(np.isnan(losses), math.nan, outputs[:, 0]), rtol=1e-6)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e25])
def test_row_gradients_neither_overflow_nor_vanish(scale):
    rows = {
        "w": (scale * np.random.default_rng(0).normal(size=(4, 6))).astype(np.float32),
        "half": np.full((4, 2), -300.0, np.float16),
        "zero": np.zeros((4, 2)),
        "empty": np.zeros((4, 0)),
    }

    def start(some):
        return lambda groups: (
            {name: one[[some[place] for place in group]].sum(0) for name, one in rows.items()}
            for group in groups
        )

    part, exact = measure_by_rows(start, range(4)), {name: one.astype(float) for name, one in rows.items()}
    for name, one in exact.items():
        np.testing.assert_allclose(part.squares[name], (one**2).sum(1), rtol=1e-6)
    along = sum(one @ one.sum(0) for one in exact.values())
    np.testing.assert_allclose(part.along(part.total), along, rtol=1e-5)


def test_positions_follow_the_majority_of_layers():
    """A layer of another length, and what a table reads as padding, say nothing of them."""
    draw = np.random.default_rng(5)
    inputs, outputs, other = (draw.normal(size=(N, T, 2)) for _ in range(3))
    ids = draw.integers(-1, 4, size=(N, T))  # outside of the table, too
    layers = [
        lai.LayerTrace(inputs, outputs, bias=True),
        lai.EmbeddingTrace(ids, other, rows=3, padding=1),
        lai.GainTrace(inputs, other),
        lai.LayerTrace(*draw.normal(size=(2, N, 7, 2))),
        lai.LayerTrace(*draw.normal(size=(2, N, 7, 2))),
        lai.LayerTrace(*draw.normal(size=(2, N, 2))),
    ]

    def square(one):
        return (one**2).sum(-1)

    read = square(other) * np.isin(ids, (0, 2))
    squares = square(outputs) * (1 + square(inputs)) + read + square(inputs * other)
    found = diagnose(lai.Trace(layers), np.ones(N))
    np.testing.assert_allclose(found.position_norms**2, squares, rtol=1e-12)
    as_often = diagnose(lai.Trace(layers[1:5]), np.ones(N)).position_norms
    assert as_often.shape == (N, 7)
    untied = diagnose(lai.Trace([lai.EmbeddingTrace(ids, other, rows=3)]), np.ones(N)).position_norms
    np.testing.assert_allclose(untied**2, square(other) * np.isin(ids, (0, 1, 2)), rtol=1e-12)
    two = diagnose(lai.Trace([lai.LayerTrace(*draw.normal(size=(2, N, 2, 2)))]), np.ones(N)).position_norms
    assert two.shape == (N, 2)
    for layer in (layers[5], lai.LayerTrace(*draw.normal(size=(2, N, 1, 2)))):
        assert diagnose(lai.Trace([layer]), np.ones(N)).position_norms is None


def check_sizes(found, gradients, parts):
    """Compare sizes with gradients that are built."""
    groups = [[0, 3], [], [2], list(range(len(gradients)))]
    sums = np.array([gradients[group].sum(0) for group in groups])
    np.testing.assert_allclose(found.products, gradients @ gradients.sum(0), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.gram(groups), sums @ sums.T, rtol=1e-9, atol=1e-9)
    assert math.isclose(found.total, sums[3] @ sums[3], rel_tol=1e-9)
    for name, part in parts.items():
        np.testing.assert_allclose(found.squares[name], (part**2).sum(1), rtol=1e-9)


def cut(trace, rows):
    return lai.Trace(
        [replace(one, **{name: array[rows] for name, array in one.arrays().items()}) for one in trace.layers]
    )


@pytest.mark.parametrize("again", [False, True])
def test_partitioned_batches_give_equal_results(again):
    trace, parts = trace_of(6, {})
    gradients, asked = np.concatenate(list(parts.values()), 1), []

    def measure_rows(rows, finite=None):
        def record():
            asked.append(rows)
            return cut(trace, rows)

        return measure_trace(record, finite or [True] * len(rows), lambda key: str(key[0][1]), again=again)

    for split in ([range(9)], [[0], range(1, 4), range(4, 9)], [range(5), range(5, 9)]):
        found = measure([measure_rows(list(rows)) for rows in split])
        check_sizes(found, gradients, parts)
        expected = measure_rows(list(range(9))).positions
        np.testing.assert_allclose(found.positions, expected, rtol=1e-12)
    kept = [0, 2, 3, 4, 5, 7]
    found = measure([
        NOTHING,
        measure_rows([0, 1, 2, 3], [True, False, True, True]),
        measure_rows([6, 8], [False, False]),
        measure_rows([4, 5, 6, 7], [True, True, False, True]),
    ])  # fmt: skip
    check_sizes(found, gradients[kept], {name: part[kept] for name, part in parts.items()})
    assert measure([NOTHING, measure_rows([0], [False])]) is None
    assert (len(asked) > 13) == again


def test_parts_without_positions_or_a_parameter():
    """Rows of a part that lacks a parameter have gradient zero there; positions must be those of all rows."""
    draw = np.random.default_rng(7)
    one, two = (lai.LayerTrace(*draw.normal(size=(2, 3, 4, 2)), weight=name) for name in "ab")
    short = lai.LayerTrace(*draw.normal(size=(2, 3, 1, 2)), weight="b")

    def measure_one(layer):
        return measure_trace(lambda: lai.Trace([layer]), [True] * 3, lambda key: key[0][1])

    found = [measure(list(map(measure_one, pair))) for pair in ((one, two), (one, short), (short, one))]
    assert [each.positions is None for each in found] == [False, True, True]
    assert found[0].squares["a"][3:] == found[0].squares["b"][:3] == [0.0] * 3
    unnamed = measure_trace(lambda: lai.Trace([one, two]), [True] * 3, lambda key: {"a": "a"}.get(key[0][1]))
    assert (list(unnamed.squares), unnamed.traced) == (["a"], True)


def test_shared_passes_exclude_nonfinite_rows():
    rows = {"w": np.arange(8.0).reshape(4, 2), "v": np.ones((4, 1))}

    def start(some):
        def gradients(groups):
            for group in groups:
                here = [some[place] for place in group]
                own = {name: one[here].sum(0) for name, one in rows.items() if name == "w" or 0 in here}
                spoilt = 2 in some and not {2, 3}.isdisjoint(here)  # zero times what is not finite
                yield own | ({"w": own["w"] * math.nan, "v": np.ones(1)} if spoilt else {})

        return gradients

    part = measure_by_rows(start, range(4))
    assert (part.rows, part.traced) == ([0, 1, 3], False)
    assert part.squares == {"w": [1.0, 13.0, 85.0], "v": [1.0, 0.0, 0.0]}
    assert part.along(part.total) == [11.0 + 3.0, 2 * 8.0 + 3 * 11.0, 6 * 8.0 + 7 * 11.0]
    assert measure_by_rows(start, [2, 3]).rows == [3]
    assert measure_by_rows(start, [2]) is NOTHING
    together = {"w": np.array([math.nan])}  # each row alone is finite
    spoils = lambda some: lambda groups: (together if len(some) > 1 else rows for _ in groups)  # noqa: E731
    assert measure_by_rows(spoils, [0, 1]) is NOTHING
    assert measure_by_rows(start, []) is NOTHING
    assert math.isnan(_inner(np.array([0.0, 1.0]), np.array([math.inf, 1.0])))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"losses": np.ones(3)},
            "losses: expected shape (9,), a loss for each sample of the trace, got (3,)",
        ),
        ({"losses": np.ones(N), "ids": ["a"]}, "ids: expected one for each of the 9 samples, got 1"),
    ],
)
def test_what_does_not_fit_is_refused(options, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        diagnose(trace_of(0, {})[0], **options)
