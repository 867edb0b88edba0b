"""Selective backward on real architectures and on what graphs can look like, and what it refuses by name."""

import copy
import functools
from typing import NamedTuple

import lai_torch
import pytest
import torch
from lai_torch._selective import Selective
from torch import nn
from torch.nn import functional

import lai_core as lai
from benchmarks import exactness_torch, selective_torch

LOSS = nn.CrossEntropyLoss(reduction="none")
N, T = 6, 4
HALF = functools.partial(lai.keep_top, fraction=0.5)


@pytest.mark.parametrize("name", selective_torch.MODELS)
def test_one_capture_gives_the_masked_gradient_at_two_thirds_of_a_plain_step(name):
    found = selective_torch.measure(selective_torch.MODELS[name], steps=5)
    assert found["relative_error"] < selective_torch.bound(name)
    assert found["captures"] == 1
    assert found["flops_ratio"] < 0.74


@pytest.mark.parametrize("name", ["pooled_convolution", "gpt2", "encoder", "lora", "mapping"])
def test_scores_are_those_of_an_eager_trace(name):
    case = selective_torch.prepared(selective_torch.MODELS[name])
    case.model.eval()
    trace, losses = Selective(case.model, case.loss).forward(case.inputs, case.targets)
    expected = lai_torch.trace(case.model, case.loss, case.inputs, case.targets)
    kernels = [lai.lai_kernel(side, side, positions="mean") for side in (trace, expected)]
    torch.testing.assert_close(*kernels)
    outputs = case.model(**case.inputs) if isinstance(case.inputs, dict) else case.model(case.inputs)
    torch.testing.assert_close(losses, case.loss(outputs, case.targets).detach())


class Body(nn.Module):
    """Two layers; `behind` does what follows the last."""

    def __init__(self, behind=None):
        super().__init__()
        self.body, self.head = nn.Linear(4, 5), nn.Linear(5, 3)
        self.behind = nn.Identity() if behind is None else behind

    def forward(self, inputs):
        return self.behind(self.head(torch.tanh(self.body(inputs))))


class Shared(Body):
    """Two biases with one gradient, which must not share memory."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Parameter(torch.zeros(5)), nn.Parameter(torch.zeros(5))

    def forward(self, inputs):
        return self.head(torch.tanh(self.body(inputs) + (self.one + self.two)))


class TimeFirst(Body):
    """Its output has positions on the first axis."""

    def forward(self, inputs):
        return super().forward(inputs.transpose(0, 1))


class Flat(Body):
    """Its output merges positions with samples, positions outermost."""

    def forward(self, inputs):
        return super().forward(inputs.transpose(0, 1).reshape(-1, 4))


class Twice(Body):
    """Returns its logits and a product of them, both differentiable."""

    def forward(self, inputs):
        logits = super().forward(inputs)
        return logits, 2.0 * logits.square()


class Joined(Body):
    """Runs every sample and its mirror image as one batch twice as long."""

    def forward(self, inputs):
        one, other = super().forward(torch.cat([inputs, -inputs])).chunk(2)
        return one - other.square()


class Picked(Body):
    """Takes one position of each sample, by row number."""

    def forward(self, inputs):
        rows = torch.arange(len(inputs))
        return super().forward(inputs)[rows, (rows * 0 + 2)]


class Cache:
    """An object beside the logits that holds a differentiable tensor."""

    def __init__(self, held):
        self.held = [held]


class Cached(Body):
    """Returns logits and a cache, as language models do."""

    def forward(self, inputs):
        hidden = torch.tanh(self.body(inputs))
        return {"logits": self.head(hidden), "cache": Cache(hidden * 2.0)}


def logits(outputs, targets):
    return LOSS(outputs["logits"], targets)


def positions_first(outputs, targets):
    losses = functional.cross_entropy(outputs.flatten(0, 1), targets.repeat(len(outputs)), reduction="none")
    return losses.unflatten(0, outputs.shape[:2]).sum(0)


def positions_merged(outputs, targets):
    return positions_first(outputs.unflatten(0, (-1, len(targets))), targets)


def both(outputs, targets):
    return LOSS(outputs[0], targets) + outputs[1].sum(-1)


SHAPES = {
    "softmax": (functools.partial(Body, nn.LogSoftmax(-1)), (4,), LOSS),
    "shared": (Shared, (4,), LOSS),
    "time_first": (TimeFirst, (T, 4), positions_first),
    "time_first_square": (TimeFirst, (N, 4), positions_first),
    "flat": (Flat, (T, 4), positions_merged),
    "flat_square": (Flat, (N, 4), positions_merged),
    "joined": (Joined, (4,), LOSS),
    "picked": (Picked, (T, 4), LOSS),
    "cached": (Cached, (4,), logits),
    "twice": (Twice, (4,), both),
}


def batch(shape, n=N):
    return torch.randn(n, *shape, dtype=torch.float64), torch.arange(n) % 3


def check_masked(selective, inputs, targets, kept):
    """Compare the selective gradient with autograd's, over all parameters."""
    model, loss = selective.model, selective.loss
    weights = torch.zeros(len(targets), dtype=torch.float64)
    weights[torch.tensor(kept)] = torch.arange(1.0, len(kept) + 1.0, dtype=torch.float64)
    model.zero_grad()
    trace, _ = selective.forward(inputs, targets)
    selective.backward(weights)
    outputs = model(*inputs) if isinstance(inputs, tuple) else model(inputs)
    exact = torch.autograd.grad((loss(outputs, targets) * weights).sum(), list(model.parameters()))
    for p, expected in zip(model.parameters(), exact, strict=True):
        torch.testing.assert_close(p.grad, expected)
    return trace


