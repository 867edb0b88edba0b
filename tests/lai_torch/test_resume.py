"""An interrupted run goes on bit for bit, a killed one loses nothing, and a long one holds on to nothing."""

import copy
import gc
import io
import pathlib
import subprocess
import sys

import lai_torch
import pytest
import torch
from torch import nn
from torch.nn import functional

import lai_core as lai
from tests.lai_torch.support import LOSS, plain
from tests.support.torch_modules import Part

STEPS = 8


def tokens(own, ids):
    """Classify every token; single precision, so that another order of operations shows."""
    hidden = own.table(ids)
    return own.head(hidden + functional.dropout(torch.relu(own.inner(hidden)), 0.2, own.training))


def of_tokens(outputs, targets):
    return LOSS(outputs.movedim(2, 1), targets).mean(1)


def drawn(kind, n):
    if kind == "tokens":
        ids = torch.randint(9, (n, 7))
        return ids, (3 * ids + 1) % 11
    inputs = torch.randn(n, 5)
    return inputs[:, None] if kind == "signals" else inputs, inputs[:, :3].argmax(1)


MODELS = {
    "tokens": lambda: Part(
        tokens, table=nn.Embedding(9, 16), inner=nn.Linear(16, 16), head=nn.Linear(16, 11)
    ),
    "vectors": lambda: nn.Sequential(
        nn.Linear(5, 12), nn.GELU(), nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 3)
    ),
    "named": lambda: Part(
        lambda own, inputs: (inputs * own.kind + own.value) * own.parts,
        # as a summary's fields are called
        **{name: nn.Parameter(torch.ones(5)) for name in ("parts", "kind", "value")},
    ),
    "signals": lambda: nn.Sequential(
        nn.Conv1d(1, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(12, 3), nn.LayerNorm(3)
    ),
}
CASES = [
    *(("signals", {"estimator": name}) for name in ("ghost", "lai", "lli", "exact", "midpoint")),
    ("signals", {"estimator": lai_torch.PreconditionedLAI(decay=0.9, exponent=0.5)}),
    ("signals", {"estimator": "calibrated_lai", "warmup": 1}),
    ("named", {"estimator": "exact"}),
    ("vectors", {"estimator": "gate_lai"}),
    ("vectors", {"estimator": lai_torch.LAI(parts=3), "policy": lai.drop_harmful}),
    ("vectors", {"estimator": lai_torch.GateLAI(chunk=4)}),
    ("tokens", {"estimator": lai_torch.Ghost(chunk=3)}),
    *(("tokens", {"estimator": kind(positions="mean")}) for kind in (lai_torch.LAI, lai_torch.CalibratedLAI)),
    ("tokens", {"estimator": lai_torch.PreconditionedLAI(positions="mean"), "policy": lai.reweight}),
    ("tokens", {"estimator": lai_torch.LAI(positions="mean"), "validation": "batch"}),
    ("tokens", {"estimator": lai_torch.LAI(positions="mean", chunk=2)}),
    ("tokens", {"estimator": "lli"}),
    ("tokens", {"estimator": lai_torch.CalibratedLAI(positions="flatten")}),
    ("tokens", {"estimator": lai_torch.LAI(positions="flatten", sketch=2)}),
    ("tokens", {"estimator": lai_torch.CalibratedLAI(sketch=2)}),
    ("tokens", {"estimator": lai_torch.LAI(sketch=2), "validation": "batch+self"}),
    ("tokens", {"estimator": lai_torch.LAI(sketch=3), "accumulate": 2, "generator": torch.Generator}),
    *(
        ("tokens", {"estimator": lai_torch.LAI(positions="mean"), "backward": way})
        for way in ("whole", "auto")
    ),
    ("tokens", {"estimator": lai_torch.LAI(sketch=2), "backward": "selective"}),
]


def parts(kind, given):
    """Return model, optimizer and curator as they start, and the batches."""
    torch.manual_seed(7)
    model, options = MODELS[kind](), dict(given)
    each = {"refresh": options.pop("refresh", 3), "validation_fraction": 0.5}
    if "generator" in options:
        options["generator"] = options["generator"]().manual_seed(5)
    validation, batches = drawn(kind, 10), [drawn(kind, 6) for _ in range(STEPS)]
    if "validation" in options:
        validation, each = options.pop("validation"), {}
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    loss = of_tokens if kind == "tokens" else LOSS
    curator = lai_torch.Curator(model, loss, optimizer, validation, **each, **options)
    return [model, optimizer, curator], batches


