"""Selective backward on every use of a parameter, and what it refuses by name."""

import copy
import functools

import lai_torch
import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.lai_torch.selective_support import HALF, LOSS, N, Selective, batch, body, layered, with_end
from tests.support.torch_modules import Part
from workloads import torch_models


def projected():
    return body(lambda own, x: layered(own, x) @ own.basis, basis=torch.randn(3, 3))


def constant():
    """Put the same rows into a layer for every sample, and cut a part off the gradient."""

    def computes(own, inputs):
        hidden = torch.tanh(own.body(inputs) + own.body(own.rows).sum(0))
        return own.head(hidden) * own.side(hidden).detach()

    return body(computes, rows=torch.randn(2, 4), side=nn.Linear(5, 3))


def idle(own, inputs):
    """Run a layer that no output depends on: an eager trace has it, a graph does not."""
    own.idle(inputs)
    return layered(own, inputs)


def trimmed(own, inputs):
    """Cut sequences to the longest of the batch."""
    longest = int(inputs[:, 0].round().clamp(2, 2).max())
    positions = inputs[:, None].expand(-1, 3, -1)[:, :longest]
    return own.head(torch.tanh(own.body(positions)).sum(1))


def spread(own, inputs):
    """Have a backward graph whose strides are not those that it was captured with."""
    steps = inputs[:, :, None] * torch.ones(6)
    query, key = (functional.elu(side) + 1 for side in (own.body(steps[..., :4]), own.body(steps[..., 2:])))
    return own.head((query @ (key.mT @ steps[..., :5])).mean(1))


def mean(own, inputs):
    return own.head(torch.tanh(own.body(inputs)) + torch.tanh(own.middle(inputs.mean(0))))


def normed(last=False):
    layers = [nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)]
    layers[2 * last] = nn.utils.parametrizations.weight_norm(layers[2 * last])
    return nn.Sequential(*layers)


def left(own, inputs):
    return own.head(torch.tanh((own.body.weight @ inputs.T).T + own.body.bias))


def views(own, inputs):
    logits = layered(own, inputs)
    return logits, logits.view(-1)


def looked_up(own, inputs):
    """Read a table with sparse gradients, or rows by their number among all samples' rows."""
    hidden = torch.tanh(own.table(inputs.argsort(-1)))
    if own.table.sparse:
        return own.head(hidden.mean(1))
    return own.head(hidden.flatten(0, 1)[torch.arange(len(inputs)) * 4 + inputs.argmax(1)])


def table(sparse):
    return Part(looked_up, table=nn.Embedding(7, 4, sparse=sparse), head=nn.Linear(4, 3))


def sliced(own, inputs):
    """Add a part of a parameter."""
    return own.head(torch.tanh(functional.linear(inputs, own.body.weight, own.offsets[:5])))


PARAMETERS = {
    "sliced": (lambda: body(sliced, offsets=nn.Parameter(torch.randn(8))), (4,)),
    "projected": (projected, (4,)),
    "constant": (constant, (4,)),
    "normed": (normed, (4,)),
    "normed_last": (functools.partial(normed, last=True), (4,)),
    "left": (lambda: body(left), (4,)),
    "attention": (lambda: torch_models.CrossAttention(None), ((3, 8), (5, 8))),
    "attention_widths": (lambda: torch_models.CrossAttention(6), ((3, 8), (5, 6))),
    "parametrized": (torch_models.Parametrized, (6,)),
}


@pytest.mark.parametrize("source", ["set", "batch"])
@pytest.mark.parametrize("name", PARAMETERS)
def test_every_use_of_a_parameter_is_scored_as_in_an_eager_trace(name, source):
    build, shapes = PARAMETERS[name]
    model, targets = build().double(), torch.arange(N) % 3
    shapes = shapes if isinstance(shapes[0], tuple) else (shapes,)
    inputs = tuple(torch.randn(N, *shape, dtype=torch.float64) for shape in shapes)
    twin, reports = copy.deepcopy(model), []
    validation = (tuple(one.flip(0) for one in inputs), targets.flip(0)) if source == "set" else source
    for each, backward in ((model, "selective"), (twin, "kept")):
        optimizer = torch.optim.SGD(each.parameters(), lr=0.1)
        curator = lai_torch.Curator(
            each,
            LOSS,
            optimizer,
            validation,
            estimator=lai_torch.LAI(positions="mean"),
            backward=backward,
            policy=HALF,
        )
        reports.append([curator.step(inputs, targets) for _ in range(2)][-1])
    torch.testing.assert_close(reports[0].scores, reports[1].scores)
    torch.testing.assert_close(list(model.parameters()), list(twin.parameters()))


def hooked():
    model = body()
    model.body.weight.register_hook(lambda gradient: gradient * 0)
    return model


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: with_end(nn.Dropout(0.5)), "expects nothing random behind the last layer 'head'"),
        (
            lambda: body(idle, idle=nn.Linear(4, 2)),
            r"of an eager trace, \['idle.weight', 'body.weight', 'head.weight'\], in the captured graph",
        ),
        (
            lambda: body(lambda own, x: layered(own, x.view(N, -1))),
            r"with a free batch size, this one does not \(it fixes the size of the batch\)",
        ),
        (lambda: body(mean, middle=nn.Linear(4, 5)), r"samples are coupled"),
        (
            lambda: body(trimmed),
            "sizes that go by the shapes of the batch, this model has one that goes by its values",
        ),
        (lambda: body(spread), "expects a backward pass that runs on the kept rows alone, this one does not"),
        (
            lambda: body(lambda own, x: own.head(torch.no_grad()(own.body)(x))),
            r"one graph with a free batch size, this one does not \(expected a function",
        ),
        (lambda: body(views), "expects differentiable outputs that share no memory"),
        (hooked, "calls no hooks on gradients, parameter 'body.weight' has one"),
        (lambda: table(sparse=True), "dense gradients, that of 'table.weight' is not"),
        (lambda: table(sparse=False), "operations that keep samples apart, torch.Tensor.add mixes them"),
        (lambda: body().requires_grad_(False), "expects trainable parameters and a differentiable output"),
    ],
)
def test_what_cannot_be_followed_is_refused_by_name(build, message):
    model = build()
    loss = (lambda outputs, targets: LOSS(outputs[0], targets)) if model.computes is views else LOSS
    inputs, targets = batch((4,))

    def step():
        selective = Selective(model, loss)
        selective.forward(inputs.float(), targets)
        selective.backward((torch.arange(N) >= N // 2).float())

    with pytest.raises(ValueError, match=message):
        step()


def test_an_error_of_the_models_own_comes_up_as_it_is():
    with pytest.raises(KeyError, match="b"):
        Selective(body(lambda own, x: layered(own, x) + {"a": 1}["b"]).double(), LOSS).forward(*batch((4,)))
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        Selective(body().double(), LOSS).forward(*batch((7,)))


def test_a_last_batch_of_one_sample_takes_the_plain_way():
    model, data = body().double(), batch((4,))
    twin = copy.deepcopy(model)
    curators = [
        lai_torch.Curator(each, LOSS, torch.optim.SGD(each.parameters(), lr=0.1), data, backward=backward)
        for each, backward in ((model, "selective"), (twin, "kept"))
    ]
    for n in (N, 1, 3):
        reports = [curator.step(data[0][:n], data[1][:n]) for curator in curators]
        assert reports[0].backward == ("kept" if n == 1 else "selective")
        torch.testing.assert_close(reports[0].scores, reports[1].scores)
    torch.testing.assert_close(list(model.parameters()), list(twin.parameters()))
