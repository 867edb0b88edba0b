"""Exact scores of positions, and scores of packed documents as of rows of their own."""

import lai_torch
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

ESTIMATORS = ["lai", "lli", "ghost", "exact"]


def loss(outputs, targets):
    return functional.cross_entropy(outputs.transpose(1, 2), targets, reduction="none")


class Named(nn.Module):
    """Documents separated by ids that are called like contents, and contents that are called like ids."""

    def __init__(self, norm=nn.LayerNorm, dropout=0.0, mixes=None):
        super().__init__()
        self.read, self.norm, self.drop = nn.Embedding(7, 6), norm(6), nn.Dropout(dropout)
        self.mix, self.head, self.mixes = nn.Linear(6, 6), nn.Linear(6, 7), mixes

    def forward(self, sequence, content):
        h = self.read(sequence)
        mask = (content[:, :, None] == content[:, None, :]).tril()
        scores = (h @ h.transpose(1, 2)).masked_fill(~mask, -torch.inf)
        h = self.norm(h + self.drop(torch.tanh(self.mix(scores.softmax(-1) @ h))))
        return self.head(h if self.mixes is None else h + self.mixes(h))


PIECES = torch.tensor([[0, 0, 1, 0, 1], [2, 3, 3, -1, 2]])


def named(seed, segments=PIECES, **options):
    """Return a model, and a batch in whose documents other numbers stand."""
    torch.manual_seed(seed)
    ids, targets = torch.randint(7, (2, *segments.shape))
    return Named(**options).double(), ({"sequence": ids, "content": segments}, targets)


def alone(batch, segments, number):
    own = segments == number
    ids = batch[0]["sequence"][own][None]
    return {"sequence": ids, "content": torch.zeros_like(ids)}, batch[1][own][None]


def score_alone(estimator, model, validation, documents):
    """Score documents as rows of their own."""
    kind = lai_torch.LAI(positions="tokens") if estimator == "lai" else estimator
    curator = lai_torch.Curator(model, lambda *both: loss(*both).sum(1), None, validation, estimator=kind)
    return torch.cat([curator.score(*one)[1].scores for one in documents])


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("norm", [nn.LayerNorm, nn.Identity])
@given(st.integers(0, 99))
@settings(max_examples=2)
def test_documents_in_pieces(norm, estimator, seed):
    """Numbered in int8, where a count of 256 would not fit, and more of them asked for than there are."""
    model, batch = named(seed, norm=norm)
    validation = named(seed + 1, torch.zeros(2, 4, dtype=torch.long))[1]
    pieces = PIECES.to(torch.int8)
    found = lai_torch.segment_scores(model, loss, validation, batch, pieces, 256, estimator=estimator)
    assert found.shape == (256,)
    assert not found[4:255].any()
    documents = [alone(batch, PIECES, number) for number in range(4)]
    expected = score_alone(estimator, model, validation, documents)
    torch.testing.assert_close(found[:4], expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("estimator", ["lai", "lli", "ghost"])
def test_documents_without_finite_loss(estimator):
    model, (inputs, targets) = named(3)

    def scaled(outputs, targets):
        return loss(outputs, targets[0]) * targets[1]

    factors = torch.ones(2, 5).double(), torch.where(PIECES == 1, torch.inf, 1.0).double()
    validation = inputs, (targets, factors[0])
    usual, found = (
        lai_torch.segment_scores(
            model, scaled, validation, (inputs, (targets, one)), PIECES, 4, estimator=estimator
        )
        for one in factors
    )
    # Ghost's reverse pass carries 0 times infinity to the attention's other positions: to the whole row
    assert found.isnan().tolist() == [estimator == "ghost", True, False, False]
    kept = ~found.isnan()
    torch.testing.assert_close(found[kept], usual[kept])


MIXES = {
    "a mean over the row": lambda h: h.mean(1, keepdim=True),
    "a mean over the row without gradient": lambda h: h.detach().mean(1, keepdim=True),
    "a cumulative mean without gradient": lambda h: h.detach().cumsum(1) / torch.arange(1, 6)[:, None],
    "a sum over what came before": lambda h: h.cumsum(1),
    "a sum over what comes after": lambda h: h.flip(1).cumsum(1).flip(1),
    "a sum that gradients alone show": lambda h: h.cumsum(1) - h.detach().cumsum(1),
}


@pytest.mark.parametrize("mixes", MIXES)
@pytest.mark.parametrize("estimator", ["lai", "lli", "ghost"])
def test_mixed_documents_are_refused(mixes, estimator):
    model, batch = named(0, mixes=MIXES[mixes], dropout=0.5)
    before = {name: one.clone() for name, one in model.state_dict().items()}, torch.get_rng_state()
    with pytest.raises(ValueError, match=r"^segments: expected ones that do not see one another"):
        lai_torch.segment_scores(model, loss, batch, batch, PIECES, 4, estimator=estimator)
    torch.testing.assert_close(model.state_dict(), before[0], rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), before[1])
    assert model.training


