"""Tables of scores in parts: what is written, what goes on where it stopped, what is refused."""

import json
import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lai_storage.scoring import BatchScorer, Indexed, Stream, score_source
from lai_storage.tables import read_scores

SCORES = [3.0, -1.0, math.nan, -1.0, 0.5, 2.0, -4.0, 1.0, 1.5]
INPUTS = np.arange(7.0)


class Listed(BatchScorer):
    """Scores seven samples by a list, and remembers which were asked for."""

    _summaries = ()
    _asarray = np.asarray

    def __init__(self, factor=1.0, **options):
        named = [options.get(name) for name in ("collate", "ids", "groups")]
        super().__init__(options.get("validation", (INPUTS, INPUTS)), 2, *named)
        self.factor, self.asked = factor, []

    _summed = None

    @property
    def _made_of(self):
        return {"model": str(self.factor), "loss": "none"}

    def _numbers(self, pair):
        chosen = [int(number) for number in pair[0]]
        self.asked += chosen
        scores = [self.factor * SCORES[number] for number in chosen]
        return {"score": scores, "standard_error": scores, "loss": 2.0 * pair[0], "gradient_norm": scores}

    def _array(self, values):
        return np.asarray(values)

    def _count(self, pair):
        return len(pair[0])


def load(span, size):
    for start in range(span.start, span.stop, size):
        numbers = INPUTS[start : min(start + size, span.stop)]
        yield numbers, numbers


def pairs(items):
    return tuple(np.array(side) for side in zip(*items, strict=True))


def streamed(samples=range(7)):
    return Stream([(float(number), float(number)) for number in samples], 2, pairs)


def written(folder, source=None, checkpoints=None, labels=None, scorer=None, **options):
    """Score into a folder; return which samples were asked for."""
    scorer = Listed() if scorer is None else scorer
    made = [scorer]

    def at(name, state):
        made.append(Listed(state))
        return made[-1]

    source = Indexed(7, 2, load) if source is None else source
    labels = {"ids": None, "groups": None} | (labels or {})
    options = {"rows": 3, "process": (0, 1), "progress": False} | options
    settings = {"estimator": options.pop("estimator", "lai")}
    score_source(folder, scorer, source, checkpoints, at, settings, labels, **options)
    return [number for each in made for number in each.asked]


SOURCES = {"data set": lambda: Indexed(7, 2, load), "stream": streamed}


@pytest.mark.parametrize("kind", SOURCES)
def test_parts_are_consecutive_and_tables_ranked(tmp_path, kind):
    folder = tmp_path / "a" / "b=1"
    assert written(folder, SOURCES[kind]()) == list(range(7))
    files = {path.name for path in folder.iterdir()}
    parts = {f"part-00000{part}.parquet" for part in range(3)}
    assert files - {"end.json"} == {*parts, "run.json"}
    table = read_scores(folder)
    assert table.column_names == ["id", "score", "standard_error", "loss", "gradient_norm", "rank"]
    assert table["id"].to_pylist() == list(range(7))
    np.testing.assert_array_equal(table["score"].to_numpy(), SCORES[:7])
    assert table["rank"].to_pylist() == [6, 2, None, 2, 4, 5, 1]
    run = json.loads((folder / "run.json").read_text())
    assert (run["rows"], run["checkpoints"], run["estimator"]) == (3, None, "lai")
    assert run["samples"] == (7 if kind == "data set" else None)
    marks = json.loads(pq.read_schema(folder / "part-000000.parquet").metadata[b"lai"])
    assert (marks["model"], len(marks["samples"])) == ("1.0", 32)


@pytest.mark.parametrize("kind", SOURCES)
def test_stopped_runs_resume_with_missing_parts(tmp_path, kind):
    written(tmp_path, SOURCES[kind]())
    table = read_scores(tmp_path)
    (tmp_path / "part-000001.parquet").unlink()
    with pytest.raises(ValueError, match=r"1 of 3 parts, part-000001\.parquet first missing: start"):
        read_scores(tmp_path)
    (tmp_path / ".part-000001.parquet.0").write_text("left by one that was killed")
    (tmp_path / "end.json").unlink(missing_ok=True)
    if kind == "stream":
        with pytest.raises(ValueError, match="expected all scores, a stream's end missing: start"):
            read_scores(tmp_path)
    assert written(tmp_path, SOURCES[kind]()) == [3, 4, 5]
    assert written(tmp_path, SOURCES[kind]()) == []
    np.testing.assert_equal(read_scores(tmp_path).to_pydict(), table.to_pydict())
    assert [path.name for path in tmp_path.glob(".*")] == [".part-000001.parquet.0"]  # others' are left alone


@pytest.mark.parametrize("kind", SOURCES)
def test_each_process_writes_its_own_parts(tmp_path, kind):
    assert written(tmp_path, SOURCES[kind](), process=(1, 2)) == [3, 4, 5]
    assert written(tmp_path, SOURCES[kind](), process=(0, 2)) == [0, 1, 2, 6]
    np.testing.assert_array_equal(read_scores(tmp_path)["score"].to_numpy(), SCORES[:7])


