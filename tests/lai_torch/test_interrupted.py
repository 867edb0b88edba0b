"""A step that is interrupted, wherever it is, leaves everything as before it, or as after it."""

import contextlib
import copy
import linecache
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import lai_torch
import pytest
import torch
from lai_torch._curation.undo import BUDGET, STEPPING
from lai_torch._model.preserve import ALONE
from torch import nn

from tests.lai_torch.support import HALF, LOSS, data

FOLDERS = (str(Path(lai_torch.__file__).parent), str(Path(torch.optim.__file__).parent))
POINTS = 24
"""How many points of a step to interrupt, evenly spread."""


@pytest.fixture(autouse=True)
def _lock_given_back() -> Iterator[None]:
    """Give back the lock that tracing kept: it may raise at the end of a `with`, where no signal can."""
    yield
    with contextlib.suppress(RuntimeError):  # raised once this thread does not hold it
        while True:
            ALONE.release()


class Interrupted:
    """Raises at one line of the curator's code or the optimizer's, counted from the start of the block.

    Not at the end of a `with`, which is traced as its first line once more: an error there leaves the context
    open, where a signal, for which Python looks between other instructions, lets it be left first.
    """

    def __init__(self, at=None):
        self.at, self.lines, self.raised = at, 0, False

    def __enter__(self):
        sys.settrace(self._called)
        return self

    def __exit__(self, *_):
        sys.settrace(None)

    def _called(self, frame, event, argument):
        if not frame.f_code.co_filename.startswith(FOLDERS):
            return None
        entered = set()

        def line(frame, event, argument):
            if event != "line" or self.raised:
                return line
            if linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with "):
                if frame.f_lineno in entered:
                    return line
                entered.add(frame.f_lineno)
            self.lines += 1
            if self.lines == self.at:
                self.raised = True
                raise KeyboardInterrupt
            return line

        return line


CASES = {
    "lai, adam": ({}, torch.optim.Adam),
    "ghost, momentum": ({"estimator": "ghost"}, torch.optim.SGD),
    "preconditioned, whole": ({"estimator": "preconditioned_lai", "backward": "whole"}, torch.optim.Adam),
    "sketched, accumulated": ({"estimator": lai_torch.LAI(sketch=2), "accumulate": 2}, torch.optim.SGD),
    "share, auto": ({"share": 0.5, "backward": "auto"}, torch.optim.Adam),
    "exact": ({"estimator": "exact"}, torch.optim.SGD),
    "scaled": ({"backward": lai_torch.Kept(scaler=torch.amp.GradScaler("cpu"))}, torch.optim.SGD),
}


def started(name):
    """Return model, optimizer and curator after one step, and the batch of the next."""
    torch.manual_seed(3)
    options, kind = CASES[name]
    norm = nn.Identity() if options.get("backward") in {"whole", "auto"} else nn.BatchNorm1d(8)
    model = nn.Sequential(nn.Linear(4, 8), norm, nn.ReLU(), nn.Linear(8, 3)).double()
    settings = {"lr": 0.1, "momentum": 0.9} if kind is torch.optim.SGD else {"lr": 0.01}
    optimizer = kind(model.parameters(), **settings)
    curator = lai_torch.Curator(
        model, LOSS, optimizer, data(9), policy=HALF, refresh=1, **copy.deepcopy(options)
    )
    curator.step(*data(6))
    return model, optimizer, curator, data(6)


def everything(model, optimizer, curator):
    """Return all that a step may change, written out."""
    updater = curator._updater
    gradients = [parameter.grad for parameter in model.parameters()]
    held = gradients if updater.batches else None  # others are of no use to a later step
    states = model.state_dict(), optimizer.state_dict(), curator.state_dict()
    return repr(plain((*states, updater.batches, updater.contributions, held)))


def plain(tree):
    """Return nested containers with lists for tensors."""
    if isinstance(tree, torch.Tensor):
        return tree.tolist()
    if isinstance(tree, dict):
        return {key: plain(value) for key, value in tree.items()}
    return [plain(part) for part in tree] if isinstance(tree, list | tuple) else tree


