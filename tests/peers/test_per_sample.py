"""The guide's table of per-sample gradients is what these libraries do."""

import copy
from pathlib import Path

import pytest
import torch
from opacus.validators import ModuleValidator
from torch import nn

from tests.peers.per_sample_cases import MODELS, WAYS, Asked, asked, of_opacus, of_torch_func

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "per-sample-gradients.md"
HEAD, _, *LINES = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.read_text().split("<!-- measured -->")[1].strip().splitlines()
]
TABLE = {(row[0], way): cell for row in LINES for way, cell in zip(HEAD[1:], row[1:], strict=True)}


def verdict(name: str, way: str) -> str:
    """Say what a way does of a model: `exact`, `wrong`, an error, or a number where none is right."""
    one = asked(name)
    try:
        found = WAYS[way](copy.deepcopy(one))
    except (NotImplementedError, ValueError):
        return "refuses"
    except (AttributeError, RuntimeError, TypeError):
        return "fails"
    if name.startswith("coupled"):
        return "unnoticed"
    expected = one.kernel() if found.ndim == 2 else one.kernel().diagonal()
    return "exact" if (found - expected).abs().max() <= 1e-13 * expected.abs().max() else "wrong"


def test_the_table_has_every_model_and_way():
    assert {(name, way) for name in MODELS for way in WAYS} == set(TABLE)


@pytest.mark.parametrize(("name", "way"), TABLE)
def test_a_cell_of_the_guides_table(name, way):
    assert verdict(name, way) == TABLE[name, way]


def test_a_wrong_number_would_be_seen(monkeypatch):
    monkeypatch.setitem(WAYS, "torch.func", lambda one: of_torch_func(one) * (1 + 1e-9))
    assert verdict("tied embedding and head", "torch.func") == "wrong"


def test_coupled_samples_get_two_answers_that_disagree():
    """torch.func asks each sample alone, opacus in its batch: neither says that these are two questions."""
    for name in ("coupled: centred over the batch", "coupled: attention over the batch"):
        one = asked(name)
        alone, together = (way(copy.deepcopy(one)) for way in (of_torch_func, of_opacus))
        assert (alone - together).abs().max() > 0.1 * alone.abs().max()


@pytest.mark.parametrize("name", ["`nn.MultiheadAttention`", "`nn.LSTM`"])
def test_opacus_own_layers_are_exact(name):
    one = asked(name)
    fixed: nn.Module = ModuleValidator.fix(one.model.train())
    replaced = Asked(fixed.double(), one.batch)
    found, expected = of_opacus(replaced), replaced.kernel()
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
