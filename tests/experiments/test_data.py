"""The noisy digits: how many labels are wrong, and that no image is in two sets."""

import numpy as np
import pytest
from experiments.noisy_labels.data import flip_labels, noisy_digits, stream
from sklearn.datasets import load_digits


@pytest.mark.parametrize("flip", [0.0, 0.25, 0.4, 1.0])
def test_exactly_the_share_asked_for_is_flipped_to_another_class(flip):
    digits = noisy_digits(3, flip=flip)
    assert digits.flipped.sum() == round(flip * 1024)
    assert np.all((digits.training.labels >= 0) & (digits.training.labels < 10))
    assert len(digits.unflipped) == 1024 - digits.flipped.sum()


def test_each_other_class_is_as_likely():
    true = np.full(9000, 4)
    given = flip_labels(true, 1.0, np.random.default_rng(0))
    counts = np.bincount(given, minlength=10)
    assert counts[4] == 0
    assert np.all(np.abs(np.delete(counts, 4) - 1000) < 150)  # five standard deviations


def test_the_three_sets_share_no_image_and_together_are_all():
    digits = noisy_digits(0)
    assert sorted(np.concatenate(digits.indices)) == list(range(1797))
    assert [len(rows) for rows in digits.indices] == [1024, 300, 473]


def test_every_image_has_its_own_label_and_only_training_labels_are_wrong():
    images, labels = load_digits(return_X_y=True)
    digits = noisy_digits(0)
    sets = (digits.training, digits.validation, digits.test)
    for samples, rows in zip(sets, digits.indices, strict=True):
        assert np.allclose(samples.inputs * 16, images[rows])
    assert np.array_equal(digits.true_labels, labels[digits.indices[0]])
    assert np.array_equal(digits.validation.labels, labels[digits.indices[1]])
    assert np.array_equal(digits.test.labels, labels[digits.indices[2]])


def test_a_seed_decides_everything_and_another_seed_decides_otherwise():
    one, again, other = noisy_digits(1), noisy_digits(1), noisy_digits(2)
    assert np.array_equal(one.training.labels, again.training.labels)
    assert np.array_equal(one.training.inputs, again.training.inputs)
    assert not np.array_equal(one.indices[2], other.indices[2])


def test_the_streams_of_one_seed_differ():
    drawn = {stream(0, purpose).integers(2**60) for purpose in ("split and flips", "order of samples")}
    assert len(drawn) == 2


@pytest.mark.parametrize("flip", [-0.1, 1.1])
def test_an_impossible_share_is_refused(flip):
    with pytest.raises(ValueError, match="flip: expected a share in"):
        noisy_digits(0, flip=flip)
