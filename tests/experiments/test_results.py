"""The numbers of the table against runs whose numbers are known, and the claims."""

import numpy as np
import pytest
from experiments.noisy_labels.data import noisy_digits
from experiments.noisy_labels.results import accuracies, claims, summarize
from experiments.noisy_labels.training import Run

from experiments.noisy_labels import figures
from tests.experiments.runs import made_up_run

FLIPPED = np.array([True, False, False, False])


def _run(kept, seconds=1.0, test=(0.5, 0.7), validation=(0.9, 0.8)):
    kept = np.array(kept, bool)
    return Run(np.array(test), np.array(validation), np.where(kept, 1.0, -1.0), kept, seconds)


def test_shares_count_every_presentation_of_every_seed():
    one = _run([[1, 1, 0, 0], [0, 1, 1, 1]])
    two = _run([[1, 0, 0, 0], [0, 0, 0, 0]], seconds=3.0)
    plain = [_run(np.ones((2, 4)), seconds=0.5)] * 2
    row = summarize({"plain": plain, "lai": [one, two]}, [FLIPPED, FLIPPED])["lai"]
    assert row["kept_share"] == 6 / 16
    assert row["flipped_share_of_kept"] == 2 / 6
    assert row["seconds"] == 2.0
    assert row["seconds_ratio"] == 4.0


def test_accuracy_is_the_last_epochs_and_early_stopping_looks_at_validation_alone():
    row = accuracies([_run(np.ones((2, 4))), _run(np.ones((2, 4)), test=(0.9, 0.6), validation=(0.1, 0.2))])
    assert row["accuracy_mean"] == pytest.approx((0.7 + 0.6) / 2)
    assert row["accuracy_std"] == pytest.approx(0.1 / 2**0.5)
    assert row["early_stopped_mean"] == pytest.approx((0.5 + 0.6) / 2)


def test_one_seed_has_no_deviation_and_nothing_kept_no_flipped_share():
    row = summarize({"plain": [_run(np.zeros((2, 4)))]}, [FLIPPED])["plain"]
    assert row["accuracy_std"] == 0.0
    assert row["flipped_share_of_kept"] is None


def _methods(**changed):
    rows = {name: {"accuracy_mean": 0.9, "flipped_share_of_kept": 0.2} for name in ("ghost", "lai", "lli")}
    rows["plain"] = {"accuracy_mean": 0.75, "flipped_share_of_kept": 0.4}
    for name, row in changed.items():
        rows[name] = rows[name] | row
    return rows


@pytest.mark.parametrize("name", ["ghost", "lai", "lli"])
@pytest.mark.parametrize(
    "row", [{"accuracy_mean": 0.82}, {"flipped_share_of_kept": 0.33}, {"flipped_share_of_kept": None}]
)
def test_each_claim_fails_for_each_method(name, row):
    assert all(claim["holds"] for claim in claims(_methods()))
    failing = [claim["claim"] for claim in claims(_methods(**{name: row})) if not claim["holds"]]
    assert len(failing) == 1
    assert failing[0].startswith(name)


def test_distributions_count_every_score_of_its_kind():
    data = [noisy_digits(0), noisy_digits(1)]
    runs = [made_up_run(seed, 3, digits.flipped, 0.9) for seed, digits in enumerate(data)]
    found = figures.score_distributions(runs, data)
    assert list(found["histograms"]) == ["1", "2", "3"]
    for counts in found["histograms"].values():
        assert sum(counts["flipped"]) == 2 * 410
        assert sum(counts["right"]) == 2 * 614
    pooled = np.concatenate([run.scores[1][digits.flipped] for run, digits in zip(runs, data, strict=True)])
    assert found["over_epochs"]["flipped"][2][1] == pytest.approx(np.median(pooled))


def test_participation_is_what_was_kept_in_the_order_it_names():
    digits = noisy_digits(0)
    run = made_up_run(0, 3, digits.flipped, 0.9)
    found = figures.participation(run, digits)
    assert sorted(found["sample"]) == list(range(1024))
    assert found["flipped"] == sorted(found["flipped"])
    for sample, epochs in zip(found["sample"][::100], found["epochs"][::100], strict=True):
        assert [epoch == "1" for epoch in epochs] == run.kept[:, sample].tolist()


def test_the_lowest_scored_samples_are_the_lowest():
    digits = noisy_digits(0)
    scores = np.tile(np.arange(1024.0), (2, 1))
    run = Run(np.zeros(2), np.zeros(2), scores[:, ::-1], scores > 0, 1.0)
    assert [row["sample"] for row in figures.lowest_scored(run, digits, 3)] == [1023, 1022, 1021]


def test_single_samples_are_three_of_each_kind_with_their_own_scores():
    digits = noisy_digits(0)
    run = made_up_run(0, 3, digits.flipped, 0.9)
    tracks = figures.single_samples(run, digits)
    assert [track["given_label"] != track["true_label"] for track in tracks] == [False] * 3 + [True] * 3
    for track in tracks:
        assert track["scores"] == run.scores[:, track["sample"]].tolist()
        assert track["true_label"] == digits.true_labels[track["sample"]]
