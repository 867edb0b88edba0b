"""Ghost and LLI against BackPACK, captum and opacus, on every network that each can take."""

import pytest
import torch
from opacus.validators import ModuleValidator
from torch import Tensor

from benchmarks.judge.libraries import ask_opacus, products
from benchmarks.judge.zoo import Case as Judged
from benchmarks.judge.zoo import build
from tests.peers import backpack_gradients, captum_influence, opacus_gradients
from tests.peers.cases import DTYPES, NETWORKS, Case, agree, case, perturbed

ASKED = [
    *(("backpack", name) for name in backpack_gradients.NETWORKS),
    *((peer, name) for peer in ("captum", "opacus") for name in NETWORKS),
]
SAMPLES = {"backpack": backpack_gradients.gradients, "opacus": opacus_gradients.gradients}


def kernel(peer: str, one: Case, *, last: bool = False) -> Tensor:
    """`(n_val, n_train)`: what a peer finds over all parameters, or the last layer's."""
    if peer == "captum":
        return captum_influence.kernel(one, last=last)
    left, right = (SAMPLES[peer](one, batch, last=last) for batch in (one.validation, one.training))
    return left @ right.T


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("peer", "name"), ASKED)
def test_ghost_is_what_a_peer_finds_over_all_parameters(peer, name, dtype):
    one = case(name, dtype)
    assert agree(one.ghost(), kernel(peer, one))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("peer", "name"), ASKED)
def test_lli_is_what_a_peer_finds_over_the_last_layer(peer, name, dtype):
    one = case(name, dtype)
    assert agree(one.lli(), kernel(peer, one, last=True))


@pytest.mark.parametrize(("peer", "name"), ASKED)
def test_one_weight_moved_by_a_hundredth_would_be_seen(peer, name):
    one = case(name, torch.float32)
    ghost, lli = one.ghost(), one.lli()
    moved = perturbed(one)
    assert not agree(ghost, kernel(peer, moved))
    assert not agree(lli, kernel(peer, moved, last=True))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NETWORKS)
def test_lli_is_captums_fast_influence_where_the_last_layer_has_no_bias(name, dtype):
    one = case(name, dtype)
    one.model[-1].bias = None
    assert agree(one.lli(), captum_influence.fast_kernel(one))


def test_a_missing_bias_would_be_seen():
    one = case("mlp", torch.float32)
    assert not agree(one.lli(), captum_influence.fast_kernel(one))


@pytest.mark.parametrize(("name", "part"), [("nn.MultiheadAttention", "attention"), ("nn.LSTM", "rnn")])
def test_opacus_own_layers_are_exact(name, part):
    one = build(name)
    fixed = ModuleValidator.fix(torch.nn.Sequential(getattr(one.model, part))).double()
    setattr(one.model, part, fixed[0])
    replaced = Judged(one.model, one.inputs, one.targets)
    expected = products(replaced.gradients())
    torch.testing.assert_close(ask_opacus(replaced)[0], expected, rtol=1e-9, atol=1e-12)
