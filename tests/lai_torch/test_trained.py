"""Trained models are refused by no check, and every check still sees an error in one sample's gradient.

Gradients of a trained model nearly cancel in every sum, a fitted sample's own is p - 1, and its loss is zero
but for roundings. The oracle is the construction: samples of these models are apart, so that no refusal is
right, and a mutant changes the gradient of one sample.
"""

import functools
import itertools
from unittest import mock

import lai_torch
import pytest
import torch
from lai_torch._captured import run
from torch import nn
from torch.nn import functional

from tests.lai_torch.support import LOSS, by_autograd, curated, in_bfloat16
from tests.support.torch_functions import ruled
from tests.support.torch_modules import held, holding
from tests.support.workloads.torch_oracle import per_sample_gradients

SAMPLES, VALIDATION, CLASSES = 48, 1000, 4


@holding(
    lambda norm: held(
        first=nn.Linear(8, 16),
        head=nn.Linear(16, CLASSES),
        blocks=nn.ModuleList(
            nn.Sequential(norm(16), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16)) for _ in range(2)
        ),
    )
)
def make_residual(own, inputs):
    """Apply two blocks with a skip connection, each behind a normalisation."""
    hidden = own.first(inputs)
    for block in own.blocks:
        hidden = hidden + block(hidden)
    return own.head(torch.relu(hidden))


def squares(outputs, targets):
    return (outputs - functional.one_hot(targets, CLASSES)).square().sum(1)


MODELS = {
    "mlp": lambda: nn.Sequential(
        nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16), nn.Tanh(), nn.Linear(16, CLASSES)
    ),
    "batch norm": lambda: nn.Sequential(
        nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, CLASSES)
    ),
    "residual": lambda: make_residual(nn.LayerNorm),
}
GRID = list(itertools.product(MODELS, (0, 12, 100, 300), (False, True), (False, True), (LOSS, squares)))
FEW = [("residual", 300, False, False, LOSS), ("batch norm", 100, True, True, squares)]
LONG = [("mlp", 2000, False, False, LOSS), ("residual", 2000, True, False, LOSS)]
LONG += [("mlp", steps, True, True, squares) for steps in range(50, 350, 50)]


def batch(samples, *, learnable, seed):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(samples, 8, generator=generator)
    drawn = torch.randint(CLASSES, (samples,), generator=generator)
    return inputs, inputs[:, :CLASSES].argmax(1) if learnable else drawn


@functools.cache
def trained(kind, steps, learnable, half, loss):
    """Train on one batch for so many steps of Adam, and return the model, the batch and a validation set."""
    torch.manual_seed(0)
    model = in_bfloat16(MODELS[kind]()) if half else MODELS[kind]()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    inputs, targets = training = batch(SAMPLES, learnable=learnable, seed=1)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(model(inputs), targets).mean().backward()
        optimizer.step()
    return model.eval(), training, batch(VALIDATION, learnable=learnable, seed=2)


def judge(kind, steps, learnable, half, loss):
    """Score with every estimator, the training batch and the validation set in either place."""
    model, training, validation = trained(kind, steps, learnable, half, loss)
    for gradients, side in (("all", training), ("all", validation), ("output", validation)):
        lai_torch.trace(model, loss, *side, gradients=gradients)
    for pair in ((validation, training), (training, validation)):
        assert lai_torch.exact_scores(model, loss, *pair).isfinite().all()


@pytest.mark.parametrize(("kind", "steps", "learnable", "half", "loss"), FEW)
def test_trained_models_are_taken(kind, steps, learnable, half, loss):
    judge(kind, steps, learnable, half, loss)


@pytest.mark.weekly
def test_no_trained_model_is_refused():
    for case in (*GRID, *LONG):
        judge(*case)


SEEN = [("mlp", 100, True), ("batch norm", 100, False), ("residual", 300, True)]


def more_of_the_first(ctx, gradients):
    """Add 1% to the gradient of one sample where another one is beside it."""
    found = gradients.clone()
    found[0] *= 1.01 if ctx.others[0] else 1.0
    return found, None


Meeting = ruled(lambda values, beside: values.clone(), more_of_the_first)


@holding(lambda model, other: held(model=model, other=other))
def make_met(own, inputs):
    """Apply a model in which the first sample's gradient depends on another sample of the batch."""
    outputs = own.model(inputs)
    return Meeting.apply(outputs, bool((inputs == own.other).all(1).any()))


@pytest.mark.parametrize("estimator", ["lai", "exact"])
@pytest.mark.parametrize(("kind", "steps", "learnable"), SEEN)
def test_one_percent_from_another_is_seen(kind, steps, learnable, estimator):
    model, training, validation = trained(kind, steps, learnable, half=False, loss=LOSS)
    norms = per_sample_gradients(model, LOSS, *training, SAMPLES).norm(dim=1)
    first = int((norms - norms.square().mean().sqrt()).abs().argmin())  # of the average size
    order = torch.tensor([first, *(j for j in range(SAMPLES) if j != first)])
    inputs, targets = training[0][order], training[1][order]
    met = make_met(model, inputs[1])
    score = {
        "lai": lambda: lai_torch.trace(met, LOSS, inputs, targets),
        "exact": lambda: lai_torch.exact_scores(met, LOSS, validation, (inputs, targets)),
    }[estimator]
    with pytest.raises(ValueError, match=r"coupled|other samples"):
        score()


def test_one_percent_of_a_selective_gradient():
    inputs, own = torch.randn(1, 24) + 0.1 * torch.randn(512, 24), run.weigh_rows
    targets, kept = torch.full((512, 5), 3.0), torch.arange(512) % 2 / 256  # all push one way
    model = nn.Sequential(nn.Linear(24, 33), nn.LayerNorm(33), nn.GELU(), nn.Linear(33, 5))
    options = {"backward": "selective", "estimator": "lli", "policy": lambda _: kept}

    def distances(outputs, targets):
        return (outputs - targets).square().sum(1)

    def wrong(place, value, weights):
        changed = weights.clone()
        changed[3] *= 1.01 if len(weights) < 512 else 1.0
        return own(place, value, changed)

    with (
        mock.patch.object(run, "weigh_rows", wrong),
        pytest.raises(ValueError, match="differs from the"),
    ):
        curated(model, (inputs[:9], targets[:9]), distances, **options).step(inputs, targets)


def rank(outputs, relevance):
    """ListNet's loss."""
    return -(outputs.squeeze(2).log_softmax(1) * relevance.softmax(1)).sum(1)


def order(outputs, relevance):
    """Plackett and Luce's: a gradient's logarithm is taken on its way back."""
    ordered = outputs.squeeze(2).gather(1, relevance.argsort(1))
    return (ordered.logcumsumexp(1) - ordered).sum(1)


@pytest.mark.parametrize(("loss", "seed"), [*((rank, seed) for seed in (49, 108, 131, 152)), (order, 0)])
def test_losses_that_no_shift_moves(loss, seed):
    """The last bias has no gradient but for roundings of the outputs' own."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 1)).double()
    batch, validation = ((torch.randn(n, 5, 6).double(), torch.randn(n, 5).double()) for n in (8, 4))
    assert curated(model, validation, loss).score(*batch)[1].scores.isfinite().all()
    scores = curated(model, validation, loss, estimator="ghost").score(*batch)[1].scores
    torch.testing.assert_close(scores, by_autograd(model, validation, batch, loss))
