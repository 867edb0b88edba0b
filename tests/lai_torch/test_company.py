"""Samples that see one another where none can move: models that draw, batches in an order of their own."""

import lai_torch
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from tests.lai_torch.exact_support import by_autograd
from tests.lai_torch.support import LOSS, curated, labels, randn
from tests.support.torch_modules import held, holding

STAYS = r"coupled|goes into the losses of others|move with the other samples"
EACH = ["lai", "ghost", "lli", "exact"]


class Net(nn.Module):
    """Draws a number for each sample, and has a place in front, within and behind."""

    def __init__(self, front=None, within=None, behind=None, noise=torch.randn_like):
        super().__init__()
        self.first, self.head = nn.Linear(4, 6).double(), nn.Linear(6, 3).double()
        self.places, self.noise = (front, within, behind), noise

    def forward(self, inputs):
        for layer, place in zip((nn.Identity(), self.first, self.head), self.places, strict=True):
            inputs = layer(inputs) if place is None else place(layer(inputs))
            if layer is self.first:
                inputs = torch.tanh(inputs + 0.1 * self.noise(inputs))
        return inputs


def mixed(values):
    return 0.7 * values + 0.3 * values[torch.randperm(len(values))]


def centred(values):
    return values - values.detach().mean(0)


def swapped_in_pairs(values):
    return values - 0.5 * values.detach().reshape(-1, 2, values.shape[1]).flip(1).reshape(values.shape)


def mixed_targets(outputs, targets):
    return 0.7 * LOSS(outputs, targets) + 0.3 * LOSS(outputs, targets[torch.randperm(len(targets))])


def weighted(outputs, targets):
    losses = LOSS(outputs, targets)
    return losses * (losses / losses.sum()).detach()


MEETING = {
    "mixed inputs": (Net(mixed), LOSS),
    "centred inputs": (Net(centred), LOSS),
    "centred within": (Net(None, centred), LOSS),
    "pairs": (Net(swapped_in_pairs), LOSS),
    "centred outputs": (Net(None, None, centred), LOSS),
    "mixed targets": (Net(), mixed_targets),
    "weights of the batch": (Net(), weighted),
}


def refused(model, loss, batch):
    for estimator in EACH:
        before = [parameter.detach().clone() for parameter in model.parameters()]
        with pytest.raises(ValueError, match=STAYS):
            curated(model, batch(4), loss, estimator=estimator).step(*batch(6))
        assert all(map(torch.equal, model.parameters(), before))
    for gradients in ("output", "all"):
        with pytest.raises(ValueError, match=STAYS):
            lai_torch.trace(model, loss, *batch(6), gradients=gradients)


def vectors(n):
    return randn(n, 4), labels(n)


@pytest.mark.parametrize("name", MEETING)
def test_samples_that_meet_without_a_gradient_are_seen_where_a_model_draws(name):
    model, loss = MEETING[name]
    refused(model, loss, vectors)


def test_samples_that_begin_to_meet_are_seen_where_a_model_draws():
    model = Net(lambda inputs: inputs - (inputs.amax() > 9) * inputs.mean(0))
    curator = curated(model, vectors(6), refresh=9)
    curator.step(*vectors(6))
    with pytest.raises(ValueError, match="coupled"):
        curator.step(20 * vectors(6)[0], labels(6))


REJECTING = {
    "poisson": lambda values: torch.poisson(values.abs()),
    "gamma": lambda values: torch._standard_gamma(values.abs() + 1),
    "until one fits": lambda values: next(
        one for one in iter(lambda: torch.randn_like(values), None) if bool((one * values).sum() > 1)
    ),
}


@pytest.mark.parametrize("name", REJECTING)
@pytest.mark.parametrize("estimator", ["lai", "ghost"])
def test_draws_that_go_by_values_are_no_coupling(name, estimator):
    """Another sample before it moves the stream on by more numbers or fewer, and with it all behind it."""
    curator = curated(Net(noise=REJECTING[name]), vectors(6), estimator=estimator)
    for _ in range(4):
        assert curator.step(*vectors(6)).scores.isfinite().all()


@holding(
    lambda place=None: held(
        memory=nn.GRU(4, 5, batch_first=True).double(), head=nn.Linear(5, 3).double(), place=place
    )
)
def packed(own, inputs, lengths):
    """Read sequences that have to be given by length."""
    inputs = inputs if own.place is None else own.place(inputs)
    return own.head(own.memory(pack_padded_sequence(inputs, lengths, batch_first=True))[1][-1])


def sequences(n):
    lengths = torch.tensor([5, 4, 4, 3, 2, 1])[:n]
    return (randn(n, 5, 4), lengths), labels(n)


@pytest.mark.filterwarnings("ignore:.*LAI has no readout")
@pytest.mark.parametrize("estimator", EACH)
def test_sequences_that_are_given_by_length_are_scored(estimator):
    model, batch = packed(), sequences(6)
    scores = curated(model, sequences(4), lr=0.0, estimator=estimator).step(*batch).scores
    if estimator in {"ghost", "exact"}:
        validation = sequences(4)
        scores = curated(model, validation, lr=0.0, estimator=estimator).step(*batch).scores
        torch.testing.assert_close(scores, by_autograd(model, validation, batch))


@pytest.mark.parametrize("place", [centred, lambda values: values - values.mean(0)])
def test_sequences_that_are_given_by_length_and_meet_are_refused(place):
    refused(packed(place), LOSS, sequences)


class Once(Net):
    """Takes no sample twice."""

    def forward(self, inputs):
        assert len(inputs) == len(inputs.unique(dim=0)), "each sample once"
        return super().forward(inputs)


@pytest.mark.parametrize("estimator", ["lai", "ghost", "lli"])
def test_samples_that_cannot_stand_twice_are_run_in_parts(estimator):
    options = {"noise": torch.zeros_like}
    assert curated(Once(**options), vectors(4), estimator=estimator).step(*vectors(6)).scores.isfinite().all()
    with pytest.raises(ValueError, match="coupled"):
        curated(Once(centred, **options), vectors(4), estimator=estimator).step(*vectors(6))


SIZED = {
    "loss": (Net(noise=torch.zeros_like), lambda outputs, targets: LOSS(outputs, targets) / len(targets)),
    "model": (Net(lambda inputs: inputs / len(inputs), noise=torch.zeros_like), LOSS),
}


@pytest.mark.parametrize("name", SIZED)
def test_a_loss_that_moves_with_the_number_of_samples_is_refused(name):
    """The update would have another weight on the kept rows than the policy gave."""
    model, loss = SIZED[name]
    for estimator in EACH:
        with pytest.raises(ValueError, match=r"moves? with the number of samples"):
            curated(model, vectors(4), loss, estimator=estimator).step(*vectors(6))