@pytest.mark.parametrize("name", CASES)
def test_an_interrupted_step_did_not_happen_or_did(name):
    *parts, batch = started(name)
    before = everything(*parts)
    with Interrupted() as counted:
        parts[2].step(*batch)
    after = everything(*parts)
    assert before != after
    assert counted.lines > POINTS
    broken, undone = [], 0
    for at in sorted({1 + index * (counted.lines - 1) // (POINTS - 1) for index in range(POINTS)}):
        *parts, batch = started(name)
        with Interrupted(at) as interrupted, contextlib.suppress(KeyboardInterrupt):
            parts[2].step(*batch)
        if interrupted.raised:
            found = everything(*parts)
            undone += found == before
            if found not in (before, after):
                broken.append(at)
            assert all(module.training for module in parts[0].modules())
    assert not broken
    assert undone > POINTS // 2


@pytest.mark.parametrize("backward", ["kept", "whole"])
def test_a_failed_backward_leaves_the_gradients_of_earlier_batches(backward):
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    options = {"accumulate": 2, "backward": backward, "policy": HALF}
    curator, first, second = lai_torch.Curator(model, LOSS, optimizer, data(9), **options), data(6), data(6)
    curator.step(*first)
    earlier = [parameter.grad.clone() for parameter in model.parameters()]

    def fails(gradient):
        raise RuntimeError("broken")

    hook = model[0].weight.register_hook(fails)
    with pytest.raises(RuntimeError, match="broken"):
        curator.step(*second)
    hook.remove()
    for parameter, gradient in zip(model.parameters(), earlier, strict=True):
        assert torch.equal(parameter.grad, gradient)
    assert curator.steps == 1
    assert curator.step(*second).updated


def test_after_an_optimizer_that_raises_the_next_step_is_no_longer_than_it_should_be():
    def broken(*_):
        raise RuntimeError("broken")

    def stepped(fails):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).double()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        curator, batch = lai_torch.Curator(model, LOSS, optimizer, data(9), policy=HALF), data(6)
        if fails:
            hook = optimizer.register_step_pre_hook(broken)
            with pytest.raises(RuntimeError, match="broken"):
                curator.step(*batch)
            hook.remove()
        curator.step(*batch)
        return model.state_dict()

    torch.testing.assert_close(stepped(True), stepped(False), rtol=0, atol=0)


@pytest.mark.parametrize("more", [0, 1])
def test_an_optimizer_that_raises_halfway_is_undone_up_to_the_size_that_the_guide_states(more):
    torch.manual_seed(0)
    guide = Path(__file__).parents[2] / "docs" / "guide" / "how-a-step-runs.md"
    stated = f"{BUDGET // 2**20} MiB"
    assert stated in guide.read_text(encoding="utf-8")
    assert stated in lai_torch.Curator.step.__doc__
    assert stated in STEPPING
    model = nn.Linear(BUDGET // 32 + more, 4, bias=False).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.randn(4, model.in_features).double(), torch.arange(4)
    curator = lai_torch.Curator(model, LOSS, optimizer, batch, policy=HALF)
    before = model.weight.detach().clone()
    hook = optimizer.register_step_post_hook(lambda *_: [][0])
    with pytest.raises(IndexError) as raised:
        curator.step(*batch)
    hook.remove()
    assert torch.equal(model.weight, before) == (not more)
    assert getattr(raised.value, "__notes__", []) == [STEPPING] * more


def test_what_is_too_large_to_copy_is_not_copied(monkeypatch):
    monkeypatch.setattr("lai_torch._curation.undo.BUDGET", 0)
    *parts, batch = started("lai, adam")
    before = parts[0].state_dict()["0.weight"].clone()
    parts[2].step(*batch)
    assert not torch.equal(parts[0].state_dict()["0.weight"], before)


def test_a_signal_while_a_large_optimizer_steps_comes_after_the_step(monkeypatch):
    monkeypatch.setattr("lai_torch._curation.undo.BUDGET", 0)
    *parts, batch = started("lai, adam")
    parts[2].step(*batch)
    expected = everything(*parts)
    *parts, batch = started("lai, adam")
    # A shell starts what runs in the background with SIGINT ignored, and python leaves it so.
    handler = signal.default_int_handler
    before = signal.signal(signal.SIGINT, handler)
    hook = parts[1].register_step_pre_hook(lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        with pytest.raises(KeyboardInterrupt):
            parts[2].step(*batch)
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)
    hook.remove()
    assert everything(*parts) == expected


def test_an_optimizer_that_fails_on_what_is_too_large_to_copy_says_what_it_left(monkeypatch):
    monkeypatch.setattr("lai_torch._curation.undo.BUDGET", 0)
    *parts, batch = started("lai, adam")
    hook = parts[1].register_step_post_hook(lambda *_: [][0])
    with pytest.raises(IndexError) as raised:
        parts[2].step(*batch)
    hook.remove()
    assert "may have changed and were not put back" in raised.value.__notes__[0]
