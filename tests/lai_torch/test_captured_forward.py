"""A scoring pass that runs as a graph gives what a full recording gives, whatever changes in between."""

import copy
import functools
import gc
import random
import weakref

import lai_torch
import pytest
import torch
from lai_torch._curation.scorers.tracer import Tracer
from lai_torch._recording import averaging
from torch import nn
from torch.nn import functional

import lai_core as lai
from tests.lai_torch.support import LOSS
from tests.lai_torch.test_plan import Unplanned, said, same
from tests.lai_torch.test_stale_proofs import (
    CLASSES,
    COUPLED,
    SAMPLES,
    UNCOUPLED,
    WIDTH,
    Net,
    batch,
    coupling,
)
from tests.support.torch_programs import program

pytestmark = pytest.mark.filterwarnings("ignore")
STEPS = 4
"""The first pass proves, the second makes a plan, the third captures, and those behind run the graph."""


@pytest.fixture(autouse=True)
def _forgotten():
    """Keep no compiled code of other tests: a process keeps a limited number of one function."""
    yield
    torch._dynamo.reset()


def ran(tracer):
    """Return how many graphs a tracer's plans hold."""
    return sum(plan is not None and plan.forward is not None for plan in tracer._plans._plans.values())


def beside(model, **options):
    """Return a tracer that captures and one that records each pass in full, of two models alike."""
    tracers = Tracer(model, LOSS, captured=True, **options), Tracer(copy.deepcopy(model), LOSS, **options)
    tracers[1]._plans = Unplanned()
    return tracers


def test_random_programs_give_what_full_recordings_give():
    captured = seed = 0
    while captured < 5:
        alike = program(seed), program(seed)
        tracers = [Tracer(one.model.eval(), one.loss, captured=place == 0) for place, one in enumerate(alike)]
        tracers[1]._plans = Unplanned()
        for step in range(STEPS + 1):
            found = [said(tracer, alike[0].training, "mean" if step else None) for tracer in tracers]
            if found[0][0] is ValueError and "captured: expected" in found[0][1]:
                break
            assert same(*found), (seed, step)
            if found[0][0] is ValueError:
                break
        captured += ran(tracers[0])
        seed += 1


@pytest.mark.parametrize("seed", range(8))
def test_whatever_changes_between_steps_a_trace_is_that_of_a_full_recording(seed):
    rng = random.Random(seed)  # no secret
    torch.manual_seed(seed)
    net = Net(*(UNCOUPLED[name] for name in rng.sample(sorted(UNCOUPLED), 2))).eval()
    tracers = beside(net)
    captured = 0
    for step in range(12):
        if step > 4 and rng.random() < 0.5:
            net.flags[rng.randrange(2)] ^= 1
        tracers[1].model.flags = net.flags
        found = [said(tracer, batch(step), "mean" if step else None) for tracer in tracers]
        assert same(*found), step
        captured += ran(tracers[0])
    assert captured > 2


@pytest.mark.parametrize("where", ["model", "loss", "hook"])
@pytest.mark.parametrize("name", COUPLED)
def test_what_begins_to_couple_samples_is_refused_when_it_does(name, where):
    net, loss, flag = coupling(name, where)
    tracer = Tracer(net, loss, captured=True)
    for step in range(STEPS):
        tracer(batch(step), "mean" if step else None)
    assert ran(tracer)
    flag[0] = 1
    with pytest.raises(ValueError, match=r"couple|statistics of the batch"):
        tracer(batch(STEPS), "mean")


def another_parameter(net):
    net.second.weight = nn.Parameter(torch.randn(WIDTH, WIDTH, dtype=torch.float64))


def tied(net):
    net.second.weight = net.first.weight


def hooked(net):
    net.second.register_forward_hook(lambda *args: 2.0 * args[2])


def shared(net):
    net.second = net.first


def frozen(net):
    net.second.requires_grad_(requires_grad=False)


def number(net):
    net.factor = 0.5


def constant(net):
    net.constant = torch.zeros_like(net.constant)


def method(net):
    net.second.forward = lambda hidden: functional.linear(hidden, net.second.weight) * 3.0


def trained(net):
    with torch.no_grad():
        net.second.weight.mul_(2.0)


