"""Under a default device other than the model's, nothing of the library is made there."""

import ast
import re
from pathlib import Path

import lai_torch
import pytest
import torch
from torch import nn

from tests.lai_torch.support import LOSS, curated, data, labels, network, recurrent
from tests.support.torch_modules import held, holding

PACKAGE = Path(lai_torch.__file__).parent
FACTORIES = re.compile("arange|empty|eye|full|linspace|ones|rand(int|n|perm)?|tensor|zeros")


@holding(lambda: held(table=nn.Embedding(9, 6), gain=nn.Parameter(torch.ones(6)), head=nn.Linear(6, 12)))
def make_tokens(own, words):
    """Classify each token, with a gain on the way."""
    return own.head(torch.tanh(own.table(words)) * own.gain)


def tokens(n):
    return torch.randint(9, (n, 5)), torch.randint(12, (n, 5))


def token_loss(outputs, targets):
    return LOSS(outputs.transpose(1, 2), targets).sum(1)


def series(n):
    return torch.randn(n, 3, 4).double(), labels(n)


def step(model, loss, draw, **options):
    curator, batch = curated(model, draw(9), loss, **options), draw(8)
    return torch.stack([curator.step(*batch).scores for _ in range(2)])


def exact(model, loss, draw, **options):
    return lai_torch.exact_scores(model, loss, draw(9), draw(8), **options)


def checked(model, loss, draw):
    found = lai_torch.selfcheck(model, loss, *draw(8))
    assert max(found.relative_error, found.exact) < 1e-9
    return torch.zeros((), device="cpu")


MODELS = {
    "layers": (network, LOSS, data),
    "tokens": (make_tokens, token_loss, tokens),
    "recurrent": (recurrent, LOSS, series),
}
READ = [
    *({"estimator": name} for name in ("lai", "lli", "preconditioned_lai", "calibrated_lai")),
    {"estimator": lai_torch.LAI(sketch=2, positions="tokens")},
    {"share": 0.5},
    *({"backward": name} for name in ("whole", "selective", "auto")),
]
CALLS = [
    *((name, step, options) for name in ("layers", "tokens") for options in READ),
    ("layers", step, {"estimator": "gate_lai"}),
    *((name, step, {"estimator": one}) for name in MODELS for one in ("ghost", "exact", "midpoint")),
    *((name, exact, {"method": one}) for name in MODELS for one in ("double backward", "reverse")),
    *((name, checked, {}) for name in MODELS),
]


@pytest.mark.parametrize(("name", "call", "options"), CALLS)
def test_scores_are_those_without_a_default_device(name, call, options):
    """A tensor on meta holds no numbers: what was made there could not be read."""
    make, loss, draw = MODELS[name]
    found = []

    def drawn(n):
        with torch.device("cpu"):
            return draw(n)

    for device in ("cpu", "meta"):
        torch.manual_seed(0)
        model = make().double()
        torch.set_default_device(device)
        try:
            found.append(call(model, loss, drawn, **options))
        finally:
            torch.set_default_device(None)
    torch.testing.assert_close(*found)


def test_whatever_makes_a_tensor_names_its_device():
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = node.func if isinstance(node, ast.Call) else None
            if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
                made = called.value.id == "torch" and FACTORIES.fullmatch(called.attr)
                named = "device" in {one.arg for one in node.keywords}
                assert named or not made, f"{path}: {ast.unparse(node)}"
