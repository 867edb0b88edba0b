"""Several processes that share a batch find what one finds; what one raises, all raise, and none waits."""

import re

import lai_torch
import pytest
import torch
import torch.distributed as dist
from torch import nn

from tests.lai_torch.process_errors import ERRORS
from tests.lai_torch.process_support import (
    PROCESSES,
    a_block_raises_when_scored,
    curated,
)
from tests.support.workloads.launches import launch
from tests.support.workloads.torch_processes import (
    CASES,
    ENGINES,
    batch,
    errors,
    largest,
    network,
    run,
    runs,
)
from tests.support.workloads.torch_resumed import resumed

BOUND = 1e-12
QUICK = [
    ("keep_positive", "ddp"),
    ("keep_top: one of all", "ddp"),
    ("AdamW, accumulate 2, refresh 3", "ddp"),
    ("balance, uneven, broken", "ddp"),
    ("keep_top: one of all", "fsdp2"),
    ("tied", "fsdp2"),
    ("clipped", "fsdp2"),
    ("an auxiliary number", "ddp"),
    ("below the validation set's losses", "group"),
    ("rows that are not finite", "fsdp2"),
    ("reweight", "group"),
    ("calibrated", "group"),
    ("the batch itself, preconditioned", "group"),
    ("three validation samples", "group"),
    ("factors", "group"),
]
REST = [
    (case, engine) for case, made in CASES.items() for engine in made.engines if (case, engine) not in QUICK
]


def nothing_is_finite(rank):
    """Step on a batch without a finite row, then on one where process 1 has none."""
    curator, (inputs, targets) = curated(rank)
    reports = [curator.step(inputs * torch.nan, targets)]
    reports.append(curator.step(inputs * (torch.nan if rank else 1.0), targets))
    return [(report.skipped, report.dropped, report.kept > 0, report.kept_fraction) for report in reports]


def a_loader_runs_dry(rank):
    """Score against a loader that has one batch on process 1 and two on process 0."""
    inputs, targets = batch(12, 3)
    parts = [(inputs[:4], targets[:4]), (inputs[4:7], targets[4:7])]
    curator, part = curated(rank, validation=iter(parts if rank == 0 else [(inputs[7:], targets[7:])]))
    return [curator.step(*part).scores for _ in range(3)]


NAMES = [["even", "odd", "even", "odd"], ["third", "odd", "third", "odd"]]


def groups_are_counted_together(rank):
    curator, part = curated(rank, policy=lai_torch.GroupFloor(0.5))
    numbers = curator.step(*part, groups=torch.arange(4) % 2).group_drops
    return numbers, curator.score(*part, groups=NAMES[rank])[1].group_drops


def a_layer_is_thawed(rank):
    model = network()
    model[0].requires_grad_(requires_grad=False)
    curator, part = curated(rank, model=model, refresh=9)
    first = curator.step(*part)
    model[0].requires_grad_(requires_grad=True)
    return [report.age for report in (first, curator.step(*part), curator.step(*part))]


FOUND = (
    nothing_is_finite,
    a_loader_runs_dry,
    groups_are_counted_together,
    a_block_raises_when_scored,
    a_layer_is_thawed,
)


def mistakes(words):
    return [ERRORS[words]] if callable(ERRORS[words]) else ERRORS[words]


def everything(rank, cases):
    """Run all of this on one start of the processes."""
    found = runs(rank, PROCESSES, cases)
    works = {(words, at): work for words in ERRORS for at, work in enumerate(mistakes(words))}
    works |= {work.__name__: work for work in FOUND}
    for name, work in works.items():
        try:
            found[name] = work(rank)
        except (Exception, KeyboardInterrupt) as error:
            found[name] = f"{type(error).__name__}: {error}\n{''.join(getattr(error, '__notes__', []))}"
    return found


@pytest.fixture(scope="module")
def found():
    return launch(everything, PROCESSES, QUICK, timeout=120)


def rows_by_process():
    """Return the batch with process 0's rows first, as the processes see it."""
    inputs, targets = batch(8, 2)
    order = torch.cat([torch.arange(8)[rank::PROCESSES] for rank in range(PROCESSES)])
    return inputs[order], targets[order]


def check(parts, case, engine):
    got = [part[case, engine] for part in parts]
    assert not any(isinstance(one, str) for one in got), got
    if engine != "hsdp":  # whose own all-reduces of gradients are counted, too
        assert all(one.bytes_reported == one.bytes_per_step > 0 for one in got)
    for name, error in errors(got, run(CASES[case])).items():
        assert error <= BOUND, name


