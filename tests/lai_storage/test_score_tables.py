"""Tables of scores in parts: what is written, what goes on where it stopped, what is refused."""

import errno
import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from lai_storage._files import check_run, write_whole
from lai_storage.scoring import digest
from lai_storage.tables import read_scores, score_parts, score_stream

SCORES = [3.0, -1.0, math.nan, -1.0, 0.5, 2.0, -4.0]


def score(samples):
    """Score some of seven samples."""
    chosen = [SCORES[sample] for sample in samples]
    return {"score": chosen, "loss": [2.0 * sample for sample in samples]}


def written(folder, **options):
    asked = []

    def watched(samples):
        asked.append(list(samples))
        return score(samples)

    given = {"samples": 7, "rows": 3, "progress": False, **options}
    score_parts(folder, {"estimator": "lai"}, watched, **given)
    return asked


def test_parts_hold_consecutive_samples_and_the_table_their_ranks(tmp_path):
    assert written(tmp_path / "a" / "b") == [[0, 1, 2], [3, 4, 5], [6]]
    files = sorted(path.name for path in (tmp_path / "a" / "b").iterdir())
    assert files == [*(f"part-00000{part}.parquet" for part in range(3)), "run.json"]
    table = read_scores(tmp_path / "a" / "b")
    assert table.column_names == ["id", "score", "loss", "rank"]
    assert table["id"].to_pylist() == list(range(7))
    np.testing.assert_array_equal(table["score"].to_numpy(), SCORES)
    assert table["rank"].to_pylist() == [6, 2, None, 2, 4, 5, 1]
    run = (tmp_path / "a" / "b" / "run.json").read_text()
    assert json.loads(run) == {"samples": 7, "rows": 3, "estimator": "lai"}
    assert run.splitlines()[1] == ' "samples": 7,'


def test_a_run_that_stopped_goes_on_with_what_is_missing(tmp_path):
    written(tmp_path)
    (tmp_path / "part-000001.parquet").unlink()
    with pytest.raises(ValueError, match=r"expected 3 parts, 1 are missing \(part-000001.parquet first\)"):
        read_scores(tmp_path)
    (tmp_path / ".part-000001.parquet.0").write_text("left by one that was killed")
    assert written(tmp_path) == [[3, 4, 5]]
    assert written(tmp_path) == []
    assert len(read_scores(tmp_path)) == 7
    assert [path.name for path in tmp_path.glob(".*")] == [".part-000001.parquet.0"]  # others' are left alone


def test_each_process_writes_its_own_parts(tmp_path):
    assert written(tmp_path, process=(1, 2)) == [[3, 4, 5]]
    assert written(tmp_path, process=(0, 2)) == [[0, 1, 2], [6]]
    assert len(read_scores(tmp_path)) == 7


PAIRS = """
import os, pathlib, sys
from lai_storage._files import check_run
for pair in range(60):
    folder = pathlib.Path(sys.argv[1], str(pair))
    folder.mkdir()
    begin, shoot = os.pipe()
    children = []
    for number in range(2):
        children.append(os.fork())
        if not children[-1]:
            os.close(shoot)
            os.read(begin, 1)  # returns in both at once, when the parent closes its end
            try:
                check_run(folder / "run.json", {"seed": number * (pair >= 30)})
            except ValueError:
                os._exit(1)
            except BaseException:
                os._exit(2)
            os._exit(0)
    os.close(begin), os.close(shoot)
    print(*sorted(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
"""


