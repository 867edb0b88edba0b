"""Confident learning, the studies' method, against cleanlab: which labels it doubts."""

import pytest
import torch
from cleanlab.count import compute_confident_joint
from cleanlab.filter import find_label_issues

from experiments.methods.attribution import confident_class

CLASSES = 4


def drawn(seed, samples=200):
    """Chances of a classifier that is right three times in four, and labels of which a fifth is wrong."""
    generator = torch.Generator().manual_seed(seed)
    right = torch.randint(CLASSES, (samples,), generator=generator)
    logits = 1.5 * torch.randn(samples, CLASSES, generator=generator, dtype=torch.float64)
    logits[torch.arange(samples), right] += 2.5
    moved = torch.randint(1, CLASSES, (samples,), generator=generator)
    wrong = torch.rand(samples, generator=generator) < 0.2
    return logits.softmax(1), torch.where(wrong, (right + moved) % CLASSES, right)


def doubted(chance, labels):
    """Return which labels are off the diagonal of cleanlab's confident joint.

    Its filter of this name spares those of them whose label is the likeliest class all the same.
    """
    _, rows = compute_confident_joint(labels.numpy(), chance.numpy(), return_indices_of_off_diagonals=True)
    found = torch.zeros(len(labels), dtype=torch.bool)
    found[torch.from_numpy(rows)] = True
    return found


@pytest.mark.parametrize("seed", range(10))
def test_the_labels_doubted_are_cleanlabs(seed):
    chance, labels = drawn(seed)
    found = confident_class(chance, labels) != labels
    assert 10 < int(found.sum()) < 80
    assert torch.equal(found, doubted(chance, labels))


def test_what_the_filter_of_cleanlab_finds_besides_is_nothing():
    chance, labels = drawn(3)
    found = confident_class(chance, labels) != labels
    filtered = find_label_issues(labels.numpy(), chance.numpy(), filter_by="confident_learning", n_jobs=1)
    spared = found & (chance.argmax(1) == labels)
    assert spared.any()
    assert torch.equal(found & ~spared, torch.from_numpy(filtered))


def test_one_threshold_for_all_classes_would_be_seen():
    chance, labels = drawn(0)
    chance = chance * torch.tensor([4.0, 1.0, 1.0, 1.0])  # a classifier that sees one class everywhere
    chance = chance / chance.sum(1, keepdim=True)
    argmax = chance.argmax(1) != labels
    assert not torch.equal(argmax, doubted(chance, labels))
    assert torch.equal(confident_class(chance, labels) != labels, doubted(chance, labels))
