"""Naming the row of a torch model: numbers against a loop of autograd, and planted rows."""

import json
import math
import warnings
from functools import partial

import lai_torch
import pytest
import torch
from torch import nn

from tests.support.refusals import refusals
from tests.support.torch_modules import held, holding
from tests.support.workloads.counts import counted
from tests.support.workloads.launches import launch
from tests.support.workloads.torch_oracle import called, per_sample_gradients

N, T, WORDS = 16, 12, 20
"""Samples, positions, tokens."""


def squared(outputs, targets):
    return (outputs[:, 0] - targets) ** 2


def contrastive(outputs, targets):
    """Compare each row with another one of the batch: it takes no batch of another size."""
    own = torch.arange(len(outputs)) ^ 1
    return nn.functional.cross_entropy(outputs @ outputs.T, own, reduction="none") + 0.0 * targets


def weighted(outputs, targets):
    """Return the cross entropy of a sequence, its positions weighted."""
    words, weights = targets
    return (nn.functional.cross_entropy(outputs.mT, words, reduction="none") * weights).sum(1)


@holding(
    lambda: held(
        words=nn.Embedding(WORDS, 16),
        block=nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, norm_first=True),
        norm=nn.LayerNorm(16),
        head=nn.Linear(16, WORDS, bias=False),
    )
)
def gpt(own, words):
    return own.head(own.norm(own.block(own.words(words))))


def mlp():
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


@holding(lambda: held(words=nn.Embedding(WORDS, 4, scale_grad_by_freq=True), head=nn.Linear(4, 1)))
def frequent(own, words):
    return own.head(own.words(words).mean(1))


def numbers(n=N):
    return torch.randn(n, 4), torch.randn(n)


def sentences():
    words = torch.randint(WORDS, (N, T))
    return words, (torch.randint(WORDS, (N, T)), torch.ones(N, T))


MODELS = {
    "mlp": (mlp, squared, numbers, lambda targets, row: targets[row].fill_(300.0)),
    "gpt": (gpt, weighted, sentences, lambda targets, row: targets[1][row, 4].fill_(100.0)),
    "coupled": (mlp, contrastive, numbers, None),
    # a batch of one is not half of a batch of two
    "one row": (mlp, lambda *pair: squared(*pair) + 1 / len(pair[0]), lambda: numbers(1), None),
    "one row of words": (frequent, squared, lambda: (torch.tensor([[1, 1, 2]]), torch.randn(1)), None),
}


def built(name, seed=0):
    torch.manual_seed(seed)
    build, loss, draw, plant = MODELS[name]
    model = build().double()
    inputs, targets = torch.utils._pytree.tree_map(
        lambda one: one.double() if one.is_floating_point() else one, draw()
    )
    return model, loss, inputs, targets, plant


def by_loop(model, loss, inputs, targets):
    """Return each sample's gradient of each parameter, `(n, *shape)`, by plain autograd."""
    losses = loss(called(model, inputs), targets)
    named = {name: one for name, one in model.named_parameters() if one.requires_grad}
    differentiate = partial(torch.autograd.grad, retain_graph=True, materialize_grads=True)
    rows = [differentiate(value, list(named.values())) for value in losses]
    return {name: torch.stack(column) for name, column in zip(named, zip(*rows, strict=True), strict=True)}


