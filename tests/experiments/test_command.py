"""The command from end to end, small; what it writes, and when it fails."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from experiments.noisy_labels.recipe import METHODS
from experiments.noisy_labels.study import BACKENDS
from matplotlib.figure import Figure
from matplotlib.image import imread

from experiments.__main__ import studies
from experiments.noisy_labels import command
from tests.experiments.runs import made_up_study

PICTURES = ("accuracy", "scores", "participation", "samples", "lowest")
KEYS = {
    "accuracy_mean",
    "accuracy_std",
    "kept_share",
    "flipped_share_of_kept",
    "seconds",
    "seconds_ratio",
}


def _invoke(out, *options):
    result = CliRunner().invoke(studies, ["noisy-labels", "--out", str(out), *options])
    return result, json.loads((out / "results.json").read_text())


def _check_shape(results):
    assert list(results["methods"])[:5] == ["plain", "ghost", "lai", "lli", "preconditioned_lai"]
    for row in results["methods"].values():
        assert row.keys() >= KEYS
        shares = [row[key] for key in ("accuracy_mean", "kept_share", "flipped_share_of_kept")]
        assert all(0.0 <= share <= 1.0 for share in shares)
        assert row["seconds"] > 0
    assert results["methods"]["plain"]["seconds_ratio"] == 1.0
    assert results["methods"]["plain"]["kept_share"] == 1.0


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_seed_of_two_epochs_runs_from_end_to_end(tmp_path, backend):
    result, results = _invoke(tmp_path, "--seeds", "1", "--epochs", "2", "--backend", backend)
    _check_shape(results)
    assert results["settings"]["backend"] == backend
    assert results["methods"]["plain"]["flipped_share_of_kept"] == 410 / 1024
    for method in METHODS:
        assert method.title in result.output
    holds = all(claim["holds"] for claim in results["claims"])
    assert result.exit_code == (0 if holds else 1)
    for name in PICTURES:
        json.loads((tmp_path / f"{name}.json").read_text())
        assert imread(tmp_path / f"{name}.png").std() > 0.01
    curves = json.loads((tmp_path / "accuracy.json").read_text())
    assert curves["lai"]["mean"][-1] == results["methods"]["lai"]["accuracy_mean"]


@pytest.mark.parametrize(("plain", "code"), [(0.81, 0), (0.83, 1)])
def test_the_exit_code_says_whether_the_claims_hold(tmp_path, monkeypatch, plain, code):
    study = made_up_study({"plain": plain})
    monkeypatch.setattr(command, "run_study", lambda *args: study)
    monkeypatch.setattr(Figure, "savefig", lambda *args, **options: None)  # pictures are looked at elsewhere
    result, results = _invoke(tmp_path)
    assert result.exit_code == code
    assert ("DOES NOT HOLD" in result.output) == bool(code)
    assert results["methods"]["plain"]["accuracy_mean"] == pytest.approx(plain)


def test_pictures_survive_one_epoch_and_scores_that_are_not_numbers(tmp_path):
    study = made_up_study({}, seeds=1, epochs=1)
    study.methods["lai"][0].scores[0, :5] = np.nan
    command.write(study, command.collect(study, "torch"), tmp_path)
    assert all((tmp_path / f"{name}.png").stat().st_size > 5000 for name in PICTURES)
    assert "NaN" not in (tmp_path / "scores.json").read_text()


def test_what_it_is_told_must_make_sense():
    for options in (["--seeds", "0"], ["--epochs", "0"], ["--backend", "abacus"]):
        assert CliRunner().invoke(studies, ["noisy-labels", *options]).exit_code == 2
