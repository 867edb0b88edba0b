"""Language models' losses by means over positions: no gradient is formed at every position and class."""

import copy

import lai_torch
import pytest
import torch
from lai_torch._recording import averaging
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

import lai_core
from tests.lai_torch.support import HALF, curated
from tests.support.torch_modules import held, holding

LENGTH, CLASSES = 5, 7
WEIGHT = torch.rand(CLASSES, dtype=torch.float64)
IGNORED = -100


def per_sample(losses, targets):
    return losses.view(len(targets), -1).mean(1)


def flat(outputs, targets):
    return functional.cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="none")


def following(outputs, targets):
    moved = functional.pad(targets[:, 1:], (0, 1), value=IGNORED)
    return flat(outputs, moved)


def sliced(outputs, targets):
    return flat(outputs[:, :-1].contiguous(), targets[:, 1:])


def transposed(outputs, targets):
    return functional.cross_entropy(outputs.transpose(1, 2), targets, reduction="none")


def weighted(outputs, targets):
    return functional.cross_entropy(
        outputs.flatten(0, 1), targets.flatten(), weight=WEIGHT, ignore_index=2, reduction="none"
    )


def gathered(outputs, targets):
    return -(outputs.log_softmax(-1).gather(2, targets.unsqueeze(-1)).squeeze(-1) ** 3)


def smoothed(outputs, targets):
    return functional.cross_entropy(
        outputs.flatten(0, 1), targets.flatten(), label_smoothing=0.1, reduction="none"
    )


def with_normaliser(outputs, targets):
    return flat(outputs, targets) + 0.1 * outputs.logsumexp(-1).flatten() ** 2


def scaled(outputs, targets):
    return flat(outputs / 2.0, targets)


def by_position(outputs, targets):
    """Positions lie before samples."""
    rows = outputs.transpose(0, 1).flatten(0, 1)
    return functional.cross_entropy(rows, targets.t().flatten(), reduction="none").view(LENGTH, -1).t()


def twice(outputs, targets):
    return flat(outputs, targets) + flat(outputs, targets.flip(1))


def hooked(outputs, targets):
    logarithms = outputs.log_softmax(-1)
    if logarithms.requires_grad:
        logarithms.register_hook(lambda gradient: gradient / 2)
    return -logarithms.gather(2, targets.unsqueeze(-1)).squeeze(-1)


FORMED = [smoothed, with_normaliser, scaled, by_position, twice, hooked]
AVERAGED = [flat, following, sliced, transposed, weighted, gathered]


@holding(lambda: held(table=nn.Embedding(CLASSES, 6), body=nn.Linear(6, 8), head=nn.Linear(8, CLASSES)))
def make_model(own, input_ids, attention_mask=None):
    hidden = torch.tanh(own.body(own.table(input_ids)))
    if attention_mask is not None:
        hidden = hidden * attention_mask.unsqueeze(-1)
    return own.head(hidden)


def batch(n, *, padded=False):
    ids = torch.randint(CLASSES, (n, LENGTH))
    inputs = {"input_ids": ids}
    if padded:
        inputs["attention_mask"] = (torch.arange(LENGTH) < torch.randint(2, LENGTH, (n, 1))).long()
    return inputs, ids


@pytest.fixture(autouse=True)
def _of_any_size(monkeypatch):
    monkeypatch.setattr(averaging, "FEWEST", 0)


class Backward(TorchDispatchMode):
    """Counts gradients of log-probabilities."""

    counted = 0

    @classmethod
    def is_infra_mode(cls):
        """Let captured graphs run under it: it changes nothing."""
        return True

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.counted += "_log_softmax_backward" in str(func)
        return func(*args, **(kwargs or {}))


def scores_of(model, loss, validation, training):
    """Score by traces of all positions."""
    sides = [lai_torch.trace(model, loss, *side) for side in (validation, training)]
    return lai_core.lai_scores(*sides, positions="mean")


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("form", AVERAGED + FORMED)
def test_scores_by_means_are_those_of_every_position(form, padded):
    def loss(outputs, targets):
        return per_sample(form(outputs, targets), targets)

    model, validation = make_model().double(), batch(4, padded=padded)
    curator = curated(model, validation, loss, estimator=lai_torch.LAI(positions="mean"), refresh=100)
    for _ in range(3):  # proved, planned, by the plan
        training = batch(6, padded=padded)
        with Backward() as backward:
            _, report = curator.score(*training)
        torch.testing.assert_close(report.scores, scores_of(model, loss, validation, training))
    positions_known = not (padded and form is sliced)
    assert bool(backward.counted) == (form in FORMED or not positions_known)


