"""A pass that goes by the plan of an earlier one gives what a full recording gives, to the last bit."""

import copy

import pytest
import torch
from lai_torch._curation.scorers.tracer import Tracer
from lai_torch._recording.watching.plan import Plans
from torch import nn

from tests.lai_torch.support import LOSS
from tests.support.torch_modules import held, holding
from tests.support.torch_programs import program

PROGRAMS = range(24)


class Unplanned(Plans):
    """Keeps no plan, so that every pass is recorded in full."""

    def put(self, key, plan):
        del key, plan


class Counted(Plans):
    """Counts the plans that passes are given."""

    given = 0

    def get(self, key, known):
        found = super().get(key, known)
        self.given += found is not None
        return found


def pair(model, loss):
    """Return a tracer that plans and one that does not, of two models alike."""
    return planned_and_not(Tracer(model, loss), Tracer(copy.deepcopy(model), loss))


def planned_and_not(*tracers):
    tracers[0]._plans, tracers[1]._plans = Counted(), Unplanned()
    return tracers


def said(tracer, batch, positions):
    """Return all numbers of a trace, or what it raised."""
    try:
        trace, losses = tracer(batch, positions)
    except (ValueError, RuntimeError) as error:
        return type(error), str(error)
    layers = [(one.name, one.activations, one.output_gradients, one.bias) for one in trace.layers]
    return losses, layers


def same(first, second):
    """Whether two results are the same, bit for bit."""
    if isinstance(first, torch.Tensor):
        return isinstance(second, torch.Tensor) and torch.equal(first.nan_to_num(7.5), second.nan_to_num(7.5))
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(same, first, second))
    return first == second


@pytest.mark.filterwarnings("ignore")
def test_random_programs_give_what_full_recordings_give():
    planned = 0
    for seed in PROGRAMS:
        alike = program(seed), program(seed)
        tracers = planned_and_not(*(Tracer(one.model.eval(), one.loss) for one in alike))
        for step in range(4):
            found = [said(tracer, alike[0].training, "mean" if step else None) for tracer in tracers]
            assert same(*found), seed
            if found[0][0] is ValueError:
                break
        planned += tracers[0]._plans.given
    assert planned > len(PROGRAMS) // 2


@holding(
    lambda ways, decide: held(
        ways=nn.ModuleList(ways), decide=decide, first=nn.Linear(4, 4), head=nn.Linear(4, 3)
    )
)
def routed(own, inputs):
    """Go one way or the other by the values it meets."""
    hidden = own.first(inputs)
    way = own.ways[int(own.decide(inputs))]
    return own.head(way(hidden))


@holding(lambda: held(weight=nn.Parameter(torch.randn(4, 4))))
def scaled(own, hidden):
    """Apply the same function as a layer's, without a bias."""
    return nn.functional.linear(hidden, own.weight)


ROUTES = {
    "another layer": [nn.Linear(4, 4), nn.Linear(4, 4)],
    "another function": [nn.Linear(4, 4), nn.Tanh()],
    "another depth": [nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))],
    "no bias": [nn.Linear(4, 4), scaled()],
    "as many functions": [
        nn.Sequential(nn.Linear(4, 4), nn.ReLU()),
        nn.Sequential(nn.ReLU(), nn.Linear(4, 4)),
    ],
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ROUTES)
def test_a_model_that_goes_another_way_is_recorded_in_full(name):
    torch.manual_seed(0)
    model = routed(copy.deepcopy(ROUTES[name]), lambda inputs: inputs[0, 0] > 0).eval()
    tracers = pair(model, LOSS)
    targets = torch.tensor([0, 1, 2, 0, 1])
    for sign in (-1, -1, -1, 1, 1, 1, -1, 1):  # the same of every sample, which are not coupled by it
        batch = torch.cat([torch.full((5, 1), float(sign)), torch.randn(5, 3)], 1), targets
        found = [said(tracer, batch, "mean") for tracer in tracers]
        assert not isinstance(found[1][0], type), found[1]
        assert same(*found)
    assert tracers[0]._plans.given >= 2
