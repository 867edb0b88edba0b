"""Every way of the backward pass takes one step: on kept rows, on the pass that scored, by a graph."""

import copy
import functools
import itertools
import time

import lai_torch
import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.utils._pytree import tree_map

import lai_core as lai
from tests.lai_torch.followed import FOLLOWED, PARTS, N, body, layered
from tests.lai_torch.support import LOSS, batch, curated, data
from tests.support.torch_modules import Part
from tests.support.workloads.counts import counted
from tests.support.workloads.torch_oracle import called, exact_kernel, per_sample_gradients
from tests.support.workloads.torch_parts import doubled
from tests.support.workloads.torch_training import MODELS, SAMPLES

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'")  # which torch says once a process
WAYS = "kept", "whole", "selective"


def compilations():
    return counters["stats"]["unique_graphs"]


def first(n, leaf):
    return leaf[:n] if torch.is_tensor(leaf) else leaf


def stepped(case, source, sizes, backward, estimator):
    """Take steps on so many rows, of which so many are kept; return all that they found and left behind."""
    case, kept, found = copy.deepcopy(case), 0, []
    validation = (case.inputs, case.targets.flip(0)) if source == "set" else source
    curator = curated(
        case.model,
        validation,
        case.loss,
        estimator=estimator,
        backward=backward,
        policy=lambda scores: lai.keep_top(scores, kept / len(scores)),
    )
    for n, kept in sizes:
        report = curator.step(*tree_map(functools.partial(first, n), [case.inputs, case.targets]))
        assert report.kept == kept
        assert report.backward == ("kept" if (n, backward) == (1, "selective") else backward)
        found += [report.scores, torch.tensor(report.loss)]
    gradients = [one.grad.data_ptr() for one in case.model.parameters() if one.grad is not None]
    assert len(set(gradients)) == len(gradients)
    return [*found, *(one.detach() for one in case.model.parameters())]


FOLLOWED |= {f"model: {name}": functools.partial(MODELS[name], N) for name in ("gpt2", "encoder", "lora")}
TOKENS = f"parts: {PARTS['last']}"
CASES = [*((name, "set") for name in FOLLOWED), *((name, "batch") for name in (TOKENS, "counting"))]
NOT_WHOLE = {f"parts: {PARTS['normed']}", "model: gpt2", "model: lora"}
"""Models with derived, tied or mostly frozen weights, which the whole way refuses."""


@pytest.mark.parametrize(("name", "source"), CASES)
def test_every_way_takes_the_masked_step(name, source):
    torch.manual_seed(0)
    case, sizes = doubled(FOLLOWED[name]()), [(N, 3), (N, 1), (N, N), (N - 2, 2), (1, 1), (N, 3)]
    sizes = sizes if source == "set" else sizes[:4]  # a batch of one is not scored without itself
    ways = [way for way in WAYS if way != "whole" or name not in NOT_WHOLE]
    found = [stepped(case, source, sizes, way, lai_torch.LAI(positions="mean")) for way in ways]
    for values in found[1:]:
        torch.testing.assert_close(values, found[0], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "lora"])  # its head is frozen: no LLI
def test_selective_steps_cost_two_thirds(name):
    """Of a plain step's operations, the products in scores aside; what they leave is the masked gradient."""
    case = doubled(MODELS[name](SAMPLES))
    model, loss, *batch = case.model.train(), case.loss, case.inputs, case.targets
    trained = [one for one in model.parameters() if one.requires_grad]
    trace, told = lai_torch.trace(model, loss, *batch), torch.rand(SAMPLES) * (torch.arange(SAMPLES) % 2)
    summary, before = lai.summarize(trace, "lli"), compilations()
    options = {"estimator": "lli", "policy": lambda scores: told[: len(scores)], "backward": "selective"}
    curator = curated(model, summary, loss, lr=0.0, **options)

    def masked(inputs, targets):
        losses = loss(called(model, inputs), targets)
        total = (losses * told[: len(losses)]).sum()
        expected.extend(torch.autograd.grad(total, trained, materialize_grads=True))

    for n in (SAMPLES, 7, SAMPLES):
        given, expected = tree_map(functools.partial(first, n), batch), []
        state = torch.get_rng_state()
        taken = counted(functools.partial(curator.step, *given)).flops
        torch.set_rng_state(state)  # of dropout
        plain = counted(functools.partial(masked, *given)).flops
        found = [torch.zeros_like(one) if one.grad is None else one.grad for one in trained]
        bound = 1e-12 * max(float(one.abs().max()) for one in expected)
        torch.testing.assert_close(found, expected, rtol=0, atol=bound)
    assert compilations() - before == 1
    assert taken - counted(lambda: lai.lli_scores(summary, trace)).flops < 0.74 * plain


@pytest.mark.parametrize("name", [name for name in FOLLOWED if name.startswith("last: ")])
def test_last_convolutions_are_exact(name):
    case = doubled(FOLLOWED[name]())
    model, *batch = case.model, case.loss, case.inputs, case.targets
    trace = lai_torch.trace(model, *batch, gradients="all")
    close = functools.partial(torch.testing.assert_close, rtol=1e-11, atol=1e-13)
    close(lai.ghost_kernel(trace, trace), exact_kernel(model, *batch, N))
    if "shared" in name:
        return
    last = lai.Trace(lai_torch.trace(model, *batch).layers[-1:])
    model.part.requires_grad_(requires_grad=False)
    gradients = per_sample_gradients(model, *batch, N)
    # LAI reads groups of channels as one
    whole = () if "grouped" in name else (lai.lai_kernel,)
    for kernel in (*whole, lai.ghost_kernel, lai.lli_kernel):
        close(kernel(last, last), gradients @ gradients.T)