@pytest.mark.parametrize(("case", "engine"), QUICK)
def test_processes_find_what_one_finds(found, case, engine):
    check(found, case, engine)


@pytest.mark.weekly
def test_every_case_on_more_processes():
    copies = [(case, "hsdp") for case in ("keep_positive", "sketch", "ghost", "clipped")]
    uneven = [("uneven batches", each) for each in ENGINES]
    for processes, cases in ((PROCESSES, REST), (4, QUICK + uneven + copies)):
        parts = launch(runs, processes, processes, cases, timeout=400)
        for case, engine in cases:
            check(parts, case, engine)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:torch.distributed is disabled, unavailable or uninitialized")
def test_runs_resume_on_any_number(tmp_path):
    expected = resumed(0, 1, None, range(8), str(tmp_path / "whole"))
    spread = [(2, "fsdp2", range(2)), (4, "group", range(2, 6))]
    for processes, engine, steps in spread:
        for found in launch(resumed, processes, processes, engine, steps, str(tmp_path), timeout=400):
            assert not isinstance(found, str), found
    assert largest(resumed(0, 1, None, range(6, 8), str(tmp_path)), expected) <= BOUND


@pytest.mark.parametrize("words", ERRORS)
def test_what_one_process_raises_all_raise(found, words):
    for part in found:
        for at, _ in enumerate(mistakes(words)):
            assert words in part[words, at]
            if "no weights from this policy" in words or "this loss cannot be computed" in words:
                assert "This happened on process 1 of 2" in part[words, at]


def test_all_skip_infinite_batches(found):
    for part in found:
        assert part["nothing_is_finite"][0] == (True, 8, False, 0.0)
        skipped, dropped, kept, _ = part["nothing_is_finite"][1]
        assert (skipped, dropped, kept) == (False, 4, True)


def test_a_loader_dry_on_one(found):
    inputs, targets = batch(12, 3)
    first, second = torch.tensor([0, 1, 2, 3, 7, 8, 9, 10, 11]), torch.tensor([4, 5, 6])
    loader = iter([(inputs[first], targets[first]), (inputs[second], targets[second])])
    curator, _ = curated(0, process_group=None, validation=loader)
    with pytest.warns(UserWarning, match="the iterator has ended .* made 1 step ago stays in use") as said:
        expected = [curator.step(*rows_by_process()).scores for _ in range(4)]
    assert len(said) == 1
    for step in range(3):
        scores = torch.cat([part["a_loader_runs_dry"][step] for part in found])
        assert largest(scores, expected[step]) <= BOUND


def test_groups_of_the_whole_batch(found):
    groups = torch.cat([torch.arange(4) % 2] * PROCESSES)
    curator, _ = curated(0, process_group=None, policy=lai_torch.GroupFloor(0.5))
    numbers = curator.step(*rows_by_process(), groups=groups).group_drops
    named = curator.score(*rows_by_process(), groups=[*NAMES[0], *NAMES[1]])[1].group_drops
    assert set(named) == {"even", "odd", "third"}
    expected = numbers, named
    assert all(part["groups_are_counted_together"] == expected for part in found)


def test_a_block_that_raises_on_one(found):
    curator, _ = curated(0, process_group=None, refresh=2)
    inputs, targets = batch(8, 2)
    rows = torch.tensor([0, 2, 4, 6, 1, 3, 5])
    for _ in range(2):
        curator.step(inputs[rows], targets[rows])
    expected = torch.cat([parameter.detach().flatten() for parameter in curator.model.parameters()])
    for part in found:
        said, parameters = part["a_block_raises_when_scored"]
        assert len(said) == 2
        for (message, *notes), where in zip(said, ("while tracing the validation set", ""), strict=True):
            assert message == "this block cannot be computed"
            assert where in "".join(notes)
            assert any("This happened on process 1 of 2" in note for note in notes)
        assert largest(parameters, expected) <= BOUND


def test_thawed_layers_are_seen(found):
    assert all(part["a_layer_is_thawed"] == [0, 0, 1] for part in found)


def test_data_parallel_is_refused():
    with pytest.raises(ValueError, match=re.escape("got DataParallel; use one of those")):
        curated(0, process_group=None, model=nn.DataParallel(network()))


def test_a_group_needs_processes():
    with pytest.raises(ValueError, match=r"process_group: expected torch.distributed to be initialized"):
        curated(0, process_group=dist.group.WORLD or object())
