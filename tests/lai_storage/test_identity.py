"""Fingerprints: what is made alike has one, in every process; what computes something else has another."""

import argparse
import collections
import enum
import functools
import importlib
import os
import subprocess
import sys
import types
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import lai_torch  # noqa: F401  # says what tensors and modules are made of
import numpy as np
import pytest
import torch
from lai_storage.identity import fingerprint, is_installed
from lai_torch.dataset.identity import code_of
from transformers import GPT2Config, GPT2LMHeadModel

SCALE = 2.0
TABLE = {"factor": 3.0}


def scaled(x):
    """Return a multiple."""
    return SCALE * x


def nested(x):
    return [scaled(y) for y in x]


def counted(x, *, power=2, names=frozenset({"ab", "cd", "ef"})):
    return x**power if "ab" in names else TABLE["factor"]


def closing(factor):
    return lambda x: factor * x


class Model:
    rate = 0.1

    def __init__(self, factor=1.0):
        self.factor = factor

    @property
    def doubled(self):
        return 2 * self.factor

    @staticmethod
    def moved(x):
        return scaled(x)

    @classmethod
    def made(cls):
        return cls(2.0)

    def __call__(self, x):
        return self.factor * x


@dataclass
class Options:
    factor: float = 1.0
    function: object = None


class Kind(enum.Enum):
    ONE = 1
    TWO = 2


@dataclass
class Private:
    _factor: float = 1.0


def having(made, **attributes):
    vars(made).update(attributes)
    return made


Pair = collections.namedtuple("Pair", "one other")


def cyclic(number):
    found = [number]
    found.append(found)
    return found


class Wrapping:
    def __init__(self, factor):
        functools.update_wrapper(self, scaled)
        self.factor = factor


def wrapped(factor):
    @functools.wraps(torch.nn.functional.cross_entropy)
    def loss(x):
        return factor * x

    return loss


def evaluated(source):
    return eval(source, {})  # a namespace without a name


def linear(bias=True, seed=0):
    torch.manual_seed(seed)
    return torch.nn.Linear(3, 2, bias=bias)


def frozen():
    model = linear()
    model.weight.requires_grad_(requires_grad=False)
    return model


def hooked(factor):
    model = linear()
    model.register_forward_hook(lambda module, inputs, outputs: factor * outputs)
    return model


def gpt2(layers=1):
    torch.manual_seed(0)
    config = GPT2Config(n_layer=layers, n_head=2, n_embd=8, vocab_size=11, n_positions=6)
    return GPT2LMHeadModel(config)


MADE = {
    "numbers": [lambda: 1, lambda: 1.0, lambda: True, lambda: "1", lambda: b"1", lambda: None, lambda: 1j],
    "containers": [lambda: [1, 2], lambda: (1, 2), lambda: [[1], 2], lambda: [1, [2]], lambda: {1: 2}],
    "sets": [lambda: {"a", "b", "c"}, lambda: {"a", "b", "d"}, lambda: frozenset("abc")],
    "arrays": [
        lambda: np.arange(6.0),
        lambda: np.arange(6.0).reshape(2, 3),
        lambda: np.arange(6),
        lambda: np.arange(6.0)[::-1],
        lambda: jnp.arange(6.0),
        lambda: torch.arange(6.0),
        lambda: torch.arange(6.0).bfloat16(),
        lambda: np.array(["a", None], object),
    ],
    "functions": [
        lambda: scaled,
        lambda: nested,
        lambda: counted,
        lambda: closing(1.0),
        lambda: closing(2.0),
        lambda: functools.partial(counted, power=2),
        lambda: functools.partial(counted, power=3),
        lambda: jax.jit(scaled),
        lambda: jax.jit(nested),
        lambda: wrapped(1.0),
        lambda: wrapped(2.0),
        lambda: evaluated("lambda x: x + 1"),
        lambda: evaluated("lambda x: x + 2"),
        lambda: evaluated("lambda x: [y for y in x if y == 'a']"),
        lambda: evaluated("lambda x: [y for y in x if y == 'b']"),
        lambda: torch.nn.functional.relu,
        lambda: torch.nn.functional.gelu,
        lambda: np.add,
        lambda: np.subtract,
    ],
    "objects": [
        lambda: Model(),
        lambda: Model(2.0),
        lambda: Model().__call__,
        lambda: Model.made,
        lambda: Options(),
        lambda: Options(2.0),
        lambda: Options(function=closing(1.0)),
        lambda: Options(function=closing(2.0)),
        lambda: Private(1.0),
        lambda: Private(2.0),
        lambda: having(Model(), _seed=1),
        lambda: having(Model(), _seed=2),
        lambda: having(Options(), seed=1),
        lambda: having(Options(), seed=2),
        lambda: argparse.Namespace(seed=1),
        lambda: argparse.Namespace(seed=2),
        lambda: Wrapping(1.0),
        lambda: Wrapping(2.0),
        lambda: Kind.ONE,
        lambda: Kind.TWO,
        lambda: Pair(1, 2),
        lambda: Pair(2, 1),
        lambda: collections.deque([1]),
        lambda: collections.deque([2]),
        lambda: cyclic(1),
        lambda: cyclic(2),
        lambda: functools,
        lambda: collections,
    ],
    "modules": [
        lambda: linear(),
        lambda: linear(bias=False),
        lambda: linear(seed=1),
        lambda: frozen(),
        lambda: hooked(1.0),
        lambda: hooked(2.0),
        lambda: torch.nn.CrossEntropyLoss(reduction="none"),
        lambda: torch.nn.CrossEntropyLoss(reduction="none", label_smoothing=0.1),
        lambda: gpt2(),
        lambda: gpt2(2),
        lambda: torch.nn.Dropout(0.1),
        lambda: torch.nn.Dropout(0.2),
    ],
}


