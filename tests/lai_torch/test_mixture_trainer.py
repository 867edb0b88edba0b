"""Choosing by source in transformers' Trainer: what the shares do, and runs that are cut and resumed."""

import pytest
import torch
from datasets import Dataset, IterableDataset
from lai_torch.integrations._mixing import names_of
from lai_torch.integrations.sources import Sources

from lai_core.mixtures import Mixture, group_scores
from workloads.launches import in_ways, launch
from workloads.torch_processes import largest
from workloads.trainers import by_source

pytestmark = pytest.mark.filterwarnings("default")  # the trainer's own


def shares_of(logs):
    return [line["curation/share/0"] for line in logs if "curation/share/0" in line]


@pytest.mark.slow
def test_the_shares_move_to_the_source_that_helps_and_a_resumed_run_is_the_same(tmp_path):
    through, logs, run = by_source(0, str(tmp_path))
    assert shares_of(logs)[0] == 0.5 < shares_of(logs)[-1]
    assert all(line["curation/kept"] == 1.0 for line in logs if "curation/kept" in line)
    assert run.args.ignore_data_skip is False
    resumed, again, _ = by_source(0, str(tmp_path), resume=f"{tmp_path}/checkpoint-6")
    assert torch.equal(resumed, through)
    assert shares_of(again)[-1] == shares_of(logs)[-1]


@pytest.mark.slow
def test_sources_that_are_text_are_those_of_the_mixtures_names(tmp_path):
    numbers, logs, _ = by_source(0, str(tmp_path / "numbers"))
    names = {"names": ["web", "code", "good"], "fixed": {"good": 4}}
    named, lines, _ = by_source(0, str(tmp_path), mixture=Mixture({"web": 1.0, "code": 1.0}), **names)
    assert torch.equal(named, numbers)
    assert [line["curation/share/web"] for line in lines if "curation/share/web" in line] == shares_of(logs)
    assert any("curation/dropped/good" in line for line in lines)


@pytest.mark.slow
def test_two_processes_and_two_parts_draw_what_one_draws(tmp_path):
    whole, logs, _ = by_source(0, str(tmp_path / "whole"))
    for runs in launch(in_ways, 2, by_source, str(tmp_path), 2, (1, 2), timeout=300.0):
        for parameters, own in runs:
            assert largest(parameters, whole) <= 1e-10
            assert shares_of(own) == pytest.approx(shares_of(logs))


def test_a_mixture_without_sources_is_refused(tmp_path):
    with pytest.raises(
        ValueError, match=r"^groups: expected the name of the entry that says a sample's source"
    ):
        by_source(0, str(tmp_path), groups=None)


def test_a_source_that_the_mixture_does_not_name_is_refused(tmp_path):
    with pytest.raises(ValueError, match="groups: expected one of 'web', 'code', got 'good'; number them"):
        by_source(0, str(tmp_path), mixture=Mixture({"web": 1, "code": 1}), names=["web", "code", "good"])


def test_names_are_those_of_the_mixture_or_of_a_table_and_no_stream_is_read_for_them():
    table = Dataset.from_dict({"source": ["web", "code", "web"], "number": [1, 0, 1]})
    mixture = Mixture({"web": 1.0, "code": 1.0})
    assert names_of(table, "source", mixture, {"good": 4}) == ["web", "code", "good"]
    assert names_of(table, "source", None, None) == ["code", "web"]
    assert names_of(table, "source", Mixture(2), None) == names_of(table, "number", None, None) == []

    def endless():
        while True:
            yield {"source": "web"}

    assert names_of(IterableDataset.from_generator(endless), "source", None, None) == []


def test_scores_of_a_period_make_one_update():
    """Numbers beyond the mixture's sources are those of validation samples: left out."""
    expected, found = Mixture(2), Mixture(2)
    sources = Sources(found, period=2)
    draw = torch.Generator().manual_seed(0)
    scores = torch.randn(2, 40, generator=draw) + torch.tensor([3.0, -3.0, 9.0]).repeat(14)[:40]
    groups = torch.arange(40).remainder(3).expand(2, 40)
    assert not sources.add(scores[0], groups[0])
    assert found.weights == (0.5, 0.5)
    again = Sources(Mixture(2), period=2)
    again.load_state_dict(sources.state_dict())
    assert sources.add(scores[1], groups[1])
    assert again.add(scores[1], groups[1])
    expected.step(*group_scores(scores.double().flatten(), groups.flatten(), 2))
    assert found.weights == again.mixture.weights == expected.weights
    assert found.weights[0] > 0.5