def test_lengths_use_up_no_compilations():
    """A second length is compiled once more."""
    model = nn.Sequential(nn.Embedding(11, 4), body(lambda own, h: layered(own, h.mean(1)))).double()
    twin, ids, before = copy.deepcopy(model), (torch.randint(11, (8, 5)), torch.arange(8) % 3), compilations()
    curators = [curated(one, ids, backward=way) for one, way in ((model, "kept"), (twin, "selective"))]
    for n, length in ((8, 5), (8, 6), (7, 9), (8, 8), (5, 8), (8, 3)):
        given = torch.randint(11, (n, length)), torch.arange(n) % 3
        torch.testing.assert_close(*(curator.step(*given).scores for curator in curators))
    assert compilations() - before == 2


@pytest.mark.parametrize("last", ["left", "right"])
def test_the_named_final_layer_is_read(last):
    given, left, right = batch(6, 4), nn.Linear(4, 3), nn.Linear(4, 3)
    model = Part(lambda own, x: own.left(x) + own.right(x).tanh(), left=left, right=right).double()
    trace = lai_torch.trace(model, LOSS, *given, last=last)
    found = []
    for way in ("kept", "selective"):
        twin = copy.deepcopy(model)
        curator = curated(twin, given, estimator=lai_torch.LAI(last=last), backward=way)
        found.append([curator.step(*given).scores, *twin.parameters()])
    torch.testing.assert_close(found[0][0], lai.lai_scores(trace, trace))
    ghost = curated(model, given, estimator="ghost").score(*given)[1].scores  # which needs no last layer
    torch.testing.assert_close(ghost, exact_kernel(model, LOSS, *given, 6).sum(0))
    for other in found[1:]:
        torch.testing.assert_close(other, found[0])


def chain(*between):
    return nn.Sequential(nn.Conv1d(2, 4, 3), *between, nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)).double()


ALL, HALF, MOST = (functools.partial(lai.keep_top, fraction=share) for share in (1.0, 0.5, 0.6))


TRACED = ("ghost", "lai", "lli", "preconditioned_lai", "calibrated_lai", "gate_lai")


@pytest.mark.parametrize("estimator", TRACED)
@pytest.mark.parametrize("backward", ["whole", "auto"])
def test_one_pass_is_two(estimator, backward):
    """The batches are drawn between the steps, so that these may draw nothing themselves."""
    found = {}
    for way in ("kept", backward):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)).double()
        curator = curated(model, data(6), estimator=estimator, backward=way, policy=HALF)
        scores = [curator.step(*data(8)).scores for _ in range(3)]
        found[way] = [*scores, *(one.detach() for one in model.parameters())]
    for one, other in zip(*found.values(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def timed(monkeypatch, kept, whole):
    """Let the clock say that a step of each pass takes so long."""
    lengths = itertools.cycle([0.0, kept, 0.0, whole])
    times = itertools.accumulate(lengths)
    monkeypatch.setattr(time, "perf_counter", lambda: next(times))


@pytest.mark.parametrize(("kept", "whole", "chosen"), [(1.0, 2.0, "kept"), (2.0, 1.0, "whole")])
def test_auto_stays_with_the_faster(kept, whole, chosen, monkeypatch):
    model, validation, given = chain(), batch(20, 2, 6), batch(9, 2, 6)
    timed(monkeypatch, kept, whole)
    curator = curated(model, validation, policy=MOST, backward="auto")
    assert curator.score(*given)[1].backward == "kept"
    assert [curator.step(*given).backward for _ in range(3)] == ["kept", "whole", "kept"]
    resumed = curated(model, validation, policy=MOST, backward="auto")
    resumed.load_state_dict(curator.state_dict())
    timed(monkeypatch, whole, kept)  # its next step is the other pass's
    found = [resumed.step(*given).backward for _ in range(7)]
    assert found == ["whole", "kept", "whole", "kept", "whole", chosen, chosen]
    again = curated(model, validation, policy=MOST, backward="auto")
    again.load_state_dict(resumed.state_dict())
    assert again.step(*given).backward == chosen


@pytest.mark.parametrize("part", [nn.Dropout(0.5), nn.BatchNorm1d(4)])
def test_auto_keeps_to_eval_scores(part):
    model, given = chain(part), batch(9, 2, 6)
    curator = curated(model, given, policy=ALL, backward="auto")
    assert [curator.step(*given).backward for _ in range(10)] == ["kept"] * 10


def test_one_row_that_draws_is_kept():
    """What it draws beside a copy of itself is not what trains."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 20), nn.Dropout(0.5), nn.Linear(20, 3)).double()
    curator = curated(model, data(9), policy=ALL, backward="whole")
    assert [curator.step(*data(n)).backward for n in (4, 1, 2)] == ["whole", "kept", "whole"]
