"""A step that raises before its optimizer steps leaves everything as before it; afterwards it says so."""

import copy
import pathlib
import sys

import lai_torch
import pytest
import torch
from lai_torch._model import preserve
from torch import nn

import lai_core as lai
from tests.lai_torch.support import HALF, LOSS, data, network, plain


class FailsAt:
    """Lets functions raise at one of their calls, counted together from the last reset."""

    def __init__(self):
        self.calls, self.at = 0, None

    def before(self, function):
        def called(*given):
            self.calls += 1
            if self.calls == self.at:
                raise KeyboardInterrupt
            return function(*given)

        return called


CASES = {
    "lai, adam": ({}, torch.optim.Adam),
    "ghost, momentum": ({"estimator": "ghost"}, torch.optim.SGD),
    "preconditioned, whole": ({"estimator": "preconditioned_lai", "backward": "whole"}, torch.optim.Adam),
    "sketched, accumulated": ({"estimator": lai_torch.LAI(sketch=2), "accumulate": 2}, torch.optim.SGD),
    "share, auto": ({"validation_fraction": 0.5, "backward": "auto"}, torch.optim.Adam),
    "exact": ({"estimator": "exact"}, torch.optim.SGD),
    "scaled": ({"backward": lai_torch.KeptOptions(scaler=torch.amp.GradScaler("cpu"))}, torch.optim.SGD),
}


def started(name, at=None):
    """Return model, optimizer and curator after one step, what fails, and the batch of the next step."""
    torch.manual_seed(3)
    fails = FailsAt()
    options, kind = CASES[name]
    norm = nn.Identity() if options.get("backward") in {"whole", "auto"} else nn.BatchNorm1d(8)
    model = network(norm)
    settings = {"lr": 0.1, "momentum": 0.9} if kind is torch.optim.SGD else {"lr": 0.01}
    optimizer = kind(model.parameters(), **settings)
    curator = lai_torch.Curator(
        model,
        fails.before(LOSS),
        optimizer,
        data(9),
        policy=fails.before(HALF),
        refresh=1,
        **copy.deepcopy(options),
    )
    curator.step(*data(6))
    fails.calls, fails.at = 0, at
    return model, optimizer, curator, fails, data(6)


def everything(model, optimizer, curator):
    """Return all that a step may change, written out."""
    state, gradients = curator.state, [parameter.grad for parameter in model.parameters()]
    held = gradients if state.batches else None  # others are of no use to a later step
    own = curator.state_dict()
    own["timed"] = len(state.timed)  # by the clock
    states = model.state_dict(), optimizer.state_dict(), own
    return repr(plain((*states, state.batches, state.contributions, held)))


@pytest.mark.parametrize("name", CASES)
def test_steps_that_raise_did_not_happen(name):
    *parts, fails, batch = started(name)
    before = everything(*parts)
    parts[2].step(*batch)
    assert before != everything(*parts)
    assert fails.calls > 2
    for at in range(1, fails.calls + 1):
        *parts, _, batch = started(name, at)
        with pytest.raises(KeyboardInterrupt) as raised:
            parts[2].step(*batch)
        assert everything(*parts) == before
        assert all(module.training for module in parts[0].modules())
        assert not hasattr(raised.value, "__notes__")


@pytest.mark.parametrize("event", ["call", "return"])
@pytest.mark.parametrize("name", CASES)
def test_interrupted_steps_are_whole_or_none(name, event):
    """At calls of the library itself, of which a step has thousands: at some, further on each time."""

    def interrupted(at):
        *parts, _, batch = started(name)
        calls = 0

        def interrupt(frame, happened, _):
            nonlocal calls
            code = frame.f_code
            # what is raised in a generator that is thrown away is lost
            counts = (
                happened == event and code.co_filename.startswith(LIBRARIES) and code.co_name != "<genexpr>"
            )
            calls += counts
            if counts and calls == at:
                sys.setprofile(None)
                raise KeyboardInterrupt

        before = everything(*parts)
        sys.setprofile(interrupt)
        try:
            parts[2].step(*batch)
        except KeyboardInterrupt:
            assert at is not None
        finally:
            sys.setprofile(None)
        return before, everything(*parts), calls

    before, after, calls = interrupted(None)
    for number in range(4):
        assert interrupted(int(calls * (number + 0.5) / 4))[1] in {before, after}
    assert interrupted(calls)[1] == after


LIBRARIES = tuple(str(pathlib.Path(library.__file__).parent) for library in (lai_torch, lai))


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("when", ["pre", "post"])
def test_steps_whose_optimizer_raises(when, error):
    """Before it moved a parameter nothing has changed; afterwards all has, and the error says so."""
    *parts, _, batch = started("lai, adam")
    before, untouched = everything(*parts), started("lai, adam")
    untouched[2].step(*batch)

    def raises(*_):
        raise error

    getattr(parts[1], f"register_step_{when}_hook")(raises)
    with pytest.raises(error) as raised:
        parts[2].step(*batch)
    (note,) = raised.value.__notes__
    assert note.startswith("This came while the optimizer stepped, or after it")
    expected = before if when == "pre" else everything(*untouched[:3])
    assert everything(*parts) == expected


@pytest.mark.parametrize("options", [{"max_norm": 0.01}, {"scaled": True}])
def test_optimizers_that_raise_keep_accumulated_gradients(options):
    """The second micro-batch keeps nothing, so that the first one's gradient is all there is to step with."""

    def second_nothing(scores, step):
        return torch.zeros_like(scores) if step == 1 else lai.keep_all(scores)

    def run(*, fails):
        torch.manual_seed(3)
        given = dict(options)
        if given.pop("scaled", False):
            given["backward"] = lai_torch.KeptOptions(scaler=torch.amp.GradScaler("cpu", init_scale=64.0))
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        batch = data(6)
        curator = lai_torch.Curator(
            model, LOSS, optimizer, batch, policy=second_nothing, accumulate=2, **given
        )
        curator.step(*batch)
        before = [parameter.grad.clone() for parameter in model.parameters()]
        if fails:
            hook = optimizer.register_step_pre_hook(FailsAt().before(lambda *_: 1 / 0))
            with pytest.raises(ZeroDivisionError):
                curator.step(*batch)
            hook.remove()
            assert all(map(torch.equal, before, [parameter.grad for parameter in model.parameters()]))
        assert curator.step(*batch).updated
        return plain(model.state_dict())

    assert run(fails=True) == run(fails=False)


def test_interrupted_scores_leave_no_hooks(monkeypatch):
    """One that stayed would take training's gradients away."""
    model, _, curator, _, batch = started("ghost, momentum")
    fails = FailsAt()
    monkeypatch.setattr(torch.Tensor, "register_hook", fails.before(torch.Tensor.register_hook))
    fails.at = 2
    with pytest.raises(KeyboardInterrupt):
        curator.score(batch[0][:5], batch[1][:5])
    assert not any(parameter._backward_hooks for parameter in model.parameters())


def test_interrupted_scores_keep_own_hooks(monkeypatch):
    model, fails = network(), FailsAt()
    for module in (model[0], model[-1]):
        module.register_full_backward_hook(print)
    monkeypatch.setattr(preserve, "OrderedDict", fails.before(preserve.OrderedDict))
    fails.at = 3
    with pytest.raises(KeyboardInterrupt), preserve.preserve(model):
        pass
    assert [[*module._backward_hooks.values()] for module in model] == [[print], [], [print]]
