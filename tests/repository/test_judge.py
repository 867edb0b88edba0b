"""The judge of libraries tells right from wrong, and its committed record is what this library does."""

import json

import pytest
import torch

from benchmarks.judge import command, libraries
from benchmarks.judge.libraries import LIBRARIES
from benchmarks.judge.zoo import CASES, COUPLED, code

RECORD = json.loads(command.RECORD.read_text(encoding="utf-8"))
VERDICTS = {"exact", "part", "refused", "crash", "wrong"}


def replace(monkeypatch, ask, outside=frozenset()):
    own = libraries.Library(ask, "torch", "", "", outside)
    monkeypatch.setitem(LIBRARIES, "torch.func", own)
    return command.judge("torch.func", "linear layers")["verdict"]


def test_record_has_every_library_and_case():
    assert {*RECORD} == {*LIBRARIES, "versions", "date"}
    for name in LIBRARIES:
        assert [*RECORD[name]] == [*CASES]
        assert {row["verdict"] for row in RECORD[name].values()} <= VERDICTS
        assert {case for case, row in RECORD[name].items() if row["scope"] == "outside"} == LIBRARIES[
            name
        ].outside


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_own_column_matches_the_record(name):
    recorded = RECORD["lai_torch"][name]
    assert command.judge("lai_torch", name)["verdict"] == recorded["verdict"] != "wrong"
    assert (recorded["verdict"] == "refused") or not name.startswith(COUPLED)
    assert compile(code(name), name, "eval")


def test_verdicts_distinguish_wrong_partial_and_raised(monkeypatch):
    ask = LIBRARIES["torch.func"].ask

    def scale(case):
        found, names = ask(case)
        return found * (1 + 1e-8), names

    def leave_out(case):
        rows = {name: rows for name, rows in case.gradients().items() if name != "0.bias"}
        return libraries.products(rows), rows

    def fail(case):
        return torch.ones(2) @ torch.ones(3), []

    def refuse(case):
        return torch.vmap(lambda row: row[row > 0])(case.inputs), []

    asked = {"exact": ask, "wrong": scale, "part": leave_out, "crash": fail, "refused": refuse}
    assert {verdict: replace(monkeypatch, each) for verdict, each in asked.items()} == {v: v for v in asked}
