"""Samples that see one another are refused by every estimator, from the batch on at which they begin to."""

from itertools import permutations

import lai_torch
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence

from tests.lai_torch import coupling
from tests.lai_torch.coupling import BY_FLAG, BY_VALUES, WIRED, Net, batch, centred
from tests.lai_torch.support import LOSS, by_autograd, curated, labels, randn
from tests.support.torch_functions import ruled
from tests.support.torch_modules import held, holding


def vectors(n):
    return randn(n, coupling.WIDTH), labels(n)


WAYS = [
    ("lai", "kept"),
    ("exact", "kept"),
    ("lai", "whole"),
    ("lai", "selective"),
    ("lli", "kept"),
    ("ghost", "kept"),
]
PLACES = [*BY_VALUES, *((name, where) for name in BY_FLAG for where in ("model", "loss", "hook"))]


@pytest.mark.parametrize(("estimator", "backward"), WAYS)
@pytest.mark.parametrize("name", PLACES)
def test_samples_that_begin_to_meet(name, estimator, backward):
    net, loss = (Net(BY_VALUES[name]), LOSS) if name in BY_VALUES else coupling.flagged(*name)
    options = {"estimator": estimator, "backward": backward, "refresh": 100}
    curator = curated(net.eval(), batch(9), loss, lr=1e-3, **options)

    def steps(before):
        for step in range(before):
            curator.step(*batch(step))
        curator.step(*coupling.meeting(net))

    if backward == "selective" or (estimator != "exact" and WIRED & {name, name[0]}):
        with pytest.raises(ValueError, match=r"coupled|backward: 'selective' expects"):
            steps(3)
    else:  # a graph is proved again at the first batch after a step, exact scores at the fourth
        before = 2 if estimator == "exact" else 1
        with pytest.raises(ValueError, match=coupling.REFUSED):
            steps(before)
        assert curator.steps == before


@pytest.mark.parametrize("estimator", ["lai", "ghost", "lli"])
def test_a_refusal_ends_earlier_proofs(estimator):
    net = Net(BY_VALUES["where"])
    curator = curated(net.eval(), batch(9, 5), estimator=estimator, refresh=100)
    for number in range(3):
        curator.score(*batch(number))
    for _ in range(3):  # the fourth call is proved, and no later one goes by the proof of the first
        with pytest.raises(ValueError, match=coupling.REFUSED):
            curator.score(*coupling.meeting(net))
    curator.score(*batch(4))


@pytest.mark.parametrize("estimator", ["lai", "ghost", "lli"])
def test_counts_that_divide_losses(estimator):
    """By a number of labels that no row had moved in the proof; a number of the loop's may be any."""
    factor = torch.ones(())

    def loss(outputs, targets):
        return LOSS(outputs, targets.clamp(min=0)) * (len(targets) / (targets >= 0).sum()) * factor

    model, known, (inputs, targets) = nn.Linear(coupling.WIDTH, 3).double(), vectors(9), vectors(6)
    curator = curated(model, known, loss, estimator=estimator, refresh=100)
    first = curator.score(inputs, targets)[1].scores
    for number in (2.0, 0.5):
        factor.fill_(number)
        torch.testing.assert_close(curator.score(inputs, targets)[1].scores, number * first)
    curator, norms = curated(model, known, loss, estimator=estimator), lai_torch.PerSampleNorms(model, loss)
    for call in (lambda *given: curator.score(*given), norms.forward):
        call(inputs, targets)
        with pytest.raises(ValueError, match=coupling.REFUSED):
            call(inputs, targets.masked_fill(torch.arange(6) % 3 == 1, -1))


def test_meeting_after_an_accumulated_step():
    net = Net(BY_VALUES["where"])
    curator = curated(net.eval(), batch(9), refresh=100, accumulate=5)
    for step in range(5):  # the fourth call is proved, before the step
        curator.step(*batch(step))
    with pytest.raises(ValueError, match="coupled"):
        curator.step(*coupling.meeting(net))


def test_meeting_is_seen_among_draws():
    """In a network that draws a number for each value, so that no two runs are alike."""
    net = Net(noise=torch.randn_like, front=lambda x: x - (x.amax() > 9) * x.mean(0))
    curator = curated(net, vectors(6), refresh=9)
    for _ in range(2):  # the fourth call is proved
        curator.step(*vectors(6))
    with pytest.raises(ValueError, match="coupled"):
        curator.step(20 * vectors(6)[0], labels(6))