@pytest.mark.parametrize("name", SHAPES)
def test_outputs_of_any_layout_are_followed(name):
    build, shape, loss = SHAPES[name]
    model = build().double()
    selective, data = Selective(model, loss), batch(shape)
    for kept in ([N - 1], [0, 2, 3], list(range(N))):
        trace = check_masked(selective, *data, kept)
    assert selective.captures == 1
    storages = [p.grad.data_ptr() for p in model.parameters()]
    assert len(set(storages)) == len(storages)
    if name == "shared":
        return  # a bias of its own is one more record of the eager trace
    expected = lai_torch.trace(model, loss, *data)
    kernels = [lai.lai_kernel(side, side, positions="mean") for side in (trace, expected)]
    torch.testing.assert_close(*kernels)


def test_lengths_that_vary_are_no_samples():
    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.body = nn.Embedding(11, 8), Body()
            self.mix = nn.Linear(8, 4)

        def forward(self, ids):
            return self.body(self.mix(self.words(ids)).mean(1))

    selective = Selective(Words().double(), LOSS)
    for n, length in ((8, 5), (8, 6), (7, 9), (8, 8), (5, 8), (8, 3)):
        check_masked(selective, torch.randint(11, (n, length)), torch.arange(n) % 3, [0, 1, 3])
    assert selective.captures == 2  # once more when the second length came


class Counting(Body):
    """Counts its calls, as a number and in a buffer, and uses both."""

    def __init__(self):
        super().__init__()
        self.calls = 0
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, inputs):
        self.calls += 1
        self.seen += 1
        return super().forward(inputs) * (1 + self.calls / 8) + self.seen


class Pair(NamedTuple):
    """Two inputs."""

    one: torch.Tensor
    two: torch.Tensor


@pytest.mark.parametrize("kind", [list, tuple, lambda parts: Pair(*parts), lambda parts: {"parts": parts}])
def test_inputs_may_be_nested(kind):
    class Sum(Body):
        def forward(self, parts):
            parts = parts["parts"] if isinstance(parts, dict) else parts
            return super().forward(parts[0] + parts[1])

    selective = Selective(Sum().double(), LOSS)
    for n in (N, 4):
        inputs, targets = batch((4,), n)
        check_masked(selective, (kind([inputs, inputs.flip(0)]),), targets, [0, 2])
    assert selective.captures == 1


def test_what_a_model_counts_compiles_once_more_at_most():
    model, data = Counting().double(), batch((4,))
    twin, selective = copy.deepcopy(model), Selective(model, LOSS)
    weights = torch.tensor([0.0, 1.0, 0.5, 0.0, 0.0, 2.0], dtype=torch.float64)
    for _ in range(12):
        model.zero_grad()
        twin.calls = model.calls  # the first time an eager trace calls the model, too
        selective.forward(*data)
        selective.backward(weights)
        exact = torch.autograd.grad((LOSS(twin(data[0]), data[1]) * weights).sum(), list(twin.parameters()))
        for p, expected in zip(model.parameters(), exact, strict=True):
            torch.testing.assert_close(p.grad, expected)
    assert float(model.seen) == 12.0
    assert selective.captures <= 2


def test_curators_of_one_process_do_not_use_up_compilations():
    for width in range(2, 14):
        model = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 3)).double()
        check_masked(Selective(model, LOSS), *batch((4,)), [1, 2])


def test_several_final_layers_need_a_name():
    class Fork(nn.Module):
        def __init__(self):
            super().__init__()
            self.left, self.right = nn.Linear(4, 3), nn.Linear(4, 3)

        def forward(self, inputs):
            return self.left(inputs) + torch.tanh(self.right(inputs))

    model, data = Fork().double(), batch((4,))
    with pytest.raises(ValueError, match=r"found 2: \['left', 'right'\]; pass last='left'"):
        Selective(model, LOSS).forward(*data)
    for last in ("left", "right"):
        trace = check_masked(Selective(model, LOSS, last), *data, [0, 4])
        expected = lai_torch.trace(model, LOSS, *data, last=last)
        torch.testing.assert_close(lai.lai_kernel(trace, trace), lai.lai_kernel(expected, expected))
    twins = [copy.deepcopy(model) for _ in range(2)]
    reports = [
        lai_torch.Curator(
            twin, LOSS, torch.optim.SGD(twin.parameters()), data, last="right", backward=backward
        ).step(*data)
        for twin, backward in zip(twins, ("selective", "kept"), strict=True)
    ]
    torch.testing.assert_close(reports[0].scores, reports[1].scores)
    for mine, theirs in zip(*(twin.parameters() for twin in twins), strict=True):
        torch.testing.assert_close(mine, theirs)


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
    "attention": (lambda: exactness_torch.CrossAttention(None), ((3, 8), (5, 8))),
    "attention_widths": (lambda: exactness_torch.CrossAttention(6), ((3, 8), (5, 6))),
    "parametrized": (exactness_torch.Parametrized, (6,)),
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
            each, LOSS, optimizer, validation, backward=backward, positions="mean", policy=HALF
        )
        reports.append([curator.step(inputs, targets) for _ in range(2)][-1])
    torch.testing.assert_close(reports[0].scores, reports[1].scores)
    for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs)


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
        (Mean, "layer 'middle': expected an axis for the 6 samples"),
        (Views, "expects differentiable outputs that share no memory"),
        (hooked, "calls no hooks on gradients, parameter 'body.weight' has one"),
        (lambda: Table(sparse=True), "dense gradients, that of 'table.weight' is not"),
        (lambda: Table(sparse=False), "a backward pass that runs on the kept rows alone, this one does not"),
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
    for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs)
