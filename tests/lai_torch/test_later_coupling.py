"""Samples that begin to see one another at later values only: refused at the batch where they do."""

import lai_torch
import pytest
import torch
from lai_torch._model.mixing import mixing
from torch import nn
from torch.nn import functional

from tests.lai_torch.support import LOSS
from tests.support.torch_modules import held, holding

WIDTH, CLASSES, SAMPLES, FAR = 4, 3, 6, 8.0
DOUBLE = torch.float64


@holding(
    lambda place: held(
        place=place,
        first=nn.Linear(WIDTH, WIDTH, dtype=DOUBLE),
        second=nn.Linear(WIDTH, WIDTH, dtype=DOUBLE),
        head=nn.Linear(WIDTH, CLASSES, dtype=DOUBLE),
        gate=torch.zeros((), dtype=DOUBLE),
        table=torch.randn(SAMPLES, WIDTH, dtype=DOUBLE),
    )
)
def make_net(own, inputs):
    """Let samples meet at a place between two layers."""
    hidden = own.place(own, torch.tanh(own.first(inputs)), inputs)
    return own.head(torch.tanh(own.second(hidden)))


def far(inputs):
    """Return the samples with an entry that no earlier batch had."""
    return inputs.abs().amax(1) > FAR


def written(net, hidden, inputs):
    hidden = hidden.clone()
    hidden[far(inputs)] -= hidden[far(inputs)].mean(0)
    return hidden


def attended(net, hidden, inputs):
    seen = far(inputs)[None, :] | torch.eye(len(hidden), dtype=torch.bool)
    return hidden + (hidden @ hidden.T).masked_fill(~seen, -torch.inf).softmax(1) @ hidden


def listed(net, hidden, inputs):
    return hidden + hidden[[row for row, one in enumerate(far(inputs).tolist()) if one]].sum(0)


def branched(net, hidden, inputs):
    return hidden - (hidden if inputs.max() > FAR else net.table).mean(0)


PLACES = {
    "where": lambda net, h, x: torch.where(x > FAR, h - h.mean(0), h),
    "branch": branched,
    "gate of values": lambda net, h, x: h - functional.relu(x.abs().amax(1, keepdim=True) - FAR) * h.mean(0),
    "sum of zeros": lambda net, h, x: h + torch.cumsum(functional.relu(x.abs() - FAR), 0),
    "product of zeros": lambda net, h, x: h + ((g := functional.relu(x.abs() - FAR)) @ g.T) @ h,
    "mean of a few": lambda net, h, x: h + (h * (x > FAR)).mean(0),
    "attention": attended,
    "written in place": written,
    "rows by their values": lambda net, h, x: h + h[(torch.arange(len(h)) + (x[:, 0] > FAR).long()) % len(h)],
    "a list of rows": listed,
    "a count": lambda net, h, x: h / (1 + (x > FAR).sum()),
    "a number of rows": lambda net, h, x: h / (1 + int((x > FAR).sum())),
    "a number": lambda net, h, x: h / max(1.0, x.abs().max().item() / FAR),
    "buffer": lambda net, h, x: h - net.gate * h.mean(0),
    "buffer within": lambda net, h, x: h - (net.gate * h).mean(0),
    "statistics": lambda net, h, x: h - torch.where(net.gate > 0, h.mean(0), net.table[0]),
}


def batch(seed):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(SAMPLES, WIDTH, generator=generator, dtype=DOUBLE)
    return inputs, torch.randint(CLASSES, (SAMPLES,), generator=generator)


def meeting(net):
    """Open the buffer's gate, and return a batch with three samples far out."""
    net.gate.fill_(1.0)
    inputs, targets = batch(50)
    inputs[1], inputs[3, :2], inputs[4, 0] = 12.0, 9.0, -15.0
    return inputs, targets


WAYS = [
    ("lai", "kept"),
    ("exact", "kept"),
    *(
        pytest.param(*way, marks=pytest.mark.slow)
        for way in (("lai", "whole"), ("lli", "kept"), ("ghost", "kept"))
    ),
]


@pytest.mark.parametrize(("estimator", "backward"), WAYS)
@pytest.mark.parametrize("name", PLACES)
def test_samples_that_begin_to_meet_are_refused_at_that_batch(name, estimator, backward):
    torch.manual_seed(0)
    net = make_net(PLACES[name]).eval()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    options = {"estimator": estimator, "refresh": 100, "backward": backward}
    curator = lai_torch.Curator(net, LOSS, optimizer, batch(9), **options)
    for step in range(2):
        curator.step(*batch(step))
    inputs, targets = meeting(net)
    with pytest.raises(ValueError, match=r"coupled|move with the other"):
        curator.step(inputs, targets)


@pytest.mark.parametrize("name", PLACES)
def test_the_selective_pass_takes_no_model_whose_samples_may_meet(name):
    torch.manual_seed(0)
    net = make_net(PLACES[name]).eval()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    curator = lai_torch.Curator(net, LOSS, optimizer, batch(9), backward="selective")
    with pytest.raises(ValueError, match="backward: 'selective' expects"):
        curator.step(*batch(0))


APART = {
    "attention within a sample": lambda net, h, x: functional.scaled_dot_product_attention(
        *[h[:, :, None]] * 3
    )[..., 0],
    "time first": lambda net, h, x: (h.T * h.T.softmax(0)).T,
    "merged": lambda net, h, x: torch.tanh(h.reshape(-1, 1) @ net.table[:1]).reshape(len(h), -1)[:, :WIDTH],
    "whether all count": lambda net, h, x: h if (x.abs() < 100).all() else h + 1,
    "a table by rows": lambda net, h, x: (
        h[torch.arange(len(h)), (x > 0).long().sum(1).clamp(max=3), None] + h
    ),
    "a buffer of positions": lambda net, h, x: h + net.table[0] + net.gate,
    "dropout": lambda net, h, x: functional.dropout(h, 0.5, training=net.training),
    "written": lambda net, h, x: torch.zeros_like(h).copy_(h).add_(h),
    "how many count": lambda net, h, x: h if (x.abs() < 100).sum() == x.numel() else h + 1,
    "recurrent": lambda net, h, x: torch.cumsum(h, 1).flip(1),
}


@pytest.mark.parametrize("name", APART)
def test_what_keeps_samples_apart_is_not_taken_for_mixing(name):
    torch.manual_seed(0)
    inputs, targets = batch(0)
    assert mixing(make_net(APART[name]), LOSS, (inputs, targets), SAMPLES) is None


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
    torch.manual_seed(0)
    model = rounded(precision)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    validation = torch.randn(8, 4), torch.arange(8) % 3
    curator = lai_torch.Curator(model, LOSS, optimizer, validation)
    for _ in range(3):
        assert curator.step(torch.randn(6, 4), torch.arange(6) % 3).scores.isfinite().all()