BRANCHES = {
    "whether all count": lambda net, h, x: h if (x.abs() < 100).all() else h + 1,
    "how many count": lambda net, h, x: h if (x.abs() < 100).sum() == x.numel() else h + 1,
}
PLACED = {
    "a table by rows": lambda net, h, x: (
        h[torch.arange(len(h)), (x > 0).long().sum(1).clamp(max=3), None] + h
    ),
    "a buffer of positions": lambda net, h, x: h + net.table[0] + net.gate,
    "dropout": lambda net, h, x: functional.dropout(h, 0.5, training=net.training),
    "recurrent": lambda net, h, x: torch.cumsum(h, 1).flip(1),
}


@holding(lambda place=None: held(memory=nn.GRU(4, 5, batch_first=True), head=nn.Linear(5, 3), place=place))
def packed(own, inputs, lengths):
    """Read sequences that have to be given by length."""
    inputs = inputs if own.place is None else own.place(inputs)
    return own.head(own.memory(pack_padded_sequence(inputs, lengths, batch_first=True))[1][-1])


@holding(lambda: held(memory=nn.GRU(4, 5, batch_first=True), head=nn.Linear(5, 3)))
def cut(own, inputs, lengths):
    """Read sequences up to the length of the first, which is to be the longest."""
    states, last = own.memory(inputs[:, : lengths[0]])[0], (lengths - 1).clamp(max=lengths[0] - 1)
    return own.head(states[torch.arange(len(lengths)), last])


def sequences(n):
    return (randn(n, 5, 4), torch.tensor([5, 4, 4, 3, 2, 1])[:n]), labels(n)


@holding(lambda: held(body=nn.Linear(4, 4), head=nn.Linear(8, 3)))
def masked_in_float32(own, inputs):
    """Weigh by numbers of float32 that are below its range, as those of masked positions are."""
    hidden = own.body(inputs).float()
    weights = torch.softmax(torch.cat([hidden, 3 * hidden - 100], 1), 1)
    return own.head(weights.double() / 100)


@holding(lambda: held(body=nn.Conv2d(1, 5, 1), norm=nn.BatchNorm2d(5), head=nn.Linear(5, 3)))
def averaged_norms(own, inputs):
    """Average positions behind a norm, to which the gradient of one sample alone comes expanded."""
    maps = own.norm(torch.tanh(own.body(inputs.view(-1, 1, 2, 2))))
    return own.head(maps.flatten(2).transpose(1, 2).mean(1))


APART = {
    **{name: (lambda place=place: Net(place), vectors, "kept") for name, place in BRANCHES.items()},
    **{name: (lambda place=place: Net(place), vectors, "selective") for name, place in PLACED.items()},
    "gamma": (lambda: Net(noise=lambda values: torch._standard_gamma(values.abs() + 2)), vectors, "kept"),
    "below the range": (lambda: masked_in_float32().double(), vectors, "kept"),
    "two beside a third": (lambda: averaged_norms().double().eval(), lambda _: vectors(2), "kept"),
    "sequences by length": (lambda: packed().double(), sequences, "kept"),
    "the longest first": (lambda: cut().double(), sequences, "kept"),
}


@pytest.mark.filterwarnings("ignore:.*LAI has no readout")
@pytest.mark.parametrize("name", APART)
def test_what_keeps_samples_apart_is_taken(name):
    make, draw, backward = APART[name]
    curator = curated(make(), draw(6), backward=backward)
    for _ in range(4):
        assert curator.step(*draw(6)).scores.isfinite().all()


SORTED_BACK = {
    "by a table": lambda values, places: functional.embedding(places, values),
    "by a mask": lambda values, places: (
        values[None] * functional.one_hot(places, len(values))[..., None]
    ).sum(1),
}


@holding(lambda back: held(body=nn.Linear(4, 5), head=nn.Linear(5, 3), back=back))
def sort_rows(own, inputs):
    order = inputs[:, 0].argsort()
    return own.head(own.back(own.body(inputs[order]).tanh(), order.argsort()))


@pytest.mark.parametrize("back", SORTED_BACK)
def test_models_that_sort_are_exact(back):
    """Of a batch that is sorted already copies are so, too."""
    model, given, *batches = sort_rows(SORTED_BACK[back]).double(), vectors(5), vectors(6), vectors(6)
    validation, first = ((inputs[inputs[:, 0].argsort()], classes) for inputs, classes in (given, batches[0]))
    curator = curated(model, validation, estimator="ghost")
    for inputs, targets in (first, batches[1]):
        scores = curator.score(inputs, targets)[1].scores
        torch.testing.assert_close(scores, by_autograd(model, validation, (inputs, targets)))


@holding(lambda meet=False: held(body=nn.Linear(4, 5), head=nn.Linear(5, 3), meet=meet))
def make_graphs(own, nodes, edges, graph, graphs):
    nodes = own.body(nodes - nodes.mean(0) if own.meet else nodes).tanh()
    return own.head(nodes.new_zeros(graphs, 5).index_add(0, graph, nodes[edges[1]]))