def test_of_two_processes_that_begin_a_run_at_once_the_first_one_says_what_it_is(tmp_path):
    """60 pairs, in light processes: 30 of one run, then 30 of two runs, of which one is refused."""
    command = [sys.executable, "-c", PAIRS, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["0 0"] * 30 + ["0 1"] * 30
    assert {path.name for path in tmp_path.glob("*/*")} == {"run.json"}


def test_without_hard_links_a_run_begins_too(tmp_path, monkeypatch):
    def refused(self, target):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", refused)
    written(tmp_path)
    assert [path.name for path in tmp_path.glob("*.json")] == ["run.json"]
    assert len(read_scores(tmp_path)) == 7


def streamed(folder, samples=range(7), **options):
    asked = []

    def watched(taken):
        asked.append(list(taken))
        return score(asked[-1])

    given = {"rows": 3, "progress": False, **options}
    score_stream(folder, {"estimator": "lai"}, watched, samples, **given)
    return asked


def test_a_stream_ends_in_the_table_of_a_data_set_and_says_where_it_ended(tmp_path):
    written(tmp_path / "set")
    assert streamed(tmp_path / "stream") == [[0, 1, 2], [3, 4, 5], [6]]
    np.testing.assert_equal(*(read_scores(tmp_path / name).to_pydict() for name in ("set", "stream")))
    assert json.loads((tmp_path / "stream" / "end.json").read_text()) == {"samples": 7}
    assert streamed(tmp_path / "stream", samples=None) == []  # not even asked for its samples
    assert streamed(tmp_path / "even", samples=range(6)) == [[0, 1, 2], [3, 4, 5]]
    assert len(read_scores(tmp_path / "even")) == 6


def test_a_stream_is_read_again_and_what_is_missing_scored(tmp_path):
    streamed(tmp_path, name=str)
    table = read_scores(tmp_path)
    (tmp_path / "part-000001.parquet").unlink()
    (tmp_path / "end.json").unlink()
    with pytest.raises(
        ValueError, match="expected the scores of a stream up to its end, which is missing: st"
    ):
        read_scores(tmp_path)
    assert streamed(tmp_path) == [[3, 4, 5]]
    np.testing.assert_equal(read_scores(tmp_path).to_pydict(), table.to_pydict())
    for changed, row in (
        (range(1, 8), 0),
        ([0, 1, 2, 3, 4, 5, 7], 0),
        (range(8), 1),
        (range(2), 2),
        (range(6), 0),
    ):
        (tmp_path / "part-000001.parquet").unlink()
        with pytest.raises(
            ValueError, match=f"^dataset: expected the stream .*, got others from row {row} of"
        ):
            streamed(tmp_path, samples=changed, name=int)
        streamed(tmp_path)


def test_a_stream_is_shared_by_processes_that_each_read_it(tmp_path):
    assert streamed(tmp_path, process=(1, 2)) == [[3, 4, 5]]
    assert streamed(tmp_path, None, process=(1, 2)) == []  # its own are there, the others not
    assert streamed(tmp_path, process=(0, 2)) == [[0, 1, 2], [6]]
    np.testing.assert_array_equal(read_scores(tmp_path)["score"].to_numpy(), SCORES)


def test_the_bar_counts_what_is_left(tmp_path, capsys):
    written(tmp_path, process=(1, 2), progress=True)
    assert "3/3" in capsys.readouterr().err
    (tmp_path / "part-000001.parquet").unlink()
    written(tmp_path, process=(0, 2))
    written(tmp_path, progress=True)
    shown = capsys.readouterr().err
    assert "4/7" in shown
    assert "7/7" in shown
    written(tmp_path)
    assert not capsys.readouterr().err


def test_samples_have_names_groups_and_checkpoints_which_are_averaged(tmp_path):
    names, groups = list("abcdefg"), [0, 0, 0, 1, 1, 1, 1]
    for checkpoint, factor in ("first", 1.0), ("second", 3.0):
        score_parts(
            tmp_path,
            {},
            lambda samples, factor=factor: {"score": [factor * number for number in samples]},
            samples=7, rows=4, progress=False, checkpoint=checkpoint, ids=names, groups=groups,
        )  # fmt: skip
    table = read_scores(tmp_path)
    assert table.column_names == ["id", "score", "group", "checkpoint", "rank"]
    assert table["checkpoint"].to_pylist() == ["first"] * 7 + ["second"] * 7
    assert table["rank"].to_pylist() == [*range(1, 8)] * 2
    averaged = read_scores(tmp_path, average=True)
    assert sorted(averaged.column_names) == ["group", "id", "rank", "score"]
    assert averaged["id"].to_pylist() == names
    assert averaged["score"].to_pylist() == [2.0 * number for number in range(7)]
    assert averaged["group"].to_pylist() == groups
    assert (
        pq.read_table(tmp_path / "second" / "part-000000.parquet")["checkpoint"].to_pylist() == ["second"] * 4
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ids": "abc"}, "^ids: expected one per sample, 7, got 3$"),
        ({"groups": "abcdefgh"}, "^groups: expected one per sample, 7, got 8$"),
        (
            {"rows": 4},
            r"^rows: expected 3, with which the scores in .* were begun, got 4; pass another folder$",
        ),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, options, message):
    written(tmp_path)
    with pytest.raises(ValueError, match=message):
        written(tmp_path, **options)


def test_settings_of_another_run_are_refused_whichever_has_more(tmp_path):
    written(tmp_path)
    for settings in ({"estimator": "ghost"}, {}, {"estimator": "lai", "positions": "mean"}):
        with pytest.raises(ValueError, match=r"^(estimator|positions): expected '?(lai|None)'?, with which"):
            score_parts(tmp_path, settings, score, samples=7, rows=3, progress=False)


def test_no_run_is_named(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"expected a folder that score_dataset wrote, found no run\.json"
    ):
        read_scores(tmp_path)


def test_arrays_are_told_apart_by_kind_and_bytes():
    found = {digest([("a", b"1")]), digest([("b", b"1")]), digest([("a", b"2")]), digest([])}
    assert len(found) == 4
    assert digest(iter([("a", b"1")])) in found


def test_a_file_is_replaced_unless_it_is_kept_and_a_run_begun_meanwhile_is_the_one_that_counts(
    tmp_path, monkeypatch
):
    path = tmp_path / "run.json"
    for seed in (1, 2):
        write_whole(path, lambda own, seed=seed: own.write_text(f'{{"seed": {seed}}}'))
    assert path.read_text() == '{"seed": 2}'
    monkeypatch.setattr(type(path), "exists", lambda _: False)
    with pytest.raises(ValueError, match=r"^seed: expected 2, with which the scores in .* were begun, got 3"):
        check_run(path, {"seed": 3})
