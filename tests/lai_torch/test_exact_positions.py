"""Exact scores of positions, against one reverse pass a position."""

import lai_torch
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from tests.support.torch_modules import Part, held, holding


@holding(
    lambda words=5, width=6: held(
        read=nn.Embedding(words, width),
        attend=nn.MultiheadAttention(width, 2, batch_first=True),
        head=nn.Linear(width, words),
    )
)
def attending(own, ids):
    """Apply a causal language model of one block, whose positions read those before them."""
    read = own.read(ids)
    mask = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).triu(1)
    return own.head(read + own.attend(read, read, read, attn_mask=mask)[0])


def loss(outputs, targets):
    return functional.cross_entropy(outputs.transpose(1, 2), targets, reduction="none")


def setting(seed, samples=3, length=4):
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = attending().double()
    draws = [torch.randint(5, (samples, length), generator=generator) for _ in range(4)]
    return model, tuple(draws[:2]), tuple(draws[2:])


def one_pass_each(model, validation, training, loss=loss):
    parameters = [*model.parameters(), *(loss.parameters() if isinstance(loss, nn.Module) else ())]
    direction = torch.autograd.grad(loss(model(validation[0]), validation[1]).sum(), parameters)
    losses = loss(model(training[0]), training[1])
    rows = []
    for one in losses.flatten():
        own = torch.autograd.grad(one, parameters, retain_graph=True)
        rows.append(sum((g * d).sum() for g, d in zip(own, direction, strict=True)))
    return torch.stack(rows).view(losses.shape)


@pytest.mark.equation("position-score")
@given(st.integers(0, 2**16), st.integers(1, 3), st.integers(1, 4))
def test_each_position_scores_by_its_own_loss(seed, samples, length):
    model, validation, training = setting(seed, samples, length)
    found = lai_torch.exact_scores(model, loss, validation, training, per_position=True)
    expected = one_pass_each(model, validation, training)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    summed = lai_torch.exact_scores(model, lambda o, t: loss(o, t).sum(1), validation, training)
    torch.testing.assert_close(found.sum(1), summed, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("method", ["double backward", "reverse"])
def test_every_method_gives_the_same_positions(method):
    model, validation, training = setting(0)
    found = lai_torch.exact_scores(
        model, loss, validation, training, per_position=True, method=method, explain=True
    )
    assert found.method == method
    torch.testing.assert_close(found.scores, one_pass_each(model, validation, training), rtol=1e-10, atol=0)


def test_a_hook_counts_for_positions_as_in_training():
    """Forward mode does not see a hook; the adjoint identity tells."""
    model, validation, training = setting(1)
    model.head.register_full_backward_hook(lambda module, inputs, outputs: (3 * inputs[0],))
    found = lai_torch.exact_scores(model, loss, validation, training, per_position=True, explain=True)
    assert found.method != "forward"
    torch.testing.assert_close(found.scores, one_pass_each(model, validation, training), rtol=1e-10, atol=0)


def test_parameters_of_a_loss_score_too():
    model, validation, training = setting(2)
    scale = nn.Parameter(torch.tensor(2.0, dtype=torch.float64))
    scaled = Part(lambda own, outputs, targets: own.scale * loss(outputs, targets), scale=scale)
    found = lai_torch.exact_scores(model, scaled, validation, training, per_position=True)
    expected = one_pass_each(model, validation, training, scaled)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_a_sample_without_a_finite_loss_leaves_the_others_alone():
    model, validation, (inputs, targets) = setting(3)

    def broken(outputs, targets):
        return torch.where(
            (targets == 9).any(1, keepdim=True), torch.inf, loss(outputs, targets.clamp(max=4))
        )

    targets = targets.clone()
    targets[1, 0] = 9
    found = lai_torch.exact_scores(model, broken, validation, (inputs, targets), per_position=True)
    assert torch.isnan(found[1]).all()
    expected = one_pass_each(model, validation, (inputs, targets.clamp(max=4)))
    torch.testing.assert_close(found[[0, 2]], expected[[0, 2]], rtol=1e-10, atol=0)


def test_positions_may_see_one_another_and_samples_may_not():
    model, validation, training = setting(4)
    with pytest.raises(ValueError, match="its own, got ones that move with the other samples"):
        lai_torch.exact_scores(
            model, lambda o, t: loss(o - o.mean(0), t), validation, training, per_position=True
        )
