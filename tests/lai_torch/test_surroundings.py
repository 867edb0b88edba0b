"""Surroundings change no score: autocast, a default device other than the model's."""

import ast
import re
from pathlib import Path

import lai_torch
import pytest
import torch

from tests.lai_torch.support import curated, data, network

PACKAGE = Path(lai_torch.__file__).parent
FACTORIES = re.compile("arange|empty|eye|full|linspace|ones|rand(int|n|perm)?|tensor|zeros")


ESTIMATORS = ("lai", "lli", "preconditioned_lai", "calibrated_lai", "gate_lai", "ghost", "exact", "midpoint")
READ = [{"estimator": one} for one in (*ESTIMATORS, lai_torch.LAI(sketch=2))]
ITSELF = [options for options in READ if options["estimator"] not in {"calibrated_lai", "gate_lai"}]


@pytest.mark.parametrize(
    ("options", "source"), [*((one, "set") for one in READ), *((one, "batch+self") for one in ITSELF)]
)
def test_autocast_changes_no_score(options, source):
    model, (inputs, targets), given = network().float(), data(9), data(8)
    known = (inputs.float(), targets) if source == "set" else source
    found = []
    for on in (False, True):
        curator = curated(model, known, generator=torch.Generator().manual_seed(0), **options)
        with torch.autocast("cpu", torch.bfloat16, enabled=on):
            found.append(curator.score(given[0].float(), given[1])[1].scores)
    assert found[0].dtype == torch.float32
    assert torch.equal(*found)


def test_tensors_are_made_on_named_devices():
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = node.func if isinstance(node, ast.Call) else None
            if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
                made = called.value.id == "torch" and FACTORIES.fullmatch(called.attr)
                named = "device" in {one.arg for one in node.keywords}
                assert named or not made, f"{path}: {ast.unparse(node)}"
