"""Selective backward on real architectures, and on what their inputs and outputs can look like."""

import copy
from typing import NamedTuple

import lai_torch
import pytest
import torch
from torch import nn
from torch.nn import functional

import lai_core as lai
from tests.lai_torch.selective_support import LOSS, N, Selective, T, batch, body, layered, with_end
from tests.support.torch_modules import held, holding
from workloads import torch_masked
from workloads.torch_training import MODELS, prepared

SLOW = {"bert", "convnext", "gpt_neo", "llama", "lora", "t5_encoder", "vit"}
"""Models of seconds each; GPT-2 and torch's encoder stand for them in a quick run."""


def slow(names, chosen):
    """Leave the `chosen` ones to the slow run."""
    return [pytest.param(name, marks=[pytest.mark.slow] * (name in chosen)) for name in names]


@pytest.mark.parametrize("name", slow(MODELS, SLOW))
def test_one_capture_gives_the_masked_gradient_at_two_thirds_of_a_plain_step(name):
    found = torch_masked.measure(MODELS[name], steps=5)
    assert found["relative_error"] < torch_masked.bound(name)
    assert found["captures"] == 1
    assert found["flops_ratio"] < 0.74


@pytest.mark.parametrize(
    "name", slow(["pooled_convolution", "gpt2", "encoder", "lora", "mapping"], {"encoder", "lora"})
)
def test_scores_are_those_of_an_eager_trace(name):
    case = prepared(MODELS[name])
    case.model.eval()
    trace, losses = Selective(case.model, case.loss).forward(case.inputs, case.targets)
    expected = lai_torch.trace(case.model, case.loss, case.inputs, case.targets)
    kernels = [lai.lai_kernel(side, side, positions="mean") for side in (trace, expected)]
    torch.testing.assert_close(*kernels)
    outputs = case.model(**case.inputs) if isinstance(case.inputs, dict) else case.model(case.inputs)
    torch.testing.assert_close(losses, case.loss(outputs, case.targets).detach())


def shared():
    """Add two biases with one gradient, which must not share memory."""
    biases = {name: nn.Parameter(torch.zeros(5)) for name in ("one", "two")}
    return body(lambda own, x: own.head(torch.tanh(own.body(x) + (own.one + own.two))), **biases)


def time_first(own, inputs):
    """Return positions on the first axis."""
    return layered(own, inputs.transpose(0, 1))


def flat(own, inputs):
    """Merge positions with samples, positions outermost."""
    return layered(own, inputs.transpose(0, 1).reshape(-1, 4))


def twice(own, inputs):
    """Return logits and a product of them, both differentiable."""
    logits = layered(own, inputs)
    return logits, 2.0 * logits.square()


def joined(own, inputs):
    """Run every sample and its mirror image as one batch twice as long."""
    one, other = layered(own, torch.cat([inputs, -inputs])).chunk(2)
    return one - other.square()


def picked(own, inputs):
    """Take one position of each sample, by row number."""
    rows = torch.arange(len(inputs))
    return layered(own, inputs)[rows, (rows * 0 + 2)]


class Cache:
    """An object beside the logits that holds a differentiable tensor."""

    def __init__(self, held):
        self.held = [held]


def cached(own, inputs):
    """Return logits and a cache, as language models do."""
    hidden = torch.tanh(own.body(inputs))
    return {"logits": own.head(hidden), "cache": Cache(hidden * 2.0)}


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
    "softmax": (lambda: with_end(nn.LogSoftmax(-1)), (4,), LOSS),
    "shared": (shared, (4,), LOSS),
    "time_first": (lambda: body(time_first), (T, 4), positions_first),
    "time_first_square": (lambda: body(time_first), (N, 4), positions_first),
    "flat": (lambda: body(flat), (T, 4), positions_merged),
    "flat_square": (lambda: body(flat), (N, 4), positions_merged),
    "joined": (lambda: body(joined), (4,), LOSS),
    "picked": (lambda: body(picked), (T, 4), LOSS),
    "cached": (lambda: body(cached), (4,), logits),
    "twice": (lambda: body(twice), (4,), both),
}


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
    @holding(lambda: held(words=nn.Embedding(11, 8), body=body(), mix=nn.Linear(8, 4)))
    def make_words(own, ids):
        return own.body(own.mix(own.words(ids)).mean(1))

    selective = Selective(make_words().double(), LOSS)
    for n, length in ((8, 5), (8, 6), (7, 9), (8, 8), (5, 8), (8, 3)):
        check_masked(selective, torch.randint(11, (n, length)), torch.arange(n) % 3, [0, 1, 3])
    assert selective.captures == 2  # once more when the second length came


def counting(own, inputs):
    """Count calls as a number and in a buffer, and use the buffer, which tracing puts back."""
    own.calls += 1
    own.seen += 1
    return layered(own, inputs) * (1 + own.seen / 8) + own.seen


class Pair(NamedTuple):
    """Two inputs."""

    one: torch.Tensor
    two: torch.Tensor


@pytest.mark.parametrize("kind", [list, tuple, lambda parts: Pair(*parts), lambda parts: {"parts": parts}])
def test_inputs_may_be_nested(kind):
    def summed(own, parts):
        parts = parts["parts"] if isinstance(parts, dict) else parts
        return layered(own, parts[0] + parts[1])

    selective = Selective(body(summed).double(), LOSS)
    for n in (N, 4):
        inputs, targets = batch((4,), n)
        check_masked(selective, (kind([inputs, inputs.flip(0)]),), targets, [0, 2])
    assert selective.captures == 1


def test_what_a_model_counts_compiles_once_more_at_most():
    model, data = body(counting, calls=0, seen=torch.zeros(())).double(), batch((4,))
    twin, selective = copy.deepcopy(model), Selective(model, LOSS)
    weights = torch.tensor([0.0, 1.0, 0.5, 0.0, 0.0, 2.0], dtype=torch.float64)
    for _ in range(12):
        model.zero_grad()
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
    @holding(lambda: held(left=nn.Linear(4, 3), right=nn.Linear(4, 3)))
    def fork(own, inputs):
        return own.left(inputs) + torch.tanh(own.right(inputs))

    model, data = fork().double(), batch((4,))
    with pytest.raises(ValueError, match=r"found 2: \['left', 'right'\]; pass last='left'"):
        Selective(model, LOSS).forward(*data)
    for last in ("left", "right"):
        trace = check_masked(Selective(model, LOSS, last), *data, [0, 4])
        expected = lai_torch.trace(model, LOSS, *data, last=last)
        torch.testing.assert_close(lai.lai_kernel(trace, trace), lai.lai_kernel(expected, expected))
    twins = [copy.deepcopy(model) for _ in range(2)]
    reports = [
        lai_torch.Curator(
            twin,
            LOSS,
            torch.optim.SGD(twin.parameters()),
            data,
            estimator=lai_torch.LAI(last="right"),
            backward=backward,
        ).step(*data)
        for twin, backward in zip(twins, ("selective", "kept"), strict=True)
    ]
    torch.testing.assert_close(reports[0].scores, reports[1].scores)
    torch.testing.assert_close(*(list(twin.parameters()) for twin in twins))
