"""The last layer is the last, however it is written: read where it can be, else refused by name."""

import warnings

import lai_torch
import pytest
import torch
from torch import nn
from torch.nn import functional

import lai_core as lai
from tests.lai_torch.exact_support import LOSS, N, check_exact, labels, randn
from tests.support.torch_forwards import scripted

WIDTH = 6


class Ending(nn.Module):
    """A layer, and whatever comes behind it."""

    def __init__(self, function, shape, *, frozen=False):
        super().__init__()
        self.function = function
        self.body, self.weight = nn.Linear(4, WIDTH), nn.Parameter(torch.randn(shape))
        self.head, self.map = nn.Linear(WIDTH, 3), nn.Conv1d(WIDTH, 3, 1)
        self.weight.requires_grad_(not frozen)
        self.register_buffer("fixed", torch.randn(WIDTH, 3))
        self.double()

    def forward(self, inputs):
        return self.function(self, torch.tanh(self.body(inputs)), inputs)


def classes(numbers):
    """Make three outputs of one number a sample."""
    return numbers[:, None] * torch.arange(1.0, 4.0)


def chosen(inputs):
    return (inputs[:, 0].abs() * 3).long() % 5


READ = {
    "product, summed": (lambda m, h, x: classes((h * m.weight).sum(-1)), (WIDTH,)),
    "torch.sum": (lambda m, h, x: classes(torch.sum(m.weight * h, dim=1)), (WIDTH,)),
    "h.mul": (lambda m, h, x: classes(h.mul(m.weight).sum(-1, keepdim=True)[:, 0]), (WIDTH,)),
    "mean": (lambda m, h, x: classes((h * m.weight).mean(-1)), (WIDTH,)),
    "rows": (lambda m, h, x: (h[:, None] * m.weight).sum(2), (3, WIDTH)),
    "columns": (lambda m, h, x: (h[:, :, None] * m.weight).sum(1), (WIDTH, 3)),
    "columns and positions": (
        lambda m, h, x: (h.reshape(len(h), 2, 3, 1) * m.weight).sum((1, 2)),
        (3, 3),
    ),
    "inner with a vector": (lambda m, h, x: classes(torch.inner(h, m.weight)), (WIDTH,)),
    "inner": (lambda m, h, x: torch.inner(h, m.weight), (3, WIDTH)),
    "mv": (lambda m, h, x: classes(h.mv(m.weight)), (WIDTH,)),
    "@ a vector": (lambda m, h, x: classes(h @ m.weight), (WIDTH,)),
    "a vector @": (lambda m, h, x: classes(m.weight @ h.T), (WIDTH,)),
    "tensordot with a vector": (lambda m, h, x: classes(torch.tensordot(h, m.weight, 1)), (WIDTH,)),
    "tensordot": (lambda m, h, x: torch.tensordot(h, m.weight, ([1], [0])), (WIDTH, 3)),
    "tensordot over two axes": (
        lambda m, h, x: torch.tensordot(h.reshape(len(h), 2, 3), m.weight, ([1, 2], [0, 1])),
        (2, 3, 3),
    ),
    "einsum with a vector": (lambda m, h, x: classes(torch.einsum("nd,d->n", h, m.weight)), (WIDTH,)),
    "einsum": (lambda m, h, x: torch.einsum("kd,...d->...k", m.weight, h), (3, WIDTH)),
    "a view": (lambda m, h, x: functional.linear(h, m.weight.view(3, WIDTH)), (3 * WIDTH,)),
}
"""Heads that are layers: `weight` is the last one, by all three."""