def graphs(n):
    """Return n graphs of two nodes and more, none of a number that says where one ends."""
    graph = torch.arange(n).repeat_interleave(2 + torch.arange(n) % 3)
    edges = torch.arange(len(graph)).expand(2, -1)
    return (randn(len(graph), 4), edges, graph, n), labels(n)


def number_rows(values):
    return values * torch.arange(1.0, 1.0 + len(values)).to(values)[:, None]


by_place = ruled(lambda values: values.clone(), lambda ctx, gradients: number_rows(gradients))


MEETING = {
    # a step runs the rows it keeps at other places
    "values by place": (lambda: Net(lambda net, h, x: number_rows(h)), vectors),
    "gradients by place": (lambda: Net(lambda net, h, x: by_place.apply(h)), vectors),
    "sequences by length": (lambda: packed(centred), sequences),
    "sequences by length, with gradient": (lambda: packed(lambda x: x - x.mean(0)), sequences),
    # no exchange of rows moves a node, so that centring over all of them would not be seen
    "graphs side by side": (make_graphs, graphs),
    "graphs that meet": (lambda: make_graphs(meet=True), graphs),
}


@pytest.mark.parametrize("name", MEETING)
def test_every_estimator_refuses_meeting_samples(name):
    make, draw = MEETING[name]
    words = rf"{coupling.REFUSED}|in another order|samples in another way .* pad it|a sample's place"
    model = make().double()
    before = [parameter.detach().clone() for parameter in model.parameters()]
    for estimator in ("lai", "ghost", "lli", "exact"):
        with pytest.raises(ValueError, match=words):
            curated(model, draw(4), estimator=estimator).step(*draw(6))
    for gradients in ("output", "all"):
        with pytest.raises(ValueError, match=words):
            lai_torch.trace(model, LOSS, *draw(6), gradients=gradients)
    assert all(map(torch.equal, model.parameters(), before))


@pytest.mark.parametrize(
    "leak",
    [
        lambda hidden: hidden.mean(0),
        lambda hidden: hidden.roll(1, 0),
        lambda hidden: torch.cat([hidden[1:2], torch.zeros_like(hidden[1:])]),  # to sample 0 from 1 alone
    ],
)
@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_leaks_of_some_roundings_are_refused(kind, leak):
    inputs, targets = batch(0)
    precision = torch.finfo(kind).eps
    for share in (1.0, (64 if precision > 1e-4 else 2048) * precision):
        net = Net(lambda net, h, x, share=share: h - share * leak(h))
        with pytest.raises(ValueError, match=coupling.REFUSED):
            lai_torch.trace(net.to(kind), LOSS, inputs.to(kind), targets, gradients="all")


@pytest.mark.parametrize("samples", [2, 3, 5, 8])
@pytest.mark.parametrize("exact", [True, False])
def test_every_pair_is_told_apart(samples, exact):
    # exact scores, and passes that draw random numbers, compare samples at their own places alone
    noise = torch.zeros_like if exact else torch.rand_like
    score = (
        lai_torch.exact_scores if exact else lambda net, loss, held, batch: lai_torch.trace(net, loss, *batch)
    )
    batch = vectors(samples)
    for one, other in permutations(range(samples), 2):

        def leak(net, h, x, one=one, other=other):
            moved = torch.zeros_like(h)
            moved[one % len(x)] = x[other % len(x), 0]  # of which no gradient tells
            return h + moved + 0 * noise(h)

        with pytest.raises(ValueError, match=coupling.REFUSED):
            score(Net(leak), LOSS, vectors(1), batch)


@pytest.mark.parametrize("seed", range(12))
def test_gradients_of_each_sample_are_compared(seed):
    """The backward pass alone takes the larger half."""

    def larger(net, h, x):
        h.register_hook(lambda g: g * (x[:, :1] >= x[:, 0].median()))
        return h

    torch.manual_seed(seed)
    batch = torch.randn(8, coupling.WIDTH).double(), labels(8)
    with pytest.raises(ValueError, match=coupling.REFUSED):
        lai_torch.trace(Net(larger), LOSS, *batch, gradients="all")


def test_other_lists_are_passed_on():
    def both(outputs, targets):
        return sum(LOSS(outputs, one) for one in targets["both"]) * len(targets["names"])

    (inputs, targets), validation = vectors(1), (randn(5, 4), {"both": [labels(5)] * 2, "names": ["a"]})
    curator = curated(nn.Linear(4, 3).double(), validation, both)
    assert curator.score(inputs, {"both": [targets] * 2, "names": [*"abc"]})[0].shape == (1,)
