"""What a diagnosis says: whole texts, JSON and a picture, each read before it was written down here."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import lai_core as lai
from lai_core.diagnosis import Diagnosis, diagnose
from lai_core.diagnosis.measure import measure, measure_trace
from lai_core.diagnosis.report import _drop_rows, conclude

NAN = math.nan
LOOK = "look at the learning rate, the initialisation, the optimizer's state"


def diagnosis_of(rows, names=("first.weight", "second"), **options):
    """Diagnose rows whose columns are gradients of layers with one number; a third axis: positions."""
    return diagnose(trace_of(rows, names), np.arange(len(rows)) / 2, **options)


def trace_of(rows, names=("first", "second")):
    rows = np.array(rows, float)
    rows = rows.reshape(len(rows), -1, 1) if rows.ndim < 3 else rows
    return lai.Trace(
        lai.LayerTrace(np.ones((*column.shape, 1)), column[:, :, None], name=name)
        for name, column in zip(names, np.moveaxis(rows, 1, 0), strict=False)
    )


KNOWN = {"trained_norm": 1.5, "update_excess": 4.0, "coupled": ("bn", "x")}
SPAN = np.ones((3, 1, 7))
SPAN[1, 0, 4:6] = 90.0
SAID = {
    "a row": ([1, 1, 1, -1, 1, 1, 1, 100], {}, {}, """
row 7, norm 100 times the median: 95% of the batch's gradient
in first (100% of its square)
without: |G| 5, not 105; the median row's 1"""),
    "a name": ([1000, 1, 1, 1], {"ids": "abcd"}, {}, """
row 0 (id a), norm 1e+03 times the median: 100% of the batch's gradient
in first (100% of its square)
without: |G| 3, not 1e+03; the median row's 1"""),
    "two rows": ([[1, 1], [1, 1], [1, 1], [30, 90], [91, 1]], {}, {}, """
row 3, norm 67.1 times the median, row 4, norm 64.4 times the median: 97% of the batch's gradient
in second (90% of its square)
without: |G| 4.24, not 156; the median row's 1.41"""),
    "usual": ([1, 1, 1, 1, 1, -1, -1, 20, 20], {"usual_norm": 3}, {}, """
row 7, norm 20 times the median, row 8, norm 20 times the median: 93% of the batch's gradient
in first (100% of its square)
without: |G| 3, not 43; the median row's 1; usually 3"""),
    "cancelling": ([*[1] * 7, 900, -900, 901, -900, 901, -899], {}, {}, """
row 9, norm 901 times the median, row 11, norm 901 times the median, row 7, norm 900 times the median, \
row 8, norm 900 times the median and 2 more: cancel one another, 30% of the batch's gradient
in first (100% of its square)
|G| 10, the median row's 1"""),
    "positions": (SPAN, {}, {}, """
row 1, norm 26.4 times the median: 93% of the batch's gradient
in first (100% of its square), positions 4 to 5
without: |G| 14, not 199; the median row's 7"""),
    "none": ([1, 2, 1, 2], {}, {}, f"""
no single row makes the gradient; the longest, row 1, norm 1.33 times the median: 33% of it
in first (100% of its square)
|G| 6, the median row's 1.5; {LOOK}"""),
    "nothing": ([0, 0, 0], {}, {}, f"""
no single row makes the gradient; the longest, row 0: 0% of it
|G| 0, the median row's 0; {LOOK}"""),
    "apart in one layer": ([[9, 0.1], [8, 0.1], [-9, 0.1], [8, 0.1], [-9, 0.7]], {}, {}, f"""
no single row makes the gradient; the longest, row 4, norm 1 times the median: -124% of it
furthest apart in one layer: row 4 in second, 7 times the median there
|G| 7.09, the median row's 9; {LOOK}"""),
    "not finite": ([1, 1, 1, 1, math.inf, *[NAN] * 5], {}, {"trained_norm": 2.0}, """
row 4, row 5, row 6, row 7 and 2 more: loss or gradient not finite
first in the trace
of the other rows: |G| 4, the median row's 1; training saw 2, the mean's is 1"""),
    "four": ([1, *[NAN] * 4], {}, {}, """
row 1, row 2, row 3, row 4: loss or gradient not finite
first in the trace
of the other rows: |G| 1, the median row's 1"""),
    "five": ([1, *[NAN] * 5], {}, {}, """
row 1, row 2, row 3, row 4 and 1 more: loss or gradient not finite
first in the trace
of the other rows: |G| 1, the median row's 1"""),
    "none finite": ([NAN] * 2, {"ids": [7, 8]}, {"trained_norm": 2.0}, """
row 0 (id 7), row 1 (id 8): loss or gradient not finite
first in the trace
training saw 2"""),
    "a monitor": ([1, 2], {"usual_norm": 10}, KNOWN, f"""
no single row makes the gradient; the longest, row 1, norm 1.33 times the median: 67% of it
in first (100% of its square)
|G| 3, the median row's 1.5; {LOOK}; usually 10; training saw 1.5, the mean's is 1.5; \
the optimizer's step is 4 times its usual length; parts of the batch's gradient, which bn, x couples"""),
    "a small share": ([[0, 1], [-0.01, 1], [0, 1], [0, 1]], {}, {}, f"""
no single row makes the gradient; the longest, row 1, norm 1 times the median: 25% of it
in second (100% of its square)
|G| 4, the median row's 1; {LOOK}"""),
}  # fmt: skip