REFUSED = {
    "distances": (lambda m, h, x: -torch.cdist(h, m.weight), (3, WIDTH), "cdist"),
    "scripted": (lambda m, h, x: scripted(h, m.weight), (WIDTH, 3), "cannot be watched"),
    "dot under vmap": (
        lambda m, h, x: classes(torch.vmap(lambda one: torch.dot(one, m.weight))(h)),
        (WIDTH,),
        "cannot be watched",
    ),
    "fixed matrix": (lambda m, h, x: (h * m.weight) @ m.fixed, (WIDTH,), "mul"),
    "cumsum": (lambda m, h, x: classes((h * m.weight).cumsum(1)[:, -1]), (WIDTH,), "mul"),
    "reshaped": (lambda m, h, x: classes((h * m.weight).reshape(len(h), 2, 3).sum((1, 2))), (WIDTH,), "mul"),
    "a loop": (lambda m, h, x: classes(sum(h[:, i] * m.weight[i] for i in range(WIDTH))), (WIDTH,), "mul"),
    "in place": (lambda m, h, x: classes(h.clone().mul_(m.weight).sum(-1)), (WIDTH,), "mul_"),
    "in place of a part": (
        lambda m, h, x: classes(_scaled_in_place(h.clone(), m.weight).sum(-1)),
        (WIDTH,),
        "mul_",
    ),
    "divided": (lambda m, h, x: classes((h / m.weight).sum(-1)), (WIDTH,), "div"),
    "addcmul": (lambda m, h, x: classes(torch.addcmul(h, h, m.weight).sum(-1)), (WIDTH,), "addcmul"),
    "lerp": (lambda m, h, x: classes(torch.lerp(h, 2 * h, m.weight).sum(-1)), (WIDTH,), "lerp"),
    "expanded": (lambda m, h, x: classes((h * m.weight.expand_as(h)).sum(-1)), (WIDTH,), "expand_as"),
    "rows of a table": (
        lambda m, h, x: classes((h * functional.embedding(chosen(x), m.weight)).sum(-1)),
        (5, WIDTH),
        "embedding",
    ),
    "prototypes": (lambda m, h, x: -((h[:, None] - m.weight) ** 2).sum(-1), (3, WIDTH), "sub"),
    "prototypes one by one": (
        lambda m, h, x: -torch.stack([((h - one) ** 2).sum(-1) for one in m.weight], 1),
        (3, WIDTH),
        "sub",
    ),
    "cosines": (
        lambda m, h, x: functional.cosine_similarity(h[:, None], m.weight, dim=-1),
        (3, WIDTH),
        "cosine_similarity",
    ),
    "gain": (lambda m, h, x: m.head(h) * m.weight, (3,), "mul"),
    "gain of maps": (lambda m, h, x: (m.map(h[:, :, None]) * m.weight).mean(-1), (3, 1), "mul"),
    "a row of a table of offsets": (lambda m, h, x: m.head(h) + m.weight[1], (2, 3), "add"),
    "offset a class of samples": (lambda m, h, x: m.head(h) + m.weight[chosen(x)], (5, 3), "getitem"),
}
"""Heads that may be layers, and that LAI does not read."""

BEHIND = {
    "temperature": (lambda m, h, x: m.head(h) * m.weight.exp(), (), "head"),
    "offset": (lambda m, h, x: m.head(h) + m.weight, (3,), "head"),
    "half of an offset": (lambda m, h, x: m.head(h) + m.weight[3:], (6,), "head"),
    "sum of offsets": (lambda m, h, x: m.head(h) + m.weight.sum(), (3,), "head"),
    "thresholds of one number": (lambda m, h, x: m.head(h)[:, :1] + m.weight, (3,), "head"),
    "LayerNorm": (lambda m, h, x: functional.layer_norm(m.head(h), (3,), m.weight), (3,), "head"),
    "mean of maps": (lambda m, h, x: m.map(h[:, :, None].expand(-1, -1, 4)).mean(-1), (), "map"),
    "offsets a position": (
        lambda m, h, x: (m.map(h[:, :, None].expand(-1, -1, 4)) + m.weight).mean(-1),
        (3, 4),
        "map",
    ),
    "LayerNorm and mean": (
        lambda m, h, x: functional.layer_norm(m.map(h[:, :, None]).mT, (3,), m.weight).mean(1),
        (3,),
        "map",
    ),
}
"""What is no layer, behind one."""