def test_equal_inputs_are_refused():
    model, batch = named(0)
    batch[0]["sequence"] = torch.zeros_like(PIECES)
    batch[0]["content"] = torch.ones_like(PIECES)
    with pytest.raises(
        ValueError, match=r"^inputs: expected an array of contents, of shape \(2, 5, \.\.\.\)"
    ):
        lai_torch.segment_scores(model, loss, batch, batch, PIECES, 4)


def test_movements_of_roundings_are_said():
    """Experts in bfloat16 add up another number of rows; a statistic of documents may hide there."""
    segments, model = torch.tensor([[0, 0, 1, 1, 1]]), nn.Linear(3, 4).to(torch.bfloat16)
    batch = torch.randn(1, 5, 3).bfloat16(), torch.randint(4, (1, 5))

    def leaks(share):
        def leaking(outputs, targets):
            own = loss(outputs.double(), targets)
            return own + share * torch.sin(100.0 * outputs.detach().double().mean())

        return lai_torch.segments.check_segments(model, leaking, batch, segments)

    leaks(0.0)
    with pytest.warns(UserWarning, match="segments: a loss of up to .* which may be rounding"):
        leaks(1e-3)
    with pytest.raises(ValueError, match="segments: expected ones that do not see one another"):
        leaks(100.0)


def setting(seed, samples=3, length=4):
    """Return a model, a validation batch and a training batch, of one document a row."""
    model, validation = named(seed, torch.zeros(samples, length, dtype=torch.long))
    return model, validation, named(seed + 1, torch.zeros(samples, length, dtype=torch.long))[1]


def one_pass_each(model, validation, training):
    parameters = [*model.parameters()]
    direction = torch.autograd.grad(loss(model(**validation[0]), validation[1]).sum(), parameters)
    losses, rows = loss(model(**training[0]), training[1]), []
    for one in losses.flatten():
        own = torch.autograd.grad(one, parameters, retain_graph=True)
        rows.append(sum((g * d).sum() for g, d in zip(own, direction, strict=True)))
    return torch.stack(rows).view(losses.shape)


@pytest.mark.equation("position-score")
@given(st.integers(0, 2**16), st.integers(1, 3), st.integers(1, 4))
def test_positions_score_by_their_losses(seed, samples, length):
    model, *sides = setting(seed, samples, length)
    found = lai_torch.exact_scores(model, loss, *sides, per_position=True)
    torch.testing.assert_close(found, one_pass_each(model, *sides), rtol=1e-10, atol=1e-10)
    summed = lai_torch.exact_scores(model, lambda o, t: loss(o, t).sum(1), *sides)
    torch.testing.assert_close(found.sum(1), summed, rtol=1e-10, atol=1e-10)


def test_samples_without_finite_loss():
    def broken(outputs, targets):
        found = loss(outputs, targets.clamp(max=4))
        return torch.where((targets == 9).any(1, keepdim=True), torch.inf, found)

    model, validation, (inputs, targets) = setting(3)
    validation, targets = (validation[0], validation[1].clamp(max=4)), targets.clamp(max=4)
    spoilt = torch.where(torch.arange(12).view(3, 4) == 4, 9, targets)
    found = lai_torch.exact_scores(model, broken, validation, (inputs, spoilt), per_position=True)
    assert torch.isnan(found[1]).all()
    expected = one_pass_each(model, validation, (inputs, targets))
    torch.testing.assert_close(found[[0, 2]], expected[[0, 2]], rtol=1e-10, atol=1e-14)