@pytest.mark.parametrize("case", SAID)
def test_three_lines_say_it(case):
    rows, options, known, said = SAID[case]
    found = replace(diagnosis_of(rows, **options), **known)
    assert str(found) == repr(found) == said[1:]


def test_zero_percent_shares_have_no_sign():
    shares = (-0.02, "-2%"), (-0.006, "-1%"), (-0.004, "0%"), (0.0, "0%"), (0.006, "1%"), (-1.0, "-100%")
    for share, said in shares:
        found = replace(diagnosis_of([1, 1]), shares=np.array([share, share]))
        assert str(found).splitlines()[0].endswith(f": {said} of it")


def test_rows_are_dicts_and_json():
    found = diagnosis_of([[3, 4], [NAN, 1], [0, 0], [6, 8]], ids="abcd", usual_norm=20.0)
    third, first, _, zero = found.rows()[:4]
    assert [one["row"] for one in found.rows()] == [1, 3, 0, 2]
    assert first == {
        "row": 3, "id": "d", "norm": 10.0, "share": 2 / 3, "cosine": pytest.approx(1.0), "loss": 1.5,
        "layer": "second", "layer_share": pytest.approx(0.64), "positions": None,
    }  # fmt: skip
    assert (third["layer"], third["loss"], zero["cosine"], zero["share"]) == ("the trace", 0.5, 0.0, 0.0)
    assert math.isnan(zero["layer_share"])
    assert diagnosis_of([0.1, 0.2]).rows()[1]["layer_share"] == 1.0
    plain = json.loads(found.to_json())
    rows = plain.pop("rows")
    assert plain == {
        "verdict": "not finite", "named": [1], "message": str(found), "total_norm": 15.0, "rest_norm": 15.0,
        "usual_norm": 20.0, "trained_norm": None, "update_excess": None, "coupled": [],
    }  # fmt: skip
    assert rows[0] == {
        "row": 1, "id": "b", "norm": None, "share": None, "cosine": None, "loss": 0.5,
        "layer": "the trace", "layer_share": None, "positions": None,
    }  # fmt: skip
    assert rows[1]["norm"] == 10.0


def test_positions_have_most_of_the_square():
    norms = np.ones((2, 1, 20))
    norms[0, 0, 2], norms[1, 0, 3:6] = 14.0, (5.0, 0.0, 2.0)
    norms[1, 0, :3] = norms[1, 0, 6:] = 0.0
    assert {one["row"]: one["positions"] for one in diagnosis_of(norms).rows()} == {0: (2, 2), 1: (3, 5)}