def reordered(net):
    net.order.reverse()


def numbered(net):
    net.factor += 0.25


CHANGES = [another_parameter, tied, hooked, shared, frozen, number, constant, method, trained, reordered]


@pytest.mark.parametrize("changes", [*((change,) for change in CHANGES), (number, numbered, hooked)])
def test_a_graph_is_that_of_the_model_as_it_is_now(changes):
    torch.manual_seed(0)
    net = Net(lambda net, hidden, _: net.second(hidden) * (1.0 + net.factor) + hidden @ net.constant).eval()
    net.places = (*net.places, lambda net, hidden, _: functional.linear(hidden, net.order[0]))
    net.extra = nn.Parameter(torch.randn(WIDTH, WIDTH, dtype=torch.float64))
    net.order, net.flags = [net.third.weight, net.extra], [0, 0]
    tracers = beside(net)
    for step in range(STEPS * (1 + len(changes))):
        if step and step % STEPS == 0:
            assert ran(tracers[0])
            for tracer in tracers:
                torch.manual_seed(1)
                changes[step // STEPS - 1](tracer.model)
        found = [said(tracer, batch(step), "mean" if step else None) for tracer in tracers]
        assert same(*found), step
    assert ran(tracers[0])


def test_a_curated_run_is_the_same_with_graphs():
    nets = []
    for captured in (True, False):
        torch.manual_seed(0)
        net = Net(UNCOUPLED["another layer"], UNCOUPLED["a scale"])
        optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
        estimator = lai_torch.LAI(captured=captured)
        curator = lai_torch.Curator(
            net,
            LOSS,
            optimizer,
            batch(9),
            estimator=estimator,
            policy=functools.partial(lai.keep_top, fraction=0.5),
            refresh=2,
        )
        nets.append([*(curator.step(*batch(step)).scores for step in range(8)), *net.parameters()])
    assert all(map(torch.equal, *nets))


def test_a_language_models_last_layer_is_averaged_as_without_a_graph(monkeypatch):
    monkeypatch.setattr(averaging, "FEWEST", 0)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(CLASSES, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES))
    tracers = [Tracer(copy.deepcopy(net), _by_token, captured=captured) for captured in (True, False)]
    for step in range(2 * STEPS):
        ids = torch.randint(CLASSES, (SAMPLES, 6), generator=torch.Generator().manual_seed(step))
        found = [said(tracer, (ids, ids), "mean" if step else None) for tracer in tracers]
        assert same(*found), step
    assert ran(tracers[0])
    (plan,) = tracers[0]._plans._plans.values()
    assert plan.averages is torch.float32


def _by_token(outputs, targets):
    losses = functional.cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="none")
    return losses.view(len(targets), -1).mean(1)


class Rounding(nn.Module):
    """Rounds what comes, drops some of it in eval mode, too, and scales by what it is called with."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH).double(), nn.Linear(WIDTH, CLASSES).double()

    def forward(self, inputs, scale):
        hidden = functional.dropout(self.first(inputs).to(torch.float32).double(), 0.5, training=True)
        return self.second(hidden.mT.contiguous().mT * scale)


def test_what_is_left_out_of_a_graph_does_nothing():
    torch.manual_seed(0)
    tracers = beside(Rounding().eval())
    for step in range(3 * STEPS):
        inputs, targets = batch(step)
        scale = 1.0 + step // STEPS
        found = []
        for tracer in tracers:
            torch.manual_seed(step)
            found.append(said(tracer, ((inputs, scale), targets), "mean" if step else None))
        assert same(*found), step
    assert ran(tracers[0])


class Another(nn.Module):
    """Computes its numbers in another way where it is compiled, times a factor."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor
        self.first, self.second = nn.Linear(WIDTH, WIDTH).double(), nn.Linear(WIDTH, CLASSES).double()

    def forward(self, inputs):
        hidden = self.first(inputs)
        hidden = hidden.tanh() * self.factor if torch.compiler.is_compiling() else torch.tanh(hidden)
        return self.second(hidden)