def check(found, parts):
    """Compare a diagnosis with gradients that are built."""
    built = torch.cat([one.flatten(1) for one in parts.values()], 1)
    whole, scale = built.sum(0), built.norm(dim=1).max()
    torch.testing.assert_close(found.norms, built.norm(dim=1), rtol=1e-10, atol=1e-10 * float(scale))
    shares = built @ whole / (whole @ whole)
    torch.testing.assert_close(found.shares, shares, rtol=1e-9, atol=1e-10 * float(shares.abs().max()))
    assert set(found.layer_norms) == set(parts)
    for name, part in parts.items():
        norms = part.flatten(1).norm(dim=1)
        torch.testing.assert_close(found.layer_norms[name], norms, rtol=1e-10, atol=1e-10 * float(scale))
    others = torch.stack([torch.cat([built[:row], built[row + 1 :]]).sum(0) for row in range(len(built))])
    torch.testing.assert_close(
        found.cosines, nn.functional.cosine_similarity(built, others), rtol=1e-9, atol=1e-9
    )
    left = [row for row in range(len(built)) if found.verdict != "rows" or row not in found.named]
    assert math.isclose(found.rest_norm, float(built[left].sum(0).norm()), rel_tol=1e-9)
    assert math.isclose(found.total_norm, float(whole.norm()), rel_tol=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_numbers_are_those_of_a_loop(name):
    """And the row that is planted is named."""
    for planted in (False, True):
        model, loss, inputs, targets, plant = built(name, int(planted))
        if planted and plant is not None:
            plant(targets, 5)
        found = lai_torch.diagnose(model, loss, inputs, targets)
        check(found, by_loop(model, loss, inputs, targets))
        torch.testing.assert_close(found.losses, loss(called(model, inputs), targets).detach())
    if plant is not None:
        assert (found.named, found.verdict) == ((5,), "rows"), found
        if found.position_norms is not None:
            assert found.rows()[0]["positions"] == (4, 4), found


def check_others(found, row, model, loss, inputs, targets):
    kept = [one for one in range(N) if one != row]
    norms = per_sample_gradients(model, loss, inputs[kept], targets[kept], N - 1).norm(dim=1)
    torch.testing.assert_close(found.norms[kept], norms, rtol=1e-9, atol=0.0)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda inputs, targets: inputs[4, 0].fill_(math.inf), "inputs"),
        (lambda inputs, targets: targets[4].fill_(math.nan), "targets"),
        (lambda inputs, targets: inputs[4].fill_(1e200), "the loss"),
        (lambda inputs, targets: inputs[4].fill_(1e308), "0"),
    ],
)
def test_infinite_rows_are_named(change, where):
    model, loss, inputs, targets, _ = built("mlp")
    model[1] = nn.Identity()
    model[0].weight.data.abs_().add_(2)
    change(inputs, targets)
    found = lai_torch.diagnose(model, loss, inputs, targets, ids=torch.arange(100, 116))
    assert (found.named, found.verdict, found.nonfinite) == ((4,), "not finite", {4: where}), found
    assert json.loads(found.to_json())["rows"][0]["id"] == "104"
    assert str(found).splitlines()[0] == "row 4 (id 104): loss or gradient not finite"
    check_others(found, 4, model, loss, inputs, targets)


@pytest.mark.parametrize("coupled", [False, True])
def test_infinite_gradients_spoil_no_row(coupled):
    model, _, inputs, targets, _ = built("mlp")
    targets[5] = 0.0

    def loss(outputs, targets):
        own = (outputs[:, 0] * targets).abs().sqrt()
        return own + 0.0 * outputs.sum() if coupled else own  # then no trace is proved

    found = lai_torch.diagnose(model, loss, inputs, targets)
    assert (found.named, found.verdict) == ((5,), "not finite"), found
    assert found.nonfinite[5].startswith(("the gradient of", "a gradient"))
    check_others(found, 5, model, loss, inputs, targets)


def test_parts_that_batch_norm_couples():
    """A row's output gradients of the whole loss times its inputs, and the same of gains and biases."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 1)).double()
    inputs, targets = torch.randn(N, 4).double(), torch.randn(N).double()
    inputs[7] *= 50
    before = {name: one.clone() for name, one in model.state_dict().items()}
    found = lai_torch.diagnose(model, squared, inputs, targets)
    assert all(torch.equal(before[name], one) for name, one in model.state_dict().items())
    assert model[1].training
    assert found.coupled == ("1",)
    first = model[0](inputs)
    normalized = (first - first.mean(0)) / (first.var(0, unbiased=False) + model[1].eps).sqrt()
    scaled = normalized * model[1].weight + model[1].bias
    hidden = scaled.tanh()
    outputs = model[3](hidden)
    wanted = torch.autograd.grad(squared(outputs, targets).sum(), [first, scaled, outputs])
    parts = {
        "0.weight": wanted[0][:, :, None] * inputs[:, None],
        "0.bias": wanted[0],
        "1.weight": wanted[1] * normalized,
        "1.bias": wanted[1],
        "3.weight": wanted[2][:, :, None] * hidden[:, None],
        "3.bias": wanted[2],
    }
    check(found, {name: one.detach() for name, one in parts.items()})
    assert "parts of the batch's gradient, which 1 couples" in str(found)


def test_infinite_parameters_are_named():
    model, loss, inputs, targets, _ = built("mlp")
    model[2].weight.data[0, 0] = math.nan
    found = lai_torch.diagnose(model, loss, inputs, targets)
    assert set(found.nonfinite.values()) == {"parameter 2.weight"}
    assert str(found).splitlines()[1] == "first in parameter 2.weight"


def shared(coupled, bad):
    model, _, inputs, targets, _ = built("mlp")
    targets[11] = 500.0
    if bad:
        targets[3] = math.nan
        model, inputs, targets = (one.to(bad) for one in (model, inputs, targets))

    def loss(outputs, targets):
        return squared(outputs, targets) + (coupled * outputs.nanmean() if coupled else 0.0)

    return model, loss, inputs, targets


def part_of(rank):
    chosen = torch.arange(N).tensor_split([10])[rank]
    return chosen, [f"doc-{row}" for row in chosen.tolist()]


def divide(coupled, bad, wrapped, rank):
    """Diagnose a process's rows of a batch, with all others."""
    model, loss, inputs, targets = shared(coupled, bad)
    chosen, ids = part_of(rank)
    if wrapped:
        model = nn.parallel.DistributedDataParallel(model)
        monitor = lai_torch.SpikeMonitor(model, loss, rule=lai_torch.SpikeRule(threshold=1e-6))
        monitor.watch(inputs[chosen], targets[chosen], ids=ids)
        return monitor.check(math.inf)
    group = torch.distributed.group.WORLD
    return lai_torch.diagnose(model, loss, inputs[chosen], targets[chosen], ids=ids, process_group=group)


