"""Batches that hold samples in another way than by rows: graphs side by side, flat lists with offsets."""

import lai_torch
import pytest
import torch
from torch import nn

import lai_core as lai
from tests.lai_torch.support import LOSS, curated, labels, randn, sgd


class Graphs(nn.Module):
    """Convolves over all graphs' nodes side by side, and adds up the nodes of each."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.double()

    def forward(self, nodes, edges, graph, graphs):
        hidden = torch.relu(self.first(nodes))
        hidden = hidden + torch.zeros_like(hidden).index_add(0, edges[1], self.second(hidden)[edges[0]])
        return self.head(hidden.new_zeros(graphs, 6).index_add(0, graph, torch.relu(hidden)))


def graphs(n):
    """Return n rings of two nodes and more, none of a length that says where one ends."""
    sizes = [2 + one % 3 for one in range(n)]
    graph = torch.arange(n).repeat_interleave(torch.tensor(sizes))
    starts = [sum(sizes[:one]) for one in range(n)]
    rings = zip(starts, sizes, strict=True)
    ends = torch.tensor([start + (one + 1) % size for start, size in rings for one in range(size)])
    return (randn(len(graph), 4), torch.stack([torch.arange(len(graph)), ends]), graph, n), labels(n)


class Bags(nn.Module):
    """Sums up words of which one list holds those of all samples, one after another."""

    def __init__(self):
        super().__init__()
        self.bag, self.head = nn.EmbeddingBag(9, 4), nn.Linear(4, 3)
        self.double()

    def forward(self, words, offsets):
        return self.head(self.bag(words, offsets))


def bags(n):
    return (torch.randint(9, (3 * n,)), torch.arange(n) * 3), labels(n)


def gradients(model, inputs, targets):
    losses = LOSS(model(*inputs), targets)
    parameters = list(model.parameters())
    rows = [torch.autograd.grad(loss, parameters, retain_graph=True) for loss in losses]
    return torch.stack([torch.cat([one.flatten() for one in row]) for row in rows])


def test_graphs_side_by_side_are_scored():
    model, training, validation = Graphs(), graphs(6), graphs(4)
    sides = gradients(model, *training), gradients(model, *validation)
    traces = [lai_torch.trace(model, LOSS, *side, gradients="all") for side in (validation, training)]
    torch.testing.assert_close(lai.ghost_kernel(*traces), sides[1] @ sides[0].T)
    found = lai_torch.exact_scores(model, LOSS, validation, training)
    torch.testing.assert_close(found, sides[0] @ sides[1].sum(0))


def test_graphs_that_see_each_other_are_refused():
    inputs, targets = graphs(6)
    inputs[1][1, 0] = len(inputs[0]) - 1
    with pytest.raises(ValueError, match="coupled"):
        lai_torch.trace(Graphs(), LOSS, inputs, targets)


@pytest.mark.filterwarnings("ignore:.*LAI has no readout")
@pytest.mark.parametrize("estimator", ["lai", "ghost", "exact"])
def test_what_cannot_be_cut_trains_by_weights(estimator):
    torch.manual_seed(0)
    model, training, validation = Graphs(), graphs(6), graphs(9)  # a validation set that would be cut in two
    curator = curated(model, validation, estimator=estimator)
    expected = gradients(model, *training) @ gradients(model, *validation).sum(0)
    other = Graphs()
    other.load_state_dict(model.state_dict())
    report = curator.step(*training)
    assert 0 < report.kept < 6
    if estimator != "lai":
        torch.testing.assert_close(report.scores, expected)
    optimizer = sgd(other)
    (LOSS(other(*training[0]), training[1]) * report.weights).sum().backward()
    optimizer.step()
    for found, by_hand in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(found, by_hand)


def test_what_is_the_same_for_all_samples_is_cut():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.head, self.rows = nn.Linear(4, 3).double(), 0

        def forward(self, inputs, mask):
            if self.training:
                self.rows = len(inputs)
            return self.head(inputs * mask)

    model = Masked()
    report = curated(model, ((randn(5, 4), torch.ones(4)), labels(5))).step(
        (randn(6, 4), torch.ones(4)), labels(6)
    )
    assert 0 < report.kept < 6
    assert model.rows == report.kept


def test_rows_that_have_to_stay_are_named():
    with pytest.raises(ValueError, match=r"shape \(18,\) .* so that some cannot be run without"):
        curated(Bags(), bags(4), estimator=lai_torch.Ghost(chunk=2)).step(*bags(6))
    with pytest.raises(ValueError, match=r"shape \(18,\) holds 6 samples in another way .* pad it"):
        curated(Bags(), bags(4), estimator="ghost").step(*bags(6))
    with pytest.raises(ValueError, match="training: expected samples whose rows can stand in the place of"):
        lai_torch.exact_scores(Bags(), LOSS, bags(4), bags(6))