def _scaled_in_place(hidden, weight):
    hidden[:, 1:].mul_(weight[1:])
    return hidden


def last_of(model, gradients):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trace = lai_torch.trace(model, LOSS, randn(N, 4), labels(), gradients=gradients)
    return trace.layers[-1]


@pytest.mark.parametrize("name", sorted(READ))
def test_a_product_that_is_summed_is_a_layer(name):
    model = Ending(*READ[name])
    inputs = randn(N, 4)
    trace = check_exact(model, inputs)
    outputs = lai_torch.trace(model, LOSS, inputs, labels())
    assert trace.layers[-1].name == outputs.layers[-1].name == "weight"
    losses = LOSS(model(inputs), labels())
    rows = [torch.autograd.grad(one, model.weight, retain_graph=True)[0].flatten() for one in losses]
    exact = torch.stack(rows) @ torch.stack(rows).T
    for found in (trace, outputs):
        torch.testing.assert_close(lai.lli_kernel(found, found), exact)


@pytest.mark.parametrize("name", ["product, summed", "einsum with a vector", "a vector @", "rows"])
def test_so_it_is_for_a_single_sample_and_a_frozen_weight(name):
    function, shape = READ[name]
    model = Ending(function, shape, frozen=True)
    assert last_of(model, "output").name == "weight"
    one = lai_torch.trace(model, LOSS, randn(1, 4), labels()[:1])
    assert one.layers[-1].name == "weight"


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("name", sorted(REFUSED))
def test_no_earlier_layer_is_taken_for_the_last(name, frozen):
    function, shape, said = REFUSED[name]
    model = Ending(function, shape, frozen=frozen)
    with pytest.raises(ValueError, match=rf"the loss depends on 'weight' \(used by .*{said}"):
        lai_torch.trace(model, LOSS, randn(N, 4), labels())
    trace = check_exact(model, randn(N, 4))
    for kernel in (lai.lai_kernel, lai.lli_kernel):
        with pytest.raises(ValueError, match="LAI and LLI have no last layer to read"):
            kernel(trace, trace)


@pytest.mark.parametrize("gradients", ["output", "all"])
@pytest.mark.parametrize("name", sorted(BEHIND))
def test_norms_and_offsets_behind_the_last_layer_are_none(name, gradients):
    function, shape, last = BEHIND[name]
    model = Ending(function, shape)
    assert last_of(model, gradients).name == last
    check_exact(model, randn(N, 4))


def test_a_product_with_the_inputs_beside_the_last_layer_is_another_last_one():
    model = Ending(lambda m, h, x: m.head(h) + (x * m.weight).sum(-1, keepdim=True), (4,))
    with pytest.raises(ValueError, match=r"found 2 whose outputs reach the loss: \['head', 'weight'\]"):
        last_of(model, "output")


@pytest.mark.parametrize("estimator", ["lai", "lli"])
def test_a_curator_trains_on_a_head_of_one_vector_and_refuses_a_hidden_one(estimator):
    def curator(function, shape):
        model = Ending(function, shape)
        validation = randn(N, 4), labels()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        return lai_torch.Curator(model, LOSS, optimizer, validation, estimator=estimator)

    found = curator(*READ["product, summed"])
    first, second = (found.step(randn(N, 4), labels()).scores for _ in range(2))
    assert bool(torch.isfinite(first + second).all())
    with pytest.raises(ValueError, match="without another layer behind it"):
        curator(*REFUSED["fixed matrix"][:2]).step(randn(N, 4), labels())


def test_a_state_keeps_what_was_found_behind_the_last_layer():
    model = Ending(*BEHIND["LayerNorm"][:2])
    validation, batch = (randn(N, 4), labels()), (randn(N, 4), labels())

    def fresh():
        return lai_torch.Curator(model, LOSS, None, validation, estimator="calibrated_lai")

    first, second = fresh(), fresh()
    scores = first.score(*batch)[1].scores
    second.load_state_dict(first.state_dict())
    torch.testing.assert_close(second.score(*batch)[1].scores, scores)
