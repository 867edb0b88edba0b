"""Per-sample gradients under the field's names: norms, inner products, and whether they may be trusted."""

import sys
from contextlib import nullcontext

import lai_torch
import pytest
import torch
from lai_torch._recording.assemble import assemble
from torch import nn

from tests.lai_torch.support import LOSS, Centred, batch, network
from workloads.torch_oracle import per_sample_gradients

N = 6


class Tied(nn.Module):
    """Words under a head of the same matrix, and a parameter that no layer holds."""

    def __init__(self):
        super().__init__()
        self.words, self.twist = nn.Embedding(7, 4), nn.Parameter(torch.randn(4, 4, 4))
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids):
        words = self.words(ids).mean(1)
        return self.head(torch.tanh(torch.einsum("ni,ijk,nj->nk", words, self.twist, words)))


def sides():
    model = Tied().double()
    return model, *[(torch.randint(7, (n, 5)), torch.arange(n) % 7) for n in (4, N)]


def test_products_and_norms_are_those_of_plain_autograd():
    model, first, second = sides()
    left, right = (per_sample_gradients(model, LOSS, *side, len(side[1])) for side in (first, second))
    found = lai_torch.per_sample_inner_products(model, LOSS, first, second)
    assert torch.allclose(found, left @ right.T, rtol=0, atol=1e-14 * float((left @ right.T).abs().max()))
    norms = lai_torch.per_sample_norms(model, LOSS, second)
    assert torch.allclose(norms, right.norm(dim=1), rtol=1e-14)
    assert lai_torch.check_per_sample_gradients(model, LOSS, second).relative_error < 1e-14


def test_what_couples_samples_is_named():
    with pytest.raises(
        ValueError, match=r"layer 'body'.* operation that mixes samples is torch\.Tensor\.mean"
    ):
        lai_torch.check_per_sample_gradients(Centred().double(), LOSS, batch(N, 4))


@pytest.mark.parametrize(
    ("dtype", "error", "right"),
    [(torch.float64, 1e-10, True), (torch.float64, 1e-6, False), (torch.float32, 1e-6, True)],
)
def test_a_wrong_layer_is_named(monkeypatch, dtype, error, right):
    def wrong(recording):
        trace = assemble(recording)
        object.__setattr__(trace.layers[1], "activations", trace.layers[1].activations * (1 + error))
        return trace

    (inputs, targets), model = batch(N, 4), network().to(dtype)
    monkeypatch.setattr(sys.modules["lai_torch.selfcheck"], "assemble", wrong)
    with nullcontext() if right else pytest.raises(ValueError, match=r"errors of .* for 2\.weight; please"):
        lai_torch.check_per_sample_gradients(model, LOSS, (inputs.to(dtype), targets))
