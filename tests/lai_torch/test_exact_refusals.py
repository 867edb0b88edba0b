"""What has no exact scores is refused by name; what changes after a proof is proved again."""

import copy

import lai_torch
import pytest
import torch
from lai_torch._exact import directional
from torch import nn
from torch.nn import functional

from tests.lai_torch.exact_support import by_autograd
from tests.lai_torch.support import LOSS, data
from workloads.torch_oracle import per_sample_gradients

N = 6


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 8).double(), nn.Linear(8, 3).double()

    def forward(self, inputs):
        return self.head(torch.tanh(self.body(inputs)))


def centred(outputs, targets):
    return LOSS(outputs - outputs.mean(0), targets)


def contrastive(outputs, targets):
    """SupCon: a sample's class mates in the batch attract it."""
    unit = functional.normalize(outputs)
    likely = (unit @ unit.T).log_softmax(1)
    return -(likely * (targets[:, None] == targets)).sum(1)


@pytest.mark.parametrize("loss", [centred, contrastive])
@pytest.mark.parametrize("estimator", ["exact", "midpoint", "lai", "lli", "ghost", "preconditioned_lai"])
def test_curators_refuse_samples_that_see_one_another(estimator, loss):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = copy.deepcopy(model.state_dict())
    curator = lai_torch.Curator(model, loss, optimizer, data(9), estimator=estimator)
    with pytest.raises(
        ValueError, match=r"move with the other samples of the batch|coupled|goes into the losses of others"
    ):
        curator.step(*data(N))
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)


def test_a_loss_that_holds_weights_for_this_batch_alone_is_scored():
    weights = torch.rand(N, dtype=torch.float64)
    training = data(N)
    plain = lai_torch.exact_scores(Net(), LOSS, data(9), training)
    model = Net()
    validation = data(N)
    found = lai_torch.exact_scores(model, lambda o, t: LOSS(o, t) * weights, validation, training)
    of_validation, of_training = (
        per_sample_gradients(model, LOSS, *side, N) for side in (validation, training)
    )
    torch.testing.assert_close(found, weights * (of_training @ (weights[:, None] * of_validation).sum(0)))
    assert plain.shape == found.shape


def test_tensors_of_inference_mode_are_scored():
    model = Net()
    with torch.inference_mode():
        sides = data(9), data(N)
        found = lai_torch.exact_scores(model, LOSS, *sides)
    sides = [tuple(tensor.clone() for tensor in side) for side in sides]
    torch.testing.assert_close(found, by_autograd(model, *sides))


def test_samples_without_a_finite_loss_or_gradient_get_no_score_and_spoil_no_other():
    def rooted(outputs, targets):
        return LOSS(outputs, targets) + outputs.square().sum(1).sqrt() * 0.1

    model, validation, (inputs, targets) = Net(), data(9), data(N)
    model.head.bias.data.zero_()
    model.body.bias.data.zero_()
    inputs[1] = torch.nan
    inputs[4] = 0.0  # the root of nothing has a finite value, and no slope
    found = lai_torch.exact_scores(model, rooted, validation, (inputs, targets), explain=True)
    expected = by_autograd(model, validation, (inputs, targets), rooted)
    assert torch.isnan(found.scores).tolist() == [j in {1, 4} for j in range(N)]
    torch.testing.assert_close(found.scores, expected, equal_nan=True)


@pytest.mark.parametrize("estimator", ["exact", "midpoint"])
def test_what_thaws_or_is_hooked_after_a_proof_is_seen(estimator):
    model = Net()
    model.body.requires_grad_(requires_grad=False)
    validation, training = data(9), data(N)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    curator = lai_torch.Curator(model, LOSS, optimizer, validation, estimator=estimator, refresh=100)

    def check():
        report = curator.score(*training)[1]
        torch.testing.assert_close(report.scores, by_autograd(model, validation, training))
        return report.method

    assert check() == check() == "forward"
    model.body.requires_grad_(requires_grad=True)
    assert check() == "forward"
    model.body.weight.register_hook(lambda gradient: gradient * 0.5)
    if estimator == "midpoint":  # its direction is made anew, by gradients that are hooked
        assert check() == "double backward"


def test_one_way_alone_is_taken_on_request():
    sides = data(9), data(N)
    model = Net()
    found = [lai_torch.exact_scores(model, LOSS, *sides, method=way, explain=True) for way in WAYS]
    assert [each.method for each in found] == list(WAYS)
    for each in found:
        torch.testing.assert_close(each.scores, found[0].scores)


WAYS = ("forward", "double backward", "reverse")


@pytest.mark.parametrize("wrong", ["scale", "one sample", "order", "nothing"])
def test_a_way_that_is_wrong_is_not_taken(wrong, monkeypatch):
    def broken(function, direction, batch):
        scores, losses = directional.forward(function, direction, batch)
        if wrong == "one sample":
            return torch.where(torch.arange(len(scores)) == 2, scores * (1 + 1e-8), scores), losses
        changed = {"scale": scores * (1 + 1e-8), "order": scores.roll(1), "nothing": torch.zeros_like(scores)}
        return changed[wrong], losses

    model, validation, training = Net(), data(9), data(N)
    monkeypatch.setitem(directional.METHODS, "forward", broken)
    found = lai_torch.exact_scores(model, LOSS, validation, training, explain=True)
    torch.testing.assert_close(found.scores, by_autograd(model, validation, training))
    assert found.method == "double backward"
    assert found.reason.startswith("forward: off by ")


def test_a_force_on_the_inputs_is_scored_and_is_nobodys_parameter():
    class Force(Net):
        def forward(self, inputs):
            place = inputs.detach().requires_grad_()
            energy = super().forward(place).tanh().sum()
            return torch.autograd.grad(energy, place, create_graph=True)[0][:, :3]

    model, validation, training = Force(), data(9), data(N)
    found = lai_torch.exact_scores(model, LOSS, validation, training, explain=True)
    torch.testing.assert_close(found.scores, by_autograd(model, validation, training))
    assert found.method == "double backward"