def test_lengths_after_dropping_rows_are_exact():
    rows = np.random.default_rng(0).normal(size=(6, 2)) * 1e-3
    sizes = measure([measure_trace(lambda: trace_of(rows), [True] * 6)])
    left = [np.linalg.norm(np.delete(rows, [2, 0, 5][:count], 0).sum(0)) for count in (1, 2, 3)]
    np.testing.assert_allclose(_drop_rows(sizes, [2, 0, 5]), left, rtol=1e-9)
    known = conclude(sizes, np.ones(6), excess=4.0, parameters=["frozen"])
    rest = rows.sum(0) - rows
    cosines = (rows * rest).sum(1) / np.linalg.norm(rows, axis=1) / np.linalg.norm(rest, axis=1)
    np.testing.assert_allclose(known.cosines, cosines, rtol=1e-9)
    assert known.usual_norm == pytest.approx(np.linalg.norm(rows.sum(0)) / 4.0)
    assert known.layer_norms["frozen"].tolist() == [0.0] * 6
    assert conclude(sizes, np.ones(6), excess=NAN).usual_norm is None
    many = diagnosis_of(np.outer(np.random.default_rng(1).normal(size=300), [0.1, 0.7]))
    assert np.max(np.abs(many.cosines)) == 1.0


def test_cosines_are_exact_for_cancelling_rows():
    """Where the others nearly cancel a row, their sum is no difference of large numbers."""
    rows = np.array([[1e8, 1.0], [-1e8, 1.0], [0.0, -3.0], [1.0, 0.0]])
    found = diagnosis_of(rows)
    for row, own in enumerate(rows):
        rest = np.delete(rows, row, 0).sum(0)
        cosine = own @ rest / np.linalg.norm(own) / np.linalg.norm(rest)
        assert found.cosines[row] == pytest.approx(cosine, rel=1e-12)
    assert diagnosis_of([[1, 0], [-1, 0]]).cosines.tolist() == [-1.0, -1.0]


def test_known_excess_sets_the_usual_norm():
    bad = dict.fromkeys(range(2), "inputs")
    empty = conclude(None, np.ones(2), rows=[], nonfinite=bad, parameters=["w"], excess=2.0)
    assert (empty.total_norm, empty.verdict, empty.usual_norm) == (0.0, "not finite", 0.0)
    assert np.isnan(empty.layer_norms["w"]).all()
    assert isinstance(empty, Diagnosis)
    for given, message in ((0.0, "0.0"), (-1.0, "-1.0"), (math.inf, "inf")):
        with pytest.raises(ValueError, match=f"^usual_norm: expected a positive number, got {message}$"):
            diagnosis_of([1, 2], usual_norm=given)
    assert diagnosis_of([1, 2], usual_norm=0.5).named == ()


def test_pictures_match_the_reviewed_ones():
    rows = np.ones((12, 9, 8))
    rows[5] *= np.arange(1.0, 10.0)[:, None]
    rows[5, :, 6] *= 30.0
    rows[5, 7] = rows[3] = 0.0
    names = [*"abcde", "block.attention.query", "g" * 17, "h", "i" * 18]
    ids = [f"<{row}>" if row % 2 else f"a document with number {row}" for row in range(12)]
    ids[5] = f"<{'-'.join(['long'] * 14)}>"
    long = diagnosis_of(rows, names, ids=ids)
    rows[7, 0, 0] = NAN
    short = diagnosis_of([[1, 2], [9, 0.1], [0, 0]])
    found = (long, diagnosis_of(rows, names), short, diagnosis_of(SPAN * 0.0))
    shown = "\n".join(one.to_svg().replace("><", ">\n<") for one in found) + "\n"
    assert long._repr_svg_() == long.to_svg()
    assert shown == (Path(__file__).parent / "pictures.txt").read_text(encoding="utf-8")