@pytest.mark.parametrize("kind", MADE)
def test_only_equal_things_share_fingerprints(kind):
    found = [fingerprint(make()) for make in MADE[kind]]
    assert len(set(found)) == len(found)
    assert {*map(len, found)} == {32}
    assert [fingerprint(make()) for make in MADE[kind]] == found


def test_framework_notes_and_origin_are_ignored():
    """Private attributes of a dataclass that are no fields; an origin of a package's object."""
    assert fingerprint(having(Options(), _seen=1)) == fingerprint(Options())
    both = [argparse.Namespace(seed=1, name_or_path=name) for name in ("here", "there")]
    assert fingerprint(both[0]) == fingerprint(both[1]) == fingerprint(argparse.Namespace(seed=1))


def test_installed_code_counts_by_its_name():
    """Ours too, wherever it stands."""
    codes = [compile(f"lambda: {n}", functools.__file__, "eval").co_consts[0] for n in (1, 2)]
    found = {fingerprint(types.FunctionType(code, vars(functools))) for code in codes}
    assert len(found) == 1
    assert fingerprint(types.ModuleType("functools")) == fingerprint(functools)
    assert is_installed("lai_core.records", "/elsewhere/lai_core/records.py")


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


def test_fingerprints_survive_running_the_model():
    for model, batch in ((linear(), torch.ones(2, 3)), (gpt2(), torch.zeros(2, 4, dtype=torch.long))):
        before = fingerprint(model)
        model(batch)
        model.eval()
        handle = model.register_forward_hook(lambda module, inputs, outputs: outputs)
        handle.remove()
        assert fingerprint(model) == before


SOURCES = {
    "first": "def helper(x):\n    return x + 1\ndef loss(x):\n    return helper(x)\n",
    "commented": '# a comment\ndef helper(x):\n    """Help."""\n    return x + 1\n'
    "def loss(x):\n    # a comment\n    return helper(x)\ndef other():\n    return 1\n",
    "another helper": "def helper(x):\n    return x + 2\ndef loss(x):\n    return helper(x)\n",
}


@pytest.mark.parametrize("place", ["of_ones_own.py", "own_space/losses.py", "lai_like/losses.py"])
def test_fingerprints_cover_code_not_comments(tmp_path, monkeypatch, place):
    """A module, and one in a package without a file; the loss itself, and a function that calls it."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    name = place.removesuffix(".py").replace("/", ".")
    (tmp_path / place).parent.mkdir(exist_ok=True)
    found, files = {}, set()
    for case, source in SOURCES.items():
        (tmp_path / place).write_text(source)
        for held in (name, name.partition(".")[0]):
            sys.modules.pop(held, None)
        importlib.invalidate_caches()
        module = importlib.import_module(name)
        space = {"top": importlib.import_module(name.partition(".")[0])}
        calling = eval(f"lambda x: {'.'.join(['top', *name.split('.')[1:]])}.loss(x)", space)
        found[case] = fingerprint(module.loss), fingerprint(calling)
        files.add(fingerprint(module))
    assert len(files) == len(SOURCES)  # of a module that is handed over, every byte
    assert found.pop("commented") == found["first"]
    assert len({one for one, _ in found.values()}) == len({one for _, one in found.values()}) == 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's compiler, when it is imported
def test_origin_and_compilation_are_ignored(tmp_path):
    model = gpt2()
    before = fingerprint(list(code_of(model)))
    model.save_pretrained(tmp_path / "first")
    found = [model, *(GPT2LMHeadModel.from_pretrained(tmp_path / "first") for _ in range(2))]
    found[2].name_or_path = "elsewhere"
    found.append(torch.compile(found[1]))
    assert {fingerprint(list(code_of(one))) for one in found} == {before}


def test_program_classes_match_in_engine_workers(monkeypatch):
    """There the main program is the engine's, an installed one, and the class comes pickled by value."""
    own = type("Own", (), {"__module__": "__main__", "scale": 2})
    here = fingerprint(own)
    monkeypatch.setattr(sys.modules["__main__"], "__file__", np.__file__, raising=False)
    assert fingerprint(own) == here
    assert fingerprint(type("Own", (), {"__module__": "__main__", "scale": 3})) != here