@pytest.mark.parametrize(
    ("form", "padded"),
    [
        (flat, False),
        (flat, True),
        (transposed, False),
        *((form, False) for form in (sliced, by_position, twice, hooked)),
    ],
)
def test_selective_steps_are_those_of_kept_rows(form, padded):
    def loss(outputs, targets):
        return per_sample(form(outputs, targets), targets)

    validation, models = batch(4, padded=padded), [make_model().double()]
    models.append(copy.deepcopy(models[0]))
    options = {"estimator": lai_torch.LAI(positions="mean"), "policy": HALF, "refresh": 100}
    kept, selective = (
        curated(model, validation, loss, backward=backward, **options)
        for model, backward in zip(models, ("kept", "selective"), strict=True)
    )
    for _ in range(4):  # what drops a sample first is compared with every sample's
        training = batch(6, padded=padded)
        expected = kept.step(*training)
        with Backward() as backward:
            found = selective.step(*training)
        torch.testing.assert_close(found.scores, expected.scores)
        assert 0 < found.kept < 6
        for one, other in zip(*(model.parameters() for model in models), strict=True):
            torch.testing.assert_close(one, other)
    assert bool(backward.counted) == (form not in (flat, transposed))


@pytest.mark.parametrize("backward", ["kept", "selective"])
def test_sequences_of_one_position(backward):
    def loss(outputs, targets):
        return per_sample(flat(outputs, targets), targets)

    def first(n):
        inputs, ids = batch(n)
        return {name: one[:, :1] for name, one in inputs.items()}, ids[:, :1]

    model, validation = make_model().double(), first(4)
    options = {"estimator": lai_torch.LAI(positions="mean"), "policy": HALF, "refresh": 1}
    curator = curated(model, validation, loss, backward=backward, **options)
    for _ in range(3):
        training = first(6)
        expected = scores_of(model, loss, validation, training)
        torch.testing.assert_close(curator.step(*training).scores, expected)


@pytest.mark.parametrize("backward", ["kept", "selective"])
def test_a_first_batch_that_tells_nothing_does_not_mislead(backward):
    """Copies of one sample look alike however their positions are laid out."""

    def loss(outputs, targets):
        return by_position(outputs, targets).mean(1)

    model, validation = make_model().double(), batch(4)
    options = {"estimator": lai_torch.LAI(positions="mean"), "policy": HALF, "refresh": 1}
    curator = curated(model, validation, loss, backward=backward, **options)
    inputs, ids = batch(6)
    alike = {"input_ids": torch.full_like(inputs["input_ids"], 3)}, torch.full_like(ids, 3)
    for training in (alike, alike, batch(6), batch(6)):
        expected = scores_of(model, loss, validation, training)
        torch.testing.assert_close(curator.step(*training).scores, expected)


def test_what_the_loss_reads_with_a_weight_of_zero_so_far():
    weight = torch.zeros((), dtype=torch.float64)

    def loss(outputs, targets):
        return per_sample(flat(outputs, targets), targets) + weight * outputs.square().mean((1, 2))

    model, validation = make_model().double(), batch(4)
    curator = curated(model, validation, loss, estimator=lai_torch.LAI(positions="mean"), refresh=1)
    for strength in (0.0, 0.0, 0.0, 1.0):
        weight.fill_(strength)
        training = batch(6)
        _, report = curator.score(*training)
        torch.testing.assert_close(report.scores, scores_of(model, loss, validation, training))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_logits_that_are_widened_in_the_loss(dtype):
    def loss(outputs, targets):
        return per_sample(flat(outputs.float(), targets), targets)

    model, validation = make_model().double().to(dtype), batch(4)
    curator = curated(model, validation, loss, estimator=lai_torch.LAI(positions="mean"), refresh=100)
    for _ in range(3):
        training = batch(6)
        with Backward() as backward:
            _, report = curator.score(*training)
        exact = scores_of(model, loss, validation, training)
        apart = float((report.scores - exact).abs().max() / exact.abs().max())
        assert apart < 16 * torch.finfo(dtype).eps
    assert not backward.counted
