"""Digits with wrong labels, as the studies read them."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from experiments.studies import tasks

OPTIONS = {"noise": "symmetric", "share": 0.4, "held": 300, "epochs": 1}


def test_disjoint_splits_mislabel_only_training_digits():
    images, labels = load_digits(return_X_y=True)
    places = {(image / 16).astype(np.float32).tobytes(): place for place, image in enumerate(images)}
    task, again, other = (tasks.digits(seed, **OPTIONS) for seed in (0, 0, 1))
    parts = (task.training, task.validation, task.test)
    rows = [[places[image.numpy().tobytes()] for image in part[0]] for part in parts]
    assert sorted(place for of in rows for place in of) == list(range(1797))
    assert [len(of) for of in rows] == [1024, 300, 473]
    wrong = [(part[1].numpy() != labels[of]) for part, of in zip(parts, rows, strict=True)]
    assert [int(of.sum()) for of in wrong] == [round(0.4 * 1024), 0, 0]
    assert np.array_equal(wrong[0], task.wrong.numpy() > 0)
    assert torch.equal(task.training[1], again.training[1])
    assert not torch.equal(task.test[0], other.test[0])
    for share in (-0.1, 1.1):
        with pytest.raises(ValueError, match="flip: expected a share in"):
            tasks.noisy_digits(0, flip=share)


def test_label_noise_follows_its_model():
    right = tasks.digits(0, **OPTIONS | {"share": 0.0})
    truth, classes = right.training[1].numpy(), range(10)
    taken = {}
    for noise in ("symmetric", "asymmetric", "instance"):
        given = tasks.digits(0, **OPTIONS | {"noise": noise}, held_wrong=0.4)
        assert (right.validation[1] != given.validation[1]).float().mean() == pytest.approx(0.4)
        labels, wrong = given.training[1].numpy(), given.training[1].numpy() != truth
        assert wrong.mean() == pytest.approx(0.4, abs=0.05)
        taken[noise] = max((labels[(truth == k) & wrong] == c).mean() for k in classes for c in classes)
        if noise == "asymmetric":
            assert np.array_equal(labels[wrong], tasks.CONFUSED[truth[wrong]])
    assert taken["symmetric"] < 0.4 < taken["instance"] < taken["asymmetric"] == 1.0
    images = np.eye(3, dtype=np.float32)[[0, 1] * 500]  # two images of one class invite other mistakes
    drawn = tasks.mistaken(images, np.zeros(1000, int) + 2, 0.5, np.random.default_rng(0))
    assert abs((drawn[::2] == 0).mean() - (drawn[1::2] == 0).mean()) > 0.1


def test_fine_tuning_splits_are_disjoint():
    task = tasks.fine_tuning(0, share=0.25, training=400, reading=1, epochs=1)
    parts = (task.training, task.validation, task.test)
    training, validation, test = ({tuple(row) for row in part[0].tolist()} for part in parts)
    assert len(test & training) < 0.05 * len(test)  # lines that Python's source repeats
    assert len(validation & training) < 5