@pytest.mark.parametrize("process", [(2, 2), (-1, 2), (0, 0), (0.0, 1), "01", 1, (True, 2)])
def test_invalid_process_indices_are_named(tmp_path, process):
    with pytest.raises(ValueError, match=r"^process: expected a pair \(index, count\) with 0 <= index"):
        written(tmp_path / "new", process=process)
    assert not (tmp_path / "new").exists()


def test_streams_of_whole_parts_end_cleanly(tmp_path):
    assert written(tmp_path / "even", streamed(range(6))) == list(range(6))
    assert len(read_scores(tmp_path / "even")) == 6
    with pytest.raises(ValueError, match=r"^dataset: expected at least one sample, got none$"):
        written(tmp_path / "none", streamed([]))


def test_one_pass_streams_allow_one_checkpoint(tmp_path):
    def once():
        return Stream(iter(streamed().items), 2, pairs)

    assert written(tmp_path / "one", once(), checkpoints={"a": 1.0}) == [*range(7)]
    with pytest.raises(TypeError, match=r"^dataset: expected a stream that can begin again for each of 2 "):
        written(tmp_path / "two", once(), checkpoints={"a": 1.0, "b": 2.0})


def fewer(span, size):
    return ((inputs[1:], targets[1:]) for inputs, targets in load(span, size))


@pytest.mark.parametrize(
    ("source", "kept", "got"),
    [(Indexed(7, 2, fewer), 3, 1), (Stream(streamed().items, 2, lambda items: pairs(items[1:])), 2, 1)],
    ids=SOURCES,
)
def test_shortening_collations_are_named(tmp_path, source, kept, got):
    said = f"^dataset: expected a collation that keeps {kept} samples, got {got} from it"
    with pytest.raises(ValueError, match=said):
        written(tmp_path, source)


@pytest.mark.parametrize("collate", [("a",), ("a", 1), ("a", "b", "c"), ["a", "b"], 1, "ab"])
def test_collations_are_functions_or_two_names(collate):
    with pytest.raises(TypeError, match=r"^collate: expected the names of two columns, .*, got "):
        Listed(collate=collate)


def test_validation_columns_exclude_labels():
    columns = {"name": [*"abcdefg"], "x": INPUTS, "y": 2.0 * INPUTS, "kind": [1] * 7}
    scorer = Listed(validation=columns, ids="name", groups="kind", collate=("x", "y"))
    np.testing.assert_array_equal(scorer._validation(), [INPUTS, 2.0 * INPUTS])


@pytest.mark.parametrize("kind", SOURCES)
def test_the_bar_counts_the_samples_read(tmp_path, capsys, kind):
    written(tmp_path, SOURCES[kind](), progress=True)
    shown = capsys.readouterr().err
    assert {"data set": "7/7", "stream": "stream of unknown length: 7 samples"}[kind] in shown
    written(tmp_path, SOURCES[kind]())
    assert not capsys.readouterr().err


@pytest.mark.parametrize("kind", SOURCES)
def test_tables_name_samples_and_average_checkpoints(tmp_path, kind):
    labels = {"ids": np.array([*"aacdefg"]), "groups": pa.array([0, 0, 0, 1, 1, 1, 1])}
    if kind == "stream":
        labels = {}
    checkpoints = {"first": 1.0, "second": 3.0}
    written(tmp_path, SOURCES[kind](), checkpoints=checkpoints, labels=labels)
    table = read_scores(tmp_path)
    assert table["checkpoint"].to_pylist() == ["first"] * 7 + ["second"] * 7
    assert table["rank"].to_pylist() == [6, 2, None, 2, 4, 5, 1] * 2
    averaged = read_scores(tmp_path, average=True)
    names = ["id", "score", "standard_error", "loss", "gradient_norm"]
    assert averaged.column_names == [*names, *(["group"] if labels else []), "rank"]
    np.testing.assert_array_equal(averaged["score"], [2.0 * score for score in SCORES[:7]])
    if labels:  # rows are averaged by place: an id may stand there twice
        assert averaged["id"].to_pylist() == [*"aacdefg"]
        assert averaged["group"].to_pylist() == [0, 0, 0, 1, 1, 1, 1]


def test_tables_hold_what_manifests_list(tmp_path):
    written(tmp_path / "top", checkpoints={"a": 1.0})
    written(tmp_path / "top" / "b", scorer=Listed(3.0))  # a run of its own in a folder below
    stale = tmp_path / "top" / "a" / "part-000007.parquet"
    stale.write_bytes((tmp_path / "top" / "a" / "part-000002.parquet").read_bytes())
    assert read_scores(tmp_path / "top")["checkpoint"].to_pylist() == ["a"] * 7


LABELS = {
    "list": ([*"abcdefg"], [*"abcdefg"]),
    "objects of numpy": (np.array([*"abcdefg"], object), [*"abcdefg"]),
    "chunks of Arrow": (pa.chunked_array([[*"abc"], [*"defg"]]), [*"abcdefg"]),
    "numbers of numpy": ([*np.arange(7)], [*range(7)]),
    "flags": ([True, False] * 3 + [True], [True, False] * 3 + [True]),
    "a Series": (pd.Series([*"abcdefg"], index=[*range(7)][::-1]), [*"abcdefg"]),
}


