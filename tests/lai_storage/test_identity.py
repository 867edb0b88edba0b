"""Fingerprints: what is made alike has one, in every process; what holds something else has another."""

import functools
import os
import subprocess
import sys
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from lai_storage.identity import find_captured, fingerprint
from lai_torch.dataset.identity import content_of
from torch import nn


def scaled(x, factor=1.0):
    return factor * x


def nested(x):
    return [scaled(y) for y in x]


@dataclass
class Options:
    factor: float = 1.0
    function: object = None

    def __call__(self, x):
        return self.factor * x


class Model:
    def __init__(self, factor=1.0):
        self.factor = factor


def linear(bias=True, seed=0):
    torch.manual_seed(seed)
    return nn.Linear(3, 2, bias=bias)


def quantised():
    return linear().to(torch.float8_e4m3fn)


MADE = {
    "numbers": [lambda: 1, lambda: 1.0, lambda: True, lambda: "1", lambda: b"1", lambda: None, lambda: 1j],
    "containers": [
        lambda: [1, 2],
        lambda: (1, 2),
        lambda: [[1], 2],
        lambda: [1, [2]],
        lambda: [[1, 2]],
        lambda: [[1], [2]],
        lambda: ["a", "b"],
        lambda: ["ab"],
        lambda: {1: 2},
        lambda: {"a", "b", "c"},
        lambda: {"a", "b", "d"},
    ],
    "arrays": [
        lambda: np.arange(6.0),
        lambda: np.arange(6.0).reshape(2, 3),
        lambda: np.arange(6),
        lambda: np.arange(6.0)[::-1],
        lambda: jnp.arange(6.0),
        lambda: torch.arange(6.0),
        lambda: torch.arange(6.0).bfloat16(),
        lambda: np.array(["a", None], object),
        lambda: np.array(["b", None], object),
        lambda: jax.random.key(0),
    ],
    "code": [
        lambda: scaled,
        lambda: nested,
        lambda: str.upper,
        lambda: jax.jit(nested),
        lambda: functools.partial(scaled, factor=2),
        lambda: functools.partial(scaled, factor=3),
        lambda: functools.partial(nested),
        lambda: Options,
        lambda: Options().__call__,
        lambda: Options(2.0).__call__,
        lambda: Options(),
        lambda: Options(2.0),
        lambda: Options(function=scaled),
        lambda: Options(function=nested),
    ],
    "modules": [
        lambda: content_of(linear()),
        lambda: content_of(linear(bias=False)),
        lambda: content_of(linear(seed=1)),
        lambda: content_of(linear().requires_grad_(requires_grad=False)),
        lambda: content_of(nn.Sequential(linear())),
        lambda: content_of(nn.Sequential(linear(), nn.ReLU())),
        lambda: content_of(nn.Sequential(linear(), nn.GELU())),
        lambda: content_of(nn.AvgPool2d((2, 1))),
        lambda: content_of(nn.AvgPool2d((2, 2))),
        lambda: content_of(quantised()),
        lambda: content_of(nn.CrossEntropyLoss(weight=torch.ones(2))),
    ],
}


@pytest.mark.parametrize("kind", MADE)
def test_only_equal_things_share_fingerprints(kind):
    found = [fingerprint(make()) for make in MADE[kind]]
    assert len(set(found)) == len(found) - (kind == "code")  # a compiled function is the one that it was
    assert {*map(len, found)} == {32}
    assert [fingerprint(make()) for make in MADE[kind]] == found


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's compiler, when it is imported
def test_code_counts_by_its_name():
    assert fingerprint(Model(1.0)) == fingerprint(Model(2.0)) == fingerprint(Model)
    own = torch.compile(linear())
    assert fingerprint(content_of(own)) == fingerprint(content_of(linear()))


def test_a_spawned_main_is_main():
    own, spawned = (type("Own", (), {"__module__": name}) for name in ("__main__", "__mp_main__"))
    assert fingerprint(own) == fingerprint(spawned)


BASE = [0.0]


def read_global(x):
    return x * BASE[0]


def read_by_another(value):
    BASE[0] = value
    return lambda x: read_global(x)


HOLDING = {
    "a closure": lambda value: lambda x: x @ jnp.full(2, value),
    "a function within": lambda value: (lambda inner: lambda x: inner(x))(lambda x: x * value),
    "a container": lambda value: (lambda held: lambda x: x @ held["base"][0])({"base": [np.full(2, value)]}),
    "a default": lambda value: lambda x, factor=value: x * factor,
    "a partial": lambda value: functools.partial(scaled, factor=value),
    "a compiled function": lambda value: jax.jit(lambda x: x * value),
    "a method": lambda value: Options(value).__call__,
    "a global": read_by_another,
}


@pytest.mark.parametrize("form", HOLDING)
def test_what_a_function_holds(form):
    made = (HOLDING[form](value) for value in (1.0, 2.0, 1.0))
    first, other, again = (fingerprint(find_captured(one)) for one in made)
    assert first == again != other


def test_equal_numbers_count_each():
    """Whether they are one object or two, which a pickle does not keep."""

    def hold(one, other):
        return lambda x: x * one + other

    number = 0.5
    same, apart = hold(number, number), hold(number, float("0.5"))
    assert find_captured(same) == find_captured(apart) == [0.5, 0.5]
    assert find_captured(lambda x: x) == []


PRINTED = """
from tests.lai_storage.test_identity import MADE, fingerprint
print({kind: [fingerprint(make()) for make in makers] for kind, makers in MADE.items()})
"""


@pytest.mark.slow
def test_fingerprints_ignore_process_and_hash_seed():
    command, found = [sys.executable, "-c", PRINTED], []
    for seed in "01":
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        found.append(done.stdout.strip().splitlines()[-1])
    assert found[0] == found[1]