def stepped(curator, batches, start):
    """Take the steps from `start` on; dropout's own stream is not the curator's to resume."""
    found = []
    for number, batch in enumerate(batches[start:], start):
        torch.manual_seed(number)
        report = curator.step(*batch)
        found.append(plain({**vars(report), "loss": report.loss}))
    return found


@pytest.mark.parametrize(("kind", "options"), CASES)
def test_interrupted_runs_resume_bitwise(kind, options):
    whole, batches = parts(kind, options)
    between, saved, expected = options.get("accumulate", 1), {}, []
    for number in range(STEPS):
        if number % between == 0:  # gradients that still accumulate are in the parameters
            saved[number] = io.BytesIO()
            torch.save([owner.state_dict() for owner in whole], saved[number])
        expected += stepped(whole[2], batches[: number + 1], number)
    assert any(report["kept"] for report in expected)
    for number, file in saved.items():
        file.seek(0)
        resumed, _ = parts(kind, options)
        for owner, state in zip(resumed, torch.load(file, weights_only=True), strict=True):
            owner.load_state_dict(state)
        assert stepped(resumed[2], batches, number) == expected[number:]
        for half, uninterrupted in zip(resumed, whole, strict=True):
            assert plain(half.state_dict()) == plain(uninterrupted.state_dict())


@pytest.mark.parametrize("others", ["freeze", "write"])
def test_runs_that_others_change_resume(others):
    """The side is made again before it is old, by a resumed run too."""

    def train(run, number):
        run[0][0].requires_grad_(number < 3 or others != "freeze")
        ages = [stepped(run[2], batches[: number + 1], number)[0]["age"]]
        if others == "write":
            with torch.no_grad():
                run[0][0].weight.clamp_(-0.1, 0.1)
        return ages, plain(run[0].state_dict())

    options = {"estimator": "lli", "refresh": 5}
    whole, batches = parts("vectors", options)
    for number in range(5):
        saved = copy.deepcopy([owner.state_dict() for owner in whole])
        resumed, _ = parts("vectors", options)
        for owner, state in zip(resumed, saved, strict=True):
            owner.load_state_dict(state)
        found = train(whole, number)
        assert train(resumed, number) == found
        assert found[0] == [0 if others == "write" else number % 3]


def of_the_release_before(state):
    """Return a state in the form in which the release before wrote it."""
    old = {name: state[name] for name in ("steps", "skipped", "dropped", "estimator", "generator")}
    side = state["side"]
    if "fields" in side:
        side = side | {"fields": {name: one for name, one in side["fields"].items() if name != "sketch"}}
    old["summary"] = {"summary": side, "served": state["served"], "losses": state["validation_losses"]}
    old["scorer"] = {"sketch": None, "routed": [], "left": [], "second_moment": state["second_moment"]}
    moments = state["input_second_moments"]
    old["scorer"]["input_second_moments"] = None if moments is None else tuple(moments["parts"])
    return old | {"timed": [], "backward": state["backward"]}


@pytest.mark.parametrize(
    ("kind", "options"), [CASES[0], CASES[3], CASES[5], ("tokens", CASES[14][1] | {"policy": lai.reweight})]
)
def test_states_of_the_last_release(kind, options):
    (model, optimizer, curator), batches = parts(kind, options)
    stepped(curator, batches[:4], 0)
    states = model.state_dict(), optimizer.state_dict(), of_the_release_before(curator.state_dict())
    resumed, _ = parts(kind, options)
    for owner, state in zip(resumed, copy.deepcopy(states), strict=True):
        owner.load_state_dict(state)
    assert stepped(resumed[2], batches, 4) == stepped(curator, batches, 4)


@pytest.mark.weekly
@pytest.mark.parametrize(("job", "kills"), [("score_dataset", 20), ("CuratedTrainer", 5)])
def test_kills_lose_nothing(pytestconfig, job, kills):
    # in a process of its own, which may fork
    command = [sys.executable, "-m", "tests.support.workloads.killed", job, str(kills)]
    done = subprocess.run(command, cwd=pytestconfig.rootpath, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith(f"{kills} kills")


@pytest.mark.weekly
def test_long_runs_hold_nothing():
    def resident(steps):
        for step in range(steps):
            inputs, targets = drawn("vectors", 16 - step % 3)
            curator.step(inputs, targets, groups=targets)
        gc.collect()
        return int(pathlib.Path("/proc/self/statm").read_text().split()[1])

    model = MODELS["vectors"]()
    options = {"refresh": 5, "validation_fraction": 0.5, "estimator": lai_torch.LAI(sketch=3)}
    curator = lai_torch.Curator(
        model, LOSS, torch.optim.Adam(model.parameters()), drawn("vectors", 40), **options
    )
    before = resident(200)  # for what is made once
    assert resident(1000) < before + 1000
