"""Models that a captured graph has to follow: programs' parts, layouts, gradients switched off."""

import functools

import torch
from torch import nn
from torch.nn import functional
from torch.utils import checkpoint

from tests.lai_torch.support import LOSS, randn
from tests.support.torch_modules import Part
from tests.support.torch_programs import TIMES, WIDTH, program
from tests.support.workloads.torch_parts import Case

N = 6


def layered(own, inputs):
    return own.head(torch.tanh(own.body(inputs)))


def body(computes=layered, **more):
    """Make two layers, and more: `computes` is a function of what it holds and of the inputs."""
    return Part(computes, body=nn.Linear(4, 5), head=nn.Linear(5, 3), **more)


def ended(end):
    return body(lambda own, x: end(layered(own, x)))


def behind(function):
    """Do something with the last layer's outputs and a buffer of gains."""
    return body(lambda own, x: function(layered(own, x), own.gain), gain=torch.ones(3))


def counting(own, inputs):
    """Count calls as a number and in a buffer, and use the buffer, which tracing puts back."""
    own.calls += 1
    own.seen += 1
    return layered(own, inputs) * (1 + own.seen / 8) + own.seen


def adapted(own, inputs):
    """Merge a pair of low rank into a frozen matrix, as adapters do."""
    matrix = own.frozen.weight + own.up.weight @ own.down.weight
    return own.head(torch.tanh(functional.linear(inputs, matrix, own.frozen.bias)))


def low_rank():
    frozen, down, up = nn.Linear(4, 5).requires_grad_(requires_grad=False), nn.Linear(4, 2), nn.Linear(2, 5)
    return Part(adapted, frozen=frozen, down=down, up=up, head=nn.Linear(5, 3))


def twice(own, inputs):
    """Return logits and a product of them, both differentiable."""
    logits = layered(own, inputs)
    return logits, 2.0 * logits.square()


class Cache:
    def __init__(self, held):
        self.held = [held]


def cached(own, inputs):
    """Return logits and a cache, as language models do: an object that holds a differentiable tensor."""
    hidden = torch.tanh(own.body(inputs))
    return {"logits": own.head(hidden), "cache": Cache(hidden * 2.0)}


def pooled(part, last):
    return Part(lambda own, x: own.last(torch.tanh(own.part(x))).flatten(2).mean(2), part=part, last=last)


def shared(kernel):
    convolution = nn.Conv2d(3, 3, kernel)
    return pooled(convolution, convolution)


def nested(own, parts):
    parts = parts["parts"] if isinstance(parts, dict) else parts
    return layered(own, parts[0] + parts[1])


def norm(outputs):
    with torch.no_grad():
        length = outputs.norm(dim=1, keepdim=True)
    return outputs / length


PARTS = {
    "last": "positions table layernorm attention",
    "tempered": "convolution groupnorm gain scalar depthwise",
    "half_of_an_offset": "functional merged time_first",
    "normed": "normed_weight heads scaled",
    "offset_maps": "sliced transposed shared",
    "flat": "detached checkpointed written residual_in_place",
}
"""Of random programs: a head, and parts one after another before it."""


def parts(head):
    return program(1, made_of=(*PARTS[head].split(), "cross_entropy", head, "")).model


def drawn(build, *shapes, loss=LOSS, form=None):
    """Return a function that makes a case of a model, and of as many random inputs as shapes."""

    def made():
        model, inputs = build(), tuple(randn(N, *shape) for shape in shapes)
        given = inputs[0] if len(shapes) == 1 else inputs
        return Case(model, loss, given if form is None else (form([*inputs]),), torch.arange(N) % 3)

    return made


FOLLOWED = {
    **{f"parts: {PARTS[head]}": drawn(functools.partial(parts, head), (TIMES, WIDTH)) for head in PARTS},
    "counting": drawn(lambda: body(counting, calls=0, seen=torch.zeros(())), (4,)),
    "adapted": drawn(low_rank, (4,)),
    "cached": drawn(lambda: body(cached), (4,), loss=lambda o, t: LOSS(o["logits"], t)),
    "twice": drawn(lambda: body(twice), (4,), loss=lambda o, t: LOSS(o[0], t) + o[1].sum(-1)),
    "nested": drawn(lambda: body(nested), (4,), (4,), form=lambda inputs: {"parts": inputs}),
    "cut": drawn(lambda: ended(lambda o: checkpoint.checkpoint(norm, norm(o), use_reentrant=False)), (4,)),
    "last: strided": drawn(
        lambda: pooled(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 3, 3, 2, padding=1, dilation=2)), (1, 8, 7)
    ),
    "last: grouped": drawn(
        lambda: pooled(nn.Conv2d(1, 6, 3, padding="valid"), nn.Conv2d(6, 3, 3, groups=3, bias=False)),
        (1, 7, 7),
    ),
    "last: circular": drawn(
        lambda: pooled(nn.Conv3d(1, 2, 2), nn.Conv3d(2, 3, 2, padding=1, padding_mode="circular")),
        (1, 4, 4, 3),
    ),
    "last: 1d": drawn(lambda: pooled(nn.Conv1d(1, 4, 3), nn.Conv1d(4, 3, 2, padding="same")), (1, 8)),
    "last: shared patches": drawn(lambda: shared(3), (3, 6, 6)),
}