def test_a_graph_that_gives_other_numbers_is_refused_by_name():
    tracer = Tracer(Another(2.0), LOSS, captured=True)
    tracer(batch(0))
    tracer(batch(1), "mean")
    with pytest.raises(
        ValueError, match=r"captured: expected a model whose graph has the model's own layers"
    ):
        tracer(batch(2), "mean")


def test_a_graph_of_other_functions_is_proved_with_its_model():
    tracers = beside(Another(1.0))
    for step in range(2 * STEPS):
        found = [said(tracer, batch(step), "mean" if step else None) for tracer in tracers]
        assert same(*found), step
    assert ran(tracers[0])


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH).double(), nn.Linear(WIDTH, CLASSES).double()

    def forward(self, inputs):
        hidden = self.first(inputs)
        return self.second(hidden if float(inputs.detach().sum()) < 1e9 else -hidden)


def test_a_model_that_does_not_compile_in_one_graph_is_refused_by_name():
    tracer = Tracer(Branching(), LOSS, captured=True)
    tracer(batch(0))
    tracer(batch(1), "mean")
    with pytest.raises(ValueError, match=r"captured: expected a model that compiles in one graph"):
        tracer(batch(2), "mean")


class Counting(Branching):
    """Adds to each sample how many entries of the batch are large."""

    def forward(self, inputs):
        hidden = torch.tanh(self.first(inputs))
        return self.second(hidden + (hidden.abs() > 2.0).nonzero().shape[0])


class Summing(Branching):
    def forward(self, inputs):
        return self.second(self.first(inputs) * (1.0 + 0.0 * inputs.detach().sum().item()))


@pytest.mark.parametrize("kind", [Counting, Summing])
def test_a_number_made_of_values_is_no_part_of_a_graph(kind):
    tracer = Tracer(kind(), LOSS, captured=True)
    tracer(batch(0))
    tracer(batch(1), "mean")
    with pytest.raises(ValueError, match=r"captured: expected a model that compiles in one graph"):
        tracer(batch(2), "mean")


def test_an_error_of_the_model_comes_up_as_it_is():
    net = Net(UNCOUPLED["a scale"]).eval()
    tracer = Tracer(net, LOSS, captured=True)
    for step in range(STEPS):
        tracer(batch(step), "mean" if step else None)
    inputs, targets = batch(0)
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        tracer((inputs[:, :2], targets), "mean")


def test_a_graph_goes_with_its_model():
    net = Net(UNCOUPLED["a scale"]).eval()
    tracer = Tracer(net, LOSS, captured=True)
    for step in range(STEPS):
        tracer(batch(step), "mean" if step else None)
    assert ran(tracer)
    gone = weakref.ref(net)
    del net, tracer
    gc.collect()
    assert gone() is None


def test_dropout_and_buffers_are_as_they_were():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.Dropout(), nn.Linear(WIDTH, CLASSES)
    )
    net = net.double().eval()
    tracers = beside(net)
    before = copy.deepcopy(net.state_dict())
    for step in range(STEPS + 1):
        found = [said(tracer, batch(step), "mean" if step else None) for tracer in tracers]
        assert same(*found)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert ran(tracers[0])


@pytest.mark.parametrize("value", [1, "yes", None])
def test_captured_is_true_or_false(value):
    with pytest.raises(TypeError, match="captured: expected True or False"):
        lai_torch.LAI(captured=value)


def test_batches_of_other_sizes_have_graphs_of_their_own():
    net = Net(UNCOUPLED["another layer"]).eval()
    tracers = beside(net)
    for step in range(3 * STEPS):
        inputs, targets = batch(step)
        size = SAMPLES - step % 2
        found = [
            said(tracer, (inputs[:size], targets[:size]), "mean" if step else None) for tracer in tracers
        ]
        assert same(*found)
    assert ran(tracers[0]) == 2


@pytest.mark.parametrize("backward", ["whole", "auto", "selective"])
def test_a_pass_that_trains_has_no_graph_of_its_own_for_scores(backward):
    net = Net(UNCOUPLED["another layer"])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with pytest.raises(ValueError, match=f"captured: '{backward}' trains on the pass that is scored"):
        lai_torch.Curator(
            net, LOSS, optimizer, batch(9), estimator=lai_torch.LAI(captured=True), backward=backward
        )