def shard(coupled, bad, parts, rank):
    """Diagnose a process's rows of a batch with a model in parts, in a monitor's step."""
    model, loss, inputs, targets = shared(coupled, bad)
    reference = [parameter.detach().clone() for parameter in model.parameters()]
    for part in (model[0], model):
        torch.distributed.fsdp.fully_shard(part)
    chosen, ids = part_of(rank)
    monitor = lai_torch.SpikeMonitor(model, loss, rule=lai_torch.SpikeRule(threshold=1e-6))
    for own in torch.arange(len(chosen)).tensor_split(parts):
        monitor.watch(inputs[chosen[own]], targets[chosen[own]], ids=[ids[one] for one in own])
        loss(model(inputs[chosen[own]]), targets[chosen[own]]).nanmean().backward()
    found = monitor.check(nn.utils.clip_grad_norm_(model.parameters(), 1.0))
    for parameter, before in zip(model.parameters(), reference, strict=True):
        assert torch.equal(parameter.full_tensor(), before)
        assert parameter.grad is not None
    return found


def watch_unequally(counts, sharded, rank):
    """Watch another number of micro-batches on each process."""
    model, loss, inputs, targets = shared(0.0, bad=None)
    if sharded:
        torch.distributed.fsdp.fully_shard(model)
    monitor = lai_torch.SpikeMonitor(model, loss, rule=lai_torch.SpikeRule(threshold=5.0, warmup=1))
    monitor.share(2)  # as a trainer says that has started them
    said = []
    for norm in (1.0, 1.0, 9.0):
        for part in torch.arange(N).tensor_split(counts[rank]) if counts[rank] else ():
            monitor.watch(inputs[part], targets[part])
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            assert monitor.check(norm) is None
        said += [str(one.message) for one in found]
    return said


BATCHES = [(0.0, None), (0.0, torch.float64), (0.0, torch.float32), (1e-30, None)]
"""How far its samples are coupled, and the type in which it holds a row that is not finite."""
DIAGNOSES = {
    (work, *batch, option): partial(work, *batch, option)
    for work, options in ((divide, (False, True)), (shard, (1, 2)))
    for batch in BATCHES
    for option in options
}
WATCHES = {
    (counts, sharded): partial(watch_unequally, counts, sharded)
    for counts in [(2, 1), (1, 0), (0, 0)]
    for sharded in (False, True)
}


def run_jobs(rank):
    return {name: job(rank) for name, job in (DIAGNOSES | WATCHES).items()}


@pytest.fixture(scope="module")
def on_two():
    """Return what each of two processes found, in one start of them."""
    return launch(run_jobs, 2)


@pytest.mark.parametrize("job", DIAGNOSES)
def test_processes_diagnose_as_one(on_two, job):
    whole = lai_torch.diagnose(*shared(*job[1:3]), ids=[f"doc-{row}" for row in range(N)])
    for found in (each[job] for each in on_two):
        order = [whole.ids.index(name) for name in found.ids]
        named = {found.ids[row] for row in found.named}
        assert (named, found.verdict) == ({whole.ids[row] for row in whole.named}, whole.verdict)
        close = 1e-5 if found.losses.dtype == torch.float32 else 1e-9
        assert found.rest_norm == pytest.approx(whole.rest_norm, rel=close)
        for name in ("norms", "shares", "cosines"):
            values = getattr(found, name), getattr(whole, name)[order]
            torch.testing.assert_close(*values, rtol=close, atol=close, equal_nan=True)
        if job[0] is divide:
            assert str(found).replace("module.", "").startswith(str(whole))


@pytest.mark.parametrize("job", WATCHES)
def test_unequal_micro_batches_are_told(on_two, job):
    (first, *more), other = (each[job] for each in on_two)
    assert [first, *more] == other
    assert not more
    assert first.endswith(f"at least one, got {[*job[0]]}")


