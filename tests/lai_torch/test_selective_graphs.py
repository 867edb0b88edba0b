"""Selective backward on every use of a parameter, and what it refuses by name."""

import copy
import functools

import lai_torch
import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.lai_torch.selective_support import HALF, LOSS, Body, N, Selective, batch
from workloads import torch_models


class Projected(Body):
    """Ends in a product with a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("basis", torch.randn(3, 3))

    def forward(self, inputs):
        return super().forward(inputs) @ self.basis


class Constant(Body):
    """Puts the same rows into a layer for every sample, and cuts a part off the gradient."""

    def __init__(self):
        super().__init__()
        self.register_buffer("rows", torch.randn(2, 4))
        self.side = nn.Linear(5, 3)

    def forward(self, inputs):
        hidden = torch.tanh(self.body(inputs) + self.body(self.rows).sum(0))
        return self.head(hidden) * self.side(hidden).detach()


class Idle(Body):
    """A layer that no output depends on: an eager trace has it, a graph does not."""

    def __init__(self):
        super().__init__()
        self.idle = nn.Linear(4, 2)

    def forward(self, inputs):
        self.idle(inputs)
        return super().forward(inputs)


class Fixed(Body):
    """Knows how many samples there are."""

    def forward(self, inputs):
        return super().forward(inputs.view(N, -1))


class Trimmed(Body):
    """Cuts sequences to the longest of the batch."""

    def forward(self, inputs):
        longest = int(inputs[:, 0].round().clamp(2, 2).max())
        positions = inputs[:, None].expand(-1, 3, -1)[:, :longest]
        return self.head(torch.tanh(self.body(positions)).sum(1))


class Spread(Body):
    """A backward graph whose strides are not those that it was captured with."""

    def forward(self, inputs):
        steps = inputs[:, :, None] * torch.ones(6)
        query, key = (
            functional.elu(side) + 1 for side in (self.body(steps[..., :4]), self.body(steps[..., 2:]))
        )
        return self.head((query @ (key.mT @ steps[..., :5])).mean(1))


class Uncompiled(Body):
    """What the compiler fails on with an error of no class of its own."""

    def forward(self, inputs):
        return self.head(torch.no_grad()(self.body)(inputs))


class Mean(Body):
    """A layer on the mean of the samples."""

    def __init__(self):
        super().__init__()
        self.middle = nn.Linear(4, 5)

    def forward(self, inputs):
        return self.head(torch.tanh(self.body(inputs)) + torch.tanh(self.middle(inputs.mean(0))))


def normed(last=False):
    layers = [nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)]
    layers[2 * last] = nn.utils.parametrizations.weight_norm(layers[2 * last])
    return nn.Sequential(*layers)


class Left(Body):
    """Multiplies from the left."""

    def forward(self, inputs):
        return self.head(torch.tanh((self.body.weight @ inputs.T).T + self.body.bias))


class Views(Body):
    """Returns two views of one tensor."""

    def forward(self, inputs):
        logits = super().forward(inputs)
        return logits, logits.view(-1)


class Table(nn.Module):
    """A table with sparse gradients, or rows taken by their number among all samples' rows."""

    def __init__(self, sparse):
        super().__init__()
        self.sparse, self.table, self.head = sparse, nn.Embedding(7, 4, sparse=sparse), nn.Linear(4, 3)

    def forward(self, inputs):
        hidden = torch.tanh(self.table(inputs.argsort(-1)))
        if self.sparse:
            return self.head(hidden.mean(1))
        return self.head(hidden.flatten(0, 1)[torch.arange(len(inputs)) * 4 + inputs.argmax(1)])


class Sliced(Body):
    """Adds a part of a parameter."""

    def __init__(self):
        super().__init__()
        self.offsets = nn.Parameter(torch.randn(8))

    def forward(self, inputs):
        return self.head(torch.tanh(functional.linear(inputs, self.body.weight, self.offsets[:5])))


PARAMETERS = {
    "sliced": (Sliced, (4,)),
    "projected": (Projected, (4,)),
    "constant": (Constant, (4,)),
    "normed": (normed, (4,)),
    "normed_last": (functools.partial(normed, last=True), (4,)),
    "left": (Left, (4,)),
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
    model = Body()
    model.body.weight.register_hook(lambda gradient: gradient * 0)
    return model


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (functools.partial(Body, nn.Dropout(0.5)), "expects nothing random behind the last layer 'head'"),
        (Idle, r"of an eager trace, \['idle.weight', 'body.weight', 'head.weight'\], in the captured graph"),
        (Fixed, r"with a free batch size, this one does not \(it fixes the size of the batch\)"),
        (Mean, r"samples are coupled"),
        (Trimmed, "sizes that go by the shapes of the batch, this model has one that goes by its values"),
        (Spread, "expects a backward pass that runs on the kept rows alone, this one does not"),
        (Uncompiled, r"one graph with a free batch size, this one does not \(expected a function"),
        (Views, "expects differentiable outputs that share no memory"),
        (hooked, "calls no hooks on gradients, parameter 'body.weight' has one"),
        (lambda: Table(sparse=True), "dense gradients, that of 'table.weight' is not"),
        (lambda: Table(sparse=False), "operations that keep samples apart, torch.Tensor.add mixes them"),
        (lambda: Body().requires_grad_(False), "expects trainable parameters and a differentiable output"),
    ],
)
def test_what_cannot_be_followed_is_refused_by_name(build, message):
    model = build()
    loss = (lambda outputs, targets: LOSS(outputs[0], targets)) if isinstance(model, Views) else LOSS
    inputs, targets = batch((4,))

    def step():
        selective = Selective(model, loss)
        selective.forward(inputs.float(), targets)
        selective.backward((torch.arange(N) >= N // 2).float())

    with pytest.raises(ValueError, match=message):
        step()


def test_an_error_of_the_models_own_comes_up_as_it_is():
    class Missing(Body):
        def forward(self, inputs):
            return super().forward(inputs) + {"a": 1}["b"]

    with pytest.raises(KeyError, match="b"):
        Selective(Missing().double(), LOSS).forward(*batch((4,)))
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        Selective(Body().double(), LOSS).forward(*batch((7,)))


def test_a_last_batch_of_one_sample_takes_the_plain_way():
    model, data = Body().double(), batch((4,))
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