@pytest.mark.parametrize("role", ["ids", "groups"])
@pytest.mark.parametrize("case", LABELS)
def test_labels_are_matched_by_position(tmp_path, case, role):
    given, expected = LABELS[case]
    written(tmp_path, labels={role: given})
    assert read_scores(tmp_path)[role.removesuffix("s")].to_pylist() == expected


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"labels": {"ids": [*"abc"]}}, ValueError, "^ids: expected one per sample, 7, got 3$"),
        ({"labels": {"ids": [0.5] * 7}}, TypeError, "^ids: expected whole numbers .* got float$"),
        ({"labels": {"ids": [1, "a"] * 3 + [2]}}, TypeError, "^ids: .* got int, str$"),
        ({"labels": {"ids": {*"abcdefg"}}}, TypeError, "^ids: expected whole numbers .* got set$"),
        ({"labels": {"ids": "uid"}}, ValueError, "^ids: expected a batch with a column 'uid', got tuple$"),
        ({"checkpoints": [1.0]}, TypeError, "^checkpoints: expected a mapping of names"),
        ({"checkpoints": {}}, ValueError, "^checkpoints: expected names .* got none"),
        ({"checkpoints": {"a/b": 1.0}}, ValueError, "^checkpoints: expected names .* got 'a/b'"),
        ({"checkpoints": {"run.json": 1.0}}, ValueError, "^checkpoints: expected names .* got 'run.json'"),
        ({"checkpoints": {1: 1.0}}, ValueError, "^checkpoints: expected names .* got 1"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, options, kind, message):
    ids = options.get("labels", {}).get("ids")
    scorer = Listed(ids=ids) if isinstance(ids, str) else None
    with pytest.raises(kind, match=message):
        written(tmp_path / "new", scorer=scorer, **options)
    assert not list(tmp_path.rglob("*.parquet"))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"estimator": "ghost"}, r"^estimator: expected 'lai', with which the scores .* got 'ghost'; pass"),
        ({"rows": 4}, r"^rows_per_file: expected 3, with which .* were begun, got 4; pass another"),
        ({"checkpoints": {"a": 1.0}}, r"^checkpoints: expected None, .* got \['a'\]"),
        (
            {"scorer": Listed(2.0)},
            r"^model: expected the one .* other parameters, buffers or classes, or another `valid`; pass",
        ),
        (
            {"scorer": Listed(validation=(INPUTS, INPUTS + 1))},
            r"^validation: expected the one .* a summary of others; pass another",
        ),
    ],
)
def test_other_runs_are_refused_with_differences(tmp_path, changed, message):
    written(tmp_path)
    with pytest.raises(ValueError, match=message) as raised:
        written(tmp_path, **changed)
    assert "or delete this one" in str(raised.value)


def test_sizes_of_numpy_resume(tmp_path):
    written(tmp_path, rows=np.int64(3))
    assert written(tmp_path) == []


def test_parts_of_different_runs_never_mix(tmp_path):
    for name, factor in {"one": 1.0, "other": 2.0}.items():
        written(tmp_path / name, scorer=Listed(factor))
    part = "part-000001.parquet"
    (tmp_path / "one" / part).write_bytes((tmp_path / "other" / part).read_bytes())
    with pytest.raises(ValueError, match=r"^model: expected the one .* other parameters, buffers"):
        read_scores(tmp_path / "one")


def test_altered_bytes_are_refused(tmp_path):
    written(tmp_path)
    path = tmp_path / "part-000000.parquet"
    whole = path.read_bytes()
    for at in range(30, 46):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(OSError, match=r"CRC|Corrupt|deserialize|Thrift"):
            read_scores(tmp_path)


def test_foreign_files_in_folders_are_ignored(tmp_path):
    written(tmp_path / "a")
    (tmp_path / "a" / "part-abc.parquet").write_text("a note")
    assert written(tmp_path / "a") == []
    (tmp_path / "b").write_text("a file")
    with pytest.raises(ValueError, match=r"^folder: expected one that is there or can be made, got .*b'"):
        written(tmp_path / "b")


def test_streams_of_other_lengths_are_refused(tmp_path):
    written(tmp_path, streamed(range(7)))
    for samples in (6, 8):
        with pytest.raises(ValueError, match=r"^(dataset|samples): expected (the samples|7, with)"):
            written(tmp_path, streamed(range(samples)))
    assert len(read_scores(tmp_path)) == 7


def test_reordered_ids_are_refused(tmp_path):
    written(tmp_path, labels={"ids": [*"abcdefg"]})
    with pytest.raises(ValueError, match=r"^dataset: .*part-000001\.parquet was made of, in their order"):
        written(tmp_path, labels={"ids": [*"abcdgfe"]})
    assert pq.read_schema(tmp_path / "part-000001.parquet").names[0] == "id"