@holding(lambda: held(head=nn.Linear(1, 1)))
def sort_rows(own, inputs):
    order = inputs[:, 0].argsort()
    return own.head(inputs[order])[order.argsort()]


def test_parts_of_other_forms_add_up():
    """A layer's matrix is read the other way round where rows are sorted, and one row is not."""
    torch.manual_seed(0)
    model, parts = (
        sort_rows().double(),
        [(torch.randn(n, 1).double(), torch.randn(n).double()) for n in (1, 9)],
    )
    parts[1][1][4] = 500.0
    monitor = lai_torch.SpikeMonitor(model, squared, rule=lai_torch.SpikeRule(threshold=5.0, warmup=1))
    for part in parts:
        monitor.watch(*part)
    rows = torch.cat([per_sample_gradients(model, squared, *part, len(part[1])) for part in parts])
    found, total = monitor.check(1e3), rows.sum(0)
    assert found.total_norm == pytest.approx(float(total.norm()))
    torch.testing.assert_close(found.shares, rows @ total / (total @ total))


def packed():
    """Return a model whose documents see one another's positions, a loss a position, and packed rows."""
    model, _, words, targets, _ = built("gpt")
    segments = torch.tensor([[0] * 4 + [1] * 8, [2] * 3 + [3] * 3 + [-1] * 6, [4] * 11 + [1]])

    def loss(outputs, targets):
        return nn.functional.cross_entropy(outputs.mT, targets[0], reduction="none") * targets[1]

    return model, loss, words[:3], (targets[0][:3], targets[1][:3]), segments


def test_documents_of_packed_rows_are_diagnosed():
    model, loss, words, targets, segments = packed()
    targets[1][1, 3:6] = 80.0
    ids = [f"doc-{document}" for document in range(5)]
    found = lai_torch.diagnose(model, loss, words, targets, ids=ids, segments=segments)

    def apart(outputs, targets):
        losses = loss(outputs, targets)
        return torch.stack([losses[segments == document].sum() for document in range(5)])

    check(found, by_loop(model, apart, words, targets))
    assert (found.named, found.verdict) == ((3,), "rows")
    assert str(found).startswith("row 3 (id doc-3), norm ")


def call_packed(**options):
    model, loss, words, targets, _ = packed()
    return lambda: lai_torch.diagnose(model, loss, words, targets, **options)


def call_plain(trains=True, **options):
    model, loss, inputs, targets, _ = built("mlp")
    return lambda: lai_torch.diagnose(model.requires_grad_(trains), loss, inputs, targets, **options)


ONE = torch.zeros(3, T, dtype=torch.long)
test_bad_arguments_are_named = refusals(
    {
        "ValueError: model: expected at least one trainable parameter, got none": call_plain(trains=False),
        "ValueError: usual_norm: expected a positive number, got ": [
            call_plain(usual_norm=norm) for norm in (math.nan, 0.0)
        ],
        "ValueError: segments: expected shape": call_packed(segments=ONE[:, :4]),
        "TypeError: segments: expected integers, got torch.float32": call_packed(segments=ONE.float()),
        "ValueError: …numbered from 0 without a gap, got [7]": call_packed(segments=ONE + 7),
        "ValueError: ids: expected one for each of the 1": call_packed(segments=ONE, ids=["a", "b"]),
        "ValueError: segments: expected None with a process group": call_packed(
            segments=ONE, process_group=0
        ),
    }
)


def test_infinite_documents_are_named():
    model, loss, words, targets, segments = packed()
    targets[1][2, 2] = math.nan
    found = lai_torch.diagnose(model, loss, words, targets, segments=segments)
    assert (found.named, found.verdict, dict(found.nonfinite)) == ((4,), "not finite", {4: "the loss"})
    assert str(found).splitlines()[1:] == ["first in the loss"]
    targets[1][2, 2], targets[0][2, 2] = 1.0, 0
    model.head.weight.data[0] = 1e200
    assert lai_torch.diagnose(model, loss, words, targets, segments=segments).verdict == "not finite"


def test_first_diagnosis_keeps_to_memory():
    model = nn.Sequential(*(part for _ in range(6) for part in (nn.Linear(32, 32), nn.GELU())))
    inputs, parameters = torch.randn(512, 32), [*model.parameters()]

    def loss(outputs, targets):
        return (outputs - targets).pow(2).sum(1)

    plain = counted(lambda: torch.autograd.grad(loss(model(inputs), inputs).sum(), parameters))
    first = counted(lambda: lai_torch.diagnose(model, loss, inputs, inputs))
    assert first.peak < 2 * plain.peak  # 3.3 where all rows are placed
