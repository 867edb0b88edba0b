"""The studies' own parts: the corpus with bad sequences, the history of scores, what they claim."""

import numpy as np
import pytest
import torch
from experiments.studies.networks import GPT, Classifier

from experiments.data import prose
from experiments.methods.base import auc
from experiments.studies import STUDIES, dynamics, pretrained, pretraining


def test_three_tenths_of_the_corpus_are_bad_and_test_text_is_from_elsewhere():
    training, bad, clean, test = pretraining.corpus(0, 0.3, count=300)
    assert bad.mean() == pytest.approx(0.3, abs=0.1)
    assert len(clean) == 32
    assert len(test) == 300
    text = prose.prose()
    letters = {number: letter for letter, number in prose.alphabet().items()}
    written = ["".join(letters[int(i)] for i in row) for row in training]
    assert all(line in text for line, wrong in zip(written, bad, strict=True) if not wrong)
    copies = [line for line in written if line == pretraining.LICENCE[: pretraining.CONTEXT + 1]]
    assert 0 < len(copies) < bad.sum()


@pytest.mark.parametrize("causal", [True, False])
def test_a_gpt_reads_from_left_to_right_and_a_bert_both_ways(causal):
    network = GPT(9, 6, causal=causal)
    ids = torch.tensor([[1, 2, 3, 4, 5, 6]])
    changed = ids.clone()
    changed[0, 3] = 8
    moved = (network(ids) != network(changed)).any(2)[0]
    assert moved.tolist() == [not causal] * 3 + [True] * 3
    assert Classifier(network, 2, seed=0)(ids).shape == (1, 2)


def test_pieces_to_fine_tune_on_are_validated_and_tested_on_others():
    options = {"training": 400, "reading": 1, "epochs": 1}
    task = pretrained.fine_tuning(0, text="source code", causal=True, share=0.25, **options)
    training, validation, test = (
        {tuple(row) for row in part[0].tolist()} for part in (task.training, task.validation, task.test)
    )
    assert len(test & training) < 0.05 * len(test)  # lines that Python's source repeats
    assert len(validation & training) < 5
    assert float(task.wrong.mean()) == 0.25
    one, other = task.network(3), task.network(3)
    for first, second in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(first, second, rtol=0, atol=0)
    assert len({id(each) for each in (*one.parameters(), *other.parameters())}) == 2 * len(
        list(one.parameters())
    )


def test_an_auc_is_the_share_of_pairs_in_order():
    signal, wrong = np.array([3.0, 1.0, 2.0, 2.0]), np.array([True, False, True, False])
    assert auc(signal, wrong) == (1 + 1 + 1 + 0.5) / 4
    assert auc(wrong.astype(float), wrong) == 1.0


@pytest.mark.parametrize("backend", dynamics.STUDY.backends)
def test_every_sample_is_scored_once_an_epoch(backend):
    config = {"seeds": [0], "epochs": 2, "share": 0.4, "backend": backend}
    run, data, own = dynamics.history("plain, scored by LAI", 0, config)
    assert run.scores.shape == (2, 1024)
    assert (run.scores != 0).mean() > 0.99
    assert run.kept.all()
    assert data.flipped.mean() == pytest.approx(0.4, abs=1e-3)
    assert own.shape == data.flipped.shape
    assert own[data.flipped].mean() > own[~data.flipped].mean()
    assert 0.3 < run.test_accuracy[-1] < 1.0


@pytest.mark.parametrize("study", STUDIES.values(), ids=lambda study: study.name)
def test_every_study_has_a_null_an_oracle_and_enough_seeds(study):
    assert study.null != study.oracle
    assert len(study.config("full")["seeds"]) >= 5
    units = study.units(study.config("full") | {"size": "full"})
    assert len({(unit.name, unit.seed) for unit in units}) == len(units)
