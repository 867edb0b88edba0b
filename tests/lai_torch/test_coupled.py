"""Samples that see one another are refused by every estimator, from the batch on at which they begin to."""

import lai_torch
import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.lai_torch import coupling
from tests.lai_torch.coupling import BY_FLAG, BY_VALUES, WIRED, Net, batch, centred
from tests.lai_torch.support import LOSS, curated, labels, randn
from tests.support.torch_modules import held, holding


def drawing(*places, **ends):
    """Return a network that draws a number for each value, so that no two runs are alike."""
    return Net(*places, noise=torch.randn_like, **ends)


def vectors(n):
    return randn(n, coupling.WIDTH), labels(n)


WAYS = [
    ("lai", "kept"),
    ("exact", "kept"),
    ("lai", "whole"),
    ("lli", "kept"),
    ("ghost", "kept"),
]
PLACES = [*BY_VALUES, *((name, where) for name in BY_FLAG for where in ("model", "loss", "hook"))]


@pytest.mark.parametrize(("estimator", "backward"), WAYS)
@pytest.mark.parametrize("name", PLACES)
def test_samples_that_begin_to_meet_are_refused_at_that_batch(name, estimator, backward):
    net, loss = (Net(BY_VALUES[name]), LOSS) if name in BY_VALUES else coupling.flagged(*name)
    curator = curated(
        net.eval(), batch(9), loss, lr=1e-3, estimator=estimator, refresh=100, backward=backward
    )
    if estimator != "exact" and WIRED & {name, name[0]}:
        with pytest.raises(ValueError, match="samples are coupled"):
            curator.step(*batch(0))
        return
    for step in range(2):
        curator.step(*batch(step))
    given = coupling.meeting(net)
    with pytest.raises(ValueError, match=coupling.REFUSED):
        curator.step(*given)


def test_samples_that_begin_to_meet_are_seen_where_a_model_draws():
    curator = curated(drawing(front=lambda x: x - (x.amax() > 9) * x.mean(0)), vectors(6), refresh=9)
    for _ in range(2):  # the fourth call is proved
        curator.step(*vectors(6))
    with pytest.raises(ValueError, match="coupled"):
        curator.step(20 * vectors(6)[0], labels(6))


@pytest.mark.parametrize("name", BY_VALUES)
def test_the_selective_pass_refuses_a_model_at_the_latest_where_its_samples_meet(name):
    net = Net(BY_VALUES[name]).eval()
    curator = curated(net, batch(9), backward="selective", lr=1e-3, refresh=100)

    def steps():
        for step in range(4):  # the fourth is proved
            curator.step(*(batch(step) if step < 3 else coupling.meeting(net)))

    with pytest.raises(ValueError, match=r"coupled|backward: 'selective' expects"):
        steps()


APART = {
    "a table by rows": lambda net, h, x: (
        h[torch.arange(len(h)), (x > 0).long().sum(1).clamp(max=3), None] + h
    ),
    "a buffer of positions": lambda net, h, x: h + net.table[0] + net.gate,
    "dropout": lambda net, h, x: functional.dropout(h, 0.5, training=net.training),
    "recurrent": lambda net, h, x: torch.cumsum(h, 1).flip(1),
}
BRANCHES = {
    "whether all count": lambda net, h, x: h if (x.abs() < 100).all() else h + 1,
    "how many count": lambda net, h, x: h if (x.abs() < 100).sum() == x.numel() else h + 1,
}


@pytest.mark.parametrize("name", [*APART, *BRANCHES])
def test_what_keeps_samples_apart_is_taken(name):
    net, backward = Net((APART | BRANCHES)[name]), "kept" if name in BRANCHES else "selective"
    curator = curated(net, batch(9), backward=backward)
    for step in range(2):
        assert curator.step(*batch(step)).scores.isfinite().all()


REJECTING = {
    "gamma": lambda values: torch._standard_gamma(values.abs() + 1),
    "until one fits": lambda values: next(
        one for one in iter(lambda: torch.randn_like(values), None) if bool((one * values).sum() > 1)
    ),
}


@pytest.mark.parametrize("name", REJECTING)
@pytest.mark.parametrize("estimator", ["lai", "ghost"])
def test_draws_that_go_by_values_are_no_coupling(name, estimator):
    """Another sample before it moves the stream on by more numbers or fewer, and with it all behind it."""
    curator = curated(Net(noise=REJECTING[name]), vectors(6), estimator=estimator)
    for _ in range(4):
        assert curator.step(*vectors(6)).scores.isfinite().all()


class Once(Net):
    """Takes no sample twice."""

    def forward(self, inputs):
        assert len(inputs) == len(inputs.unique(dim=0)), "each sample once"
        return super().forward(inputs)


@pytest.mark.parametrize("estimator", ["lai", "ghost", "lli"])
def test_samples_that_cannot_stand_twice_are_run_in_parts(estimator):
    assert curated(Once(), vectors(4), estimator=estimator).step(*vectors(6)).scores.isfinite().all()
    with pytest.raises(ValueError, match="coupled"):
        curated(Once(front=centred), vectors(4), estimator=estimator).step(*vectors(6))


def one_pair(hidden):
    """Sample 0 takes from sample 1 alone."""
    return torch.cat([hidden[1:2], torch.zeros_like(hidden[1:])])


def leaking(share, leak):
    """Let every sample take a share of what another's hidden layer, or the mean one, has."""
    return Net(lambda net, h, x: h - share * leak(h))


@pytest.mark.parametrize("leak", [lambda hidden: hidden.mean(0), lambda hidden: hidden.roll(1, 0), one_pair])
@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_samples_that_leak_by_some_roundings_are_refused_in_every_type(kind, leak):
    inputs, targets = batch(0)
    precision = torch.finfo(kind).eps
    for share in (1.0, (64 if precision > 1e-4 else 2048) * precision):
        with pytest.raises(ValueError, match=coupling.REFUSED):
            lai_torch.trace(leaking(share, leak).to(kind), LOSS, inputs.to(kind), targets, gradients="all")


@holding(
    lambda precision: held(
        body=nn.Linear(4, 5), head=nn.Linear(5, 3), gate=nn.Parameter(torch.zeros(5)), precision=precision
    )
)
def rounded(own, inputs):
    """Round in another way at every second place, and mix samples where a gate is open."""
    by_place = 1 + torch.finfo(own.precision).eps * (torch.arange(len(inputs)) % 2)
    with torch.autocast("cpu", own.precision, enabled=own.precision != torch.float32):
        hidden = own.body(inputs)
    hidden = torch.where(hidden > 100, hidden.mean(0), hidden.float()) * by_place[:, None]
    return own.head(hidden + own.gate * hidden.tanh())


@pytest.mark.filterwarnings("ignore:.*switches on autocast")
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_roundings_of_what_the_model_computes_in_are_no_coupling(precision):
    curator = curated(rounded(precision), (torch.randn(8, 4), torch.arange(8) % 3))
    for _ in range(3):
        assert curator.step(torch.randn(6, 4), torch.arange(6) % 3).scores.isfinite().all()
