"""Batches that hold samples in another way than by rows: graphs side by side, flat lists with offsets."""

import copy

import lai_torch
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from tests.lai_torch.coupling import EACH, centred, check_refused
from tests.lai_torch.support import LOSS, by_autograd, curated, labels, randn
from tests.support.torch_modules import held, holding


@holding(
    lambda *, meet=False: held(first=nn.Linear(4, 6), second=nn.Linear(6, 6), head=nn.Linear(6, 3), meet=meet)
)
def make_graphs(own, nodes, edges, graph, graphs):
    """Convolve over all graphs' nodes side by side, and add up the nodes of each."""
    hidden = torch.relu(own.first(nodes - nodes.mean(0) if own.meet else nodes))
    hidden = hidden + torch.zeros_like(hidden).index_add(0, edges[1], own.second(hidden)[edges[0]])
    return own.head(hidden.new_zeros(graphs, 6).index_add(0, graph, torch.relu(hidden)))


def graphs(n):
    """Return n rings of two nodes and more, none of a length that says where one ends."""
    sizes = [2 + one % 3 for one in range(n)]
    graph = torch.arange(n).repeat_interleave(torch.tensor(sizes))
    starts = [sum(sizes[:one]) for one in range(n)]
    rings = zip(starts, sizes, strict=True)
    ends = torch.tensor([start + (one + 1) % size for start, size in rings for one in range(size)])
    return (randn(len(graph), 4), torch.stack([torch.arange(len(graph)), ends]), graph, n), labels(n)


STAYS = r"coupled|in another order|rows can be exchanged|samples in another way .* pad it"


@pytest.mark.parametrize("meet", [False, True])
def test_graphs_side_by_side_are_refused_for_their_nodes_may_meet(meet):
    """No exchange of rows moves a node, so that centring over all of them would not be seen."""
    check_refused(make_graphs(meet=meet).double(), LOSS, graphs, STAYS)


def test_what_is_the_same_for_all_samples_is_cut():
    @holding(lambda: held(head=nn.Linear(4, 3).double(), rows=0))
    def masked(own, inputs, mask):
        if own.training:
            own.rows = len(inputs)
        return own.head(inputs * mask)

    model = masked()
    report = curated(model, ((randn(5, 4), torch.ones(4)), labels(5))).step(
        (randn(6, 4), torch.ones(4)), labels(6)
    )
    assert 0 < report.kept < 6
    assert model.rows == report.kept


def test_other_lists_and_tensors_side_by_side_are_passed_on():
    def both(outputs, targets):
        return sum(LOSS(outputs, one) for one in targets["both"]) * len(targets["names"])

    for n in (6, 1):
        targets = {"both": [labels(n), labels(n)], "names": ["a", "b", "c"]}
        report = curated(nn.Linear(4, 3).double(), (randn(5, 4), targets | {"both": [labels(5)] * 2}), both)
        assert report.score(randn(n, 4), targets)[0].shape == (n,)


@holding(lambda: held(mix=nn.Linear(4, 4).double(), head=nn.Linear(4, 3).double()))
def make_causal(own, inputs, mask):
    """Attend to earlier positions, by a mask of positions that it is given."""
    mixed = own.mix(inputs)
    seen = (mixed @ inputs.transpose(1, 2)).masked_fill(~mask, -torch.inf).softmax(2)
    return own.head((seen @ mixed)[:, -2])


def causal(n, positions=5):
    mask = torch.ones(positions, positions).tril().bool()
    return (randn(n, positions, 4), mask), labels(n)


@pytest.mark.parametrize(
    "options",
    [{"estimator": name} for name in ("lai", "ghost", "lli", "exact")]
    + [{"estimator": lai_torch.Ghost(chunk=5)}, {"backward": "whole"}, {"backward": "selective"}],
)
@pytest.mark.parametrize(("validation", "sizes"), [(4, (6, 5, 5)), (10, (5, 10)), (5, (10, 5, 5))])
def test_a_mask_of_as_many_positions_as_samples_is_kept_whole(validation, sizes, options):
    model, side = make_causal(), causal(validation)
    curator = curated(model, side, refresh=len(sizes), **options)
    for n in sizes:
        (inputs, mask), targets = causal(n)
        before = copy.deepcopy(model)
        plain = torch.optim.SGD(before.parameters(), lr=0.1, momentum=0.9)
        plain.load_state_dict(copy.deepcopy(curator._updater.optimizer.state_dict()))
        weights = curator.step((inputs, mask), targets).weights
        kept = weights > 0
        (weights[kept] * LOSS(before(inputs[kept], mask), targets[kept])).sum().backward()
        plain.step()
        for one, other in zip(model.parameters(), before.parameters(), strict=True):
            torch.testing.assert_close(one, other)


@holding(
    lambda place=None: held(
        memory=nn.GRU(4, 5, batch_first=True).double(), head=nn.Linear(5, 3).double(), place=place
    )
)
def packed(own, inputs, lengths):
    """Read sequences that have to be given by length."""
    inputs = inputs if own.place is None else own.place(inputs)
    return own.head(own.memory(pack_padded_sequence(inputs, lengths, batch_first=True))[1][-1])


def sequences(n):
    lengths = torch.tensor([5, 4, 4, 3, 2, 1])[:n]
    return (randn(n, 5, 4), lengths), labels(n)


@pytest.mark.filterwarnings("ignore:.*LAI has no readout")
@pytest.mark.parametrize("estimator", EACH)
def test_sequences_that_are_given_by_length_are_scored(estimator):
    model, validation, given = packed(), sequences(4), sequences(6)
    scores = curated(model, validation, estimator=estimator).score(*given)[1].scores
    assert scores.isfinite().all()
    if estimator in {"ghost", "exact"}:
        torch.testing.assert_close(scores, by_autograd(model, validation, given))


@pytest.mark.parametrize("place", [centred, lambda values: values - values.mean(0)])
def test_sequences_that_are_given_by_length_and_meet_are_refused(place):
    check_refused(packed(place), LOSS, sequences)
