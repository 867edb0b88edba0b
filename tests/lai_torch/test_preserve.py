"""What a forward pass writes is put back, whatever scores it; a batch that it writes is refused."""

import copy
import pickle
import random
import threading

import lai_torch
import numpy as np
import pytest
import torch
from torch import nn

from tests.lai_torch.support import LOSS, curated, data, plain
from tests.support.torch_modules import held, holding

N = 6
CALLS = {
    "trace": lambda model, loss, batch: lai_torch.trace(model, loss, *batch),
    "trace of all": lambda model, loss, batch: lai_torch.trace(model, loss, *batch, gradients="all"),
    "coverage": lambda model, loss, batch: lai_torch.coverage(model, loss, *batch),
    "selfcheck": lambda model, loss, batch: lai_torch.selfcheck(model, loss, *batch),
    "exact": lambda model, loss, batch: lai_torch.exact_scores(model, loss, batch, batch),
    **{
        f"curator, {name}": lambda model, loss, batch, name=name: lai_torch.Curator(
            model, loss, None, batch, estimator=name
        ).score(*batch)
        for name in ("lai", "ghost", "exact", "calibrated_lai")
    },
}


def counting(own):
    """Write two buffers, one of them unseen by autograd's counters."""
    own.calls += 1
    own.hidden.data.add_(1)


@holding(
    lambda: held(
        body=nn.Linear(4, 8),
        head=nn.Linear(8, 3),
        calls=torch.zeros(3),
        hidden=torch.zeros(3),
        stream=torch.Generator(),
    )
)
def written(own, inputs):
    """Write buffers, and draw from every stream; of normal numbers, each second one waits."""
    counting(own)
    drawn = float(torch.rand(()) + torch.rand((), generator=own.stream)) + random.gauss(0.0, 1.0)
    return own.head(torch.tanh(own.body(inputs)) + 0 * (drawn + np.random.standard_normal()))  # noqa: NPY002


@holding(lambda: held(calls=torch.zeros(3), hidden=torch.zeros(3)))
def make_running(own, outputs, targets):
    counting(own)
    return LOSS(outputs, targets)


def streams(model):
    """Return where streams are; of Python's, what waits, since beartype draws from it in tests."""
    numbers = np.random.get_state(legacy=False)  # noqa: NPY002 # the global stream is meant
    drawn = torch.get_rng_state(), model.stream.get_state()
    return random.getstate()[2], pickle.dumps(numbers), plain(drawn)


@pytest.mark.parametrize("name", CALLS)
def test_buffers_and_streams_are_restored(name):
    model, loss, batch = written().double(), make_running().double(), data(N)
    before = streams(model)
    CALLS[name](model, loss, batch)
    assert streams(model) == before
    assert not any(bool(own.calls.any() | own.hidden.any()) for own in (model, loss))


def test_late_written_parameters_are_named():
    class Late(nn.Linear):
        late = False

        def forward(self, inputs):
            if self.late:
                with torch.no_grad():
                    self.weight.mul_(0.5)
            return super().forward(inputs)

    model, batch = Late(4, 3).double(), data(N)
    lai_torch.trace(model, LOSS, *batch)
    model.late = True
    with pytest.raises(ValueError, match="a forward pass wrote parameter 'weight', as none before it did"):
        lai_torch.trace(model, LOSS, *batch)
    before = model.weight.detach().clone()
    with pytest.raises(ValueError, match="leaves parameters as they are, got one that writes 'weight'"):
        lai_torch.trace(model, LOSS, *batch)
    assert torch.equal(model.weight, before)


def test_second_threads_are_refused():
    model, inside, found = nn.Linear(4, 3).double(), [], []

    def scored():
        try:
            found.append(lai_torch.trace(model, LOSS, *data(N)))
        except RuntimeError as error:
            inside.append(str(error))

    def in_a_thread(*_):
        thread = threading.Thread(target=scored)
        thread.start()
        thread.join()

    hook = model.register_forward_hook(in_a_thread)
    lai_torch.trace(model, LOSS, *data(N))
    hook.remove()
    assert inside
    assert not found
    assert all("expected one thread at a time to score or train, got a second one" in one for one in inside)
    in_a_thread()
    assert len(found) == 1


@holding(lambda: held(body=nn.Linear(4, 5), head=nn.Linear(5, 3), inputs=False, targets=False))
def scaling(own, inputs):
    """Scale inputs in place where told to, as the loss does targets."""
    return own.head(torch.tanh(own.body(inputs.mul_(0.5) if own.inputs else inputs)))


@pytest.mark.parametrize("side", ["inputs", "targets"])
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    "options",
    [{"estimator": name} for name in ("lai", "ghost", "exact", "midpoint")]
    + [{"backward": "whole"}, {"backward": "selective"}],
)
def test_written_batches_are_refused(options, late, side):
    model = scaling().double()

    def loss(outputs, targets):
        return LOSS(outputs, targets.add_(1).remainder_(3) if model.targets else targets)

    curator = curated(model, data(5), loss, **options)
    if late:
        curator.step(*data(N))
    setattr(model, side, True)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match=r"inputs, targets: expected .* leave the batch as it is, .*clone"):
        curator.step(*data(N))
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)


@pytest.mark.parametrize("estimator", ["lai", "ghost", "exact"])
def test_losses_may_pop_targets(estimator):
    def loss(outputs, targets):
        return LOSS(outputs, targets.pop("classes")[0])

    sides = [(inputs, {"classes": [targets] * 2, "names": ["a"]}) for inputs, targets in (data(5), data(N))]
    curator = curated(nn.Linear(4, 3).double(), sides[0], loss, estimator=estimator)
    for _ in range(3):
        assert curator.step(sides[1][0], dict(sides[1][1])).scores.isfinite().all()
    assert sides[0][1].keys() == {"classes", "names"}


def test_changed_modes_are_put_back():
    @holding(lambda: held(body=nn.Linear(4, 5).eval(), head=nn.Linear(5, 3)))
    def unsettled(own, inputs):
        own.body.train()
        return own.head(torch.tanh(own.body(inputs)))

    model = unsettled().double()
    for score in (
        lambda: curated(model, data(5)).score(*data(N)),
        lambda: lai_torch.trace(model, LOSS, *data(N)),
        lambda: lai_torch.exact_scores(model, LOSS, data(5), data(N)),
    ):
        score()
        assert [module.training for module in model.modules()] == [True, False, True]
