"""Several processes that share a batch find what one finds; what one raises, all raise, and none waits."""

import re

import lai_torch
import pytest
import torch
import torch.distributed as dist
from torch import nn

import lai_core as lai
from tests.lai_torch.process_differences import DIFFERENCES
from tests.lai_torch.process_shards import (
    a_block_raises_when_scored,
    an_interruption_comes_in_a_round,
    some_parameters_are_whole,
)
from tests.lai_torch.process_support import PROCESSES, curated, raises_on_one, stepped
from workloads.launches import launch
from workloads.torch_features import ESTIMATORS, on_one_dimension, on_two_dimensions
from workloads.torch_processes import (
    CASES,
    ENGINES,
    LOSS,
    batch,
    errors,
    largest,
    network,
    run,
    runs,
    wrapped,
)
from workloads.torch_resumed import resumed

pytestmark = pytest.mark.filterwarnings("ignore:positions. exact pairs of tokens")
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
]
REST = [
    (case, engine) for case, made in CASES.items() for engine in made.engines if (case, engine) not in QUICK
]


def a_policy_raises(rank):
    return stepped(rank, policy=raises_on_one(rank, ArithmeticError("no weights from this policy")))


def policies_differ(rank):
    return stepped(rank, policy=lambda scores: lai.keep_top(scores, fraction=0.3 + 0.3 * rank))


def a_loss_raises_when_scored(rank):
    fails = raises_on_one(rank, RuntimeError("this loss cannot be computed"))
    return stepped(rank, loss=lambda outputs, targets: (fails(), LOSS(outputs, targets))[1])


def a_loss_raises_in_training(rank):
    """Raise between the forward pass of a wrapped model and its backward pass, which communicates."""
    model = network()
    fails = raises_on_one(rank, RuntimeError("this loss cannot be trained on"))

    def loss(outputs, targets):
        if model.training:
            fails()
        return LOSS(outputs, targets)

    return stepped(rank, model=nn.parallel.DistributedDataParallel(model), group=None, loss=loss)


def a_loader_raises(rank):
    def loader():
        raises_on_one(rank, FileNotFoundError("this file is missing"))()
        yield batch(6, 3)

    return stepped(rank, validation=loader())


def ids_are_wrong_on_one(rank):
    return stepped(rank, given={"ids": range(4 - rank)})


def groups_come_on_one(rank):
    return stepped(rank, given={"groups": torch.zeros(4, dtype=torch.int64) if rank else None})


def loaders_are_empty(rank):
    return stepped(rank, validation=iter(()))


def no_validation_row_is_finite(rank):
    inputs, targets = batch(6, 3)
    return stepped(rank, validation=(inputs * torch.nan, targets))


def parameters_differ(rank):
    return stepped(rank, model=network(rank))


def validation_differs(rank):
    return stepped(rank, validation=batch(6, rank))


def no_group_is_given(rank):
    return stepped(rank, group=None)


def midpoint(rank):
    return stepped(rank, estimator="midpoint")


def exact_has_a_loader(rank):
    return stepped(rank, estimator="exact", validation=[batch(6, 3)])


def flatten_has_the_batch(rank):
    return stepped(rank, estimator=lai_torch.LAI(positions="flatten"), validation="batch")


def whole_has_shards(rank):
    model, _ = wrapped(network(), "fsdp2", PROCESSES)
    return curated(rank, model=model, group=None, backward="whole")


def balance_has_other_shapes(rank):
    curator, (inputs, targets) = curated(
        rank, model=Padded(), validation=batch(6, 3), backward=lai_torch.Kept(balance=True)
    )
    padded = nn.functional.pad(inputs, (0, rank))
    return curator.step(padded, targets)


class Padded(nn.Module):
    """A network that takes inputs of any width, of which it reads the first eight."""

    def __init__(self):
        super().__init__()
        self.network = network()

    def forward(self, inputs):
        return self.network(inputs[:, :8])


def summing(_, bucket):
    """Add gradients up and divide by nothing."""
    future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
    return future.then(lambda done: done.value()[0])


def silent(_, bucket):
    """Leave gradients as each process has them."""
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def hooked(rank, hook):
    model = nn.parallel.DistributedDataParallel(network())
    model.register_comm_hook(None, hook)
    curator, part = curated(rank, model=model, group=None)
    for _ in range(2):
        curator.step(*part)
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def a_wrapper_that_sums(rank):
    return hooked(rank, summing)


def a_wrapper_that_does_nothing(rank):
    return hooked(rank, silent)


ERRORS = {
    a_policy_raises: "ArithmeticError: no weights from this policy",
    policies_differ: "ValueError: policy: expected the same weights from the same scores on every process",
    a_loss_raises_when_scored: "while tracing the validation set: this loss cannot be computed",
    a_loss_raises_in_training: "RuntimeError: this loss cannot be trained on",
    a_loader_raises: "FileNotFoundError: this file is missing",
    ids_are_wrong_on_one: "ValueError: ids: expected one per sample (4), got 3",
    groups_come_on_one: "ValueError: groups: expected whole numbers on every process, as on one, got None",
    loaders_are_empty: "ValueError: validation: expected at least one batch from the loader, got none",
    no_validation_row_is_finite: "validation: expected at least one sample with a finite loss, got none",
    parameters_differ: "ValueError: model: expected the same parameters on every process, got others",
    validation_differs: "ValueError: validation: expected the same (inputs, targets) on every process",
    no_group_is_given: "ValueError: group: torch.distributed runs 2 processes and the model has no wrapper",
    midpoint: "ValueError: estimator: 'midpoint' needs the gradient of the whole batch before it scores",
    exact_has_a_loader: "ValueError: validation: estimator 'exact' has nothing to add up over processes",
    flatten_has_the_batch: "ValueError: validation: estimator 'lai' with positions='flatten' has nothing to",
    whole_has_shards: "ValueError: backward: 'whole' goes around what gathers sharded parameters; use 'kept'",
    some_parameters_are_whole: "ValueError: model: expected shards of every parameter that trains, got '2.w",
    a_wrapper_that_does_nothing: "ValueError: model: expected its wrapper to average gradients over the 2",
    balance_has_other_shapes: "ValueError: balance: expected the processes' batches to have the same shape",
    **DIFFERENCES,
}


def nothing_is_finite(rank):
    """Step on a batch without a finite row, then on one where process 1 has none."""
    curator, (inputs, targets) = curated(rank)
    reports = [curator.step(inputs * torch.nan, targets)]
    reports.append(curator.step(inputs * (torch.nan if rank else 1.0), targets))
    return [(report.skipped, report.dropped, report.kept > 0, report.share) for report in reports]


def a_loader_runs_dry(rank):
    """Score against a loader that has one batch on process 1 and two on process 0."""
    inputs, targets = batch(12, 3)
    parts = [(inputs[:4], targets[:4]), (inputs[4:7], targets[4:7])]
    curator, part = curated(rank, validation=iter(parts if rank == 0 else [(inputs[7:], targets[7:])]))
    return [curator.step(*part).scores for _ in range(3)]


def each_alone(rank):
    """Train a model of one's own beside others."""
    return stepped(rank, group=False, model=network(rank)).updated


NAMES = [["even", "odd", "even", "odd"], ["third", "odd", "third", "odd"]]


def groups_are_counted_together(rank):
    curator, part = curated(rank, policy=lai_torch.GroupFloor(0.5))
    numbers = curator.step(*part, groups=torch.arange(4) % 2).group_drops
    return numbers, curator.score(*part, groups=NAMES[rank])[1].group_drops


def shards_that_are_summed(rank):
    model, _ = wrapped(network(), "fsdp2", PROCESSES)
    for module in model.modules():
        if hasattr(module, "set_gradient_divide_factor"):
            module.set_gradient_divide_factor(1.0)
    curator, part = curated(rank, model=model, group=None)
    for _ in range(2):
        curator.step(*part)
    return torch.cat([parameter.full_tensor().detach().flatten() for parameter in model.parameters()])


def a_shard_goes_on_after_an_error(rank):
    """Raise in training on one process, and then train on."""
    model, _ = wrapped(network(), "fsdp2", PROCESSES)
    broken = [rank == 1]

    def loss(outputs, targets):
        if model.training and broken[0]:
            message = "this once"
            raise RuntimeError(message)
        return LOSS(outputs, targets)

    curator, part = curated(rank, model=model, group=None, loss=loss)
    with pytest.raises(RuntimeError, match="this once"):
        curator.step(*part)
    broken[0] = False
    curator.step(*part)
    return torch.cat([parameter.full_tensor().detach().flatten() for parameter in model.parameters()])


def in_parallel(rank):
    return on_one_dimension()


def features_in_parallel(rank):
    return on_one_dimension(ESTIMATORS[:3])


FOUND = (
    features_in_parallel,
    nothing_is_finite,
    a_loader_runs_dry,
    each_alone,
    groups_are_counted_together,
    a_shard_goes_on_after_an_error,
    a_block_raises_when_scored,
    an_interruption_comes_in_a_round,
    a_wrapper_that_sums,
    shards_that_are_summed,
)


def everything(rank, cases):
    """Run all of this on one start of the processes."""
    found = runs(rank, PROCESSES, cases)
    for work in [*ERRORS, *FOUND]:
        try:
            found[work.__name__] = work(rank)
        except (Exception, KeyboardInterrupt) as error:
            found[work.__name__] = (
                f"{type(error).__name__}: {error}\n{''.join(getattr(error, '__notes__', []))}"
            )
    return found


@pytest.fixture(scope="module")
def found():
    return launch(everything, PROCESSES, QUICK, timeout=120)


def one_process(model=None, **options):
    model = network() if model is None else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return lai_torch.Curator(model, LOSS, optimizer, options.pop("validation", batch(12, 1)), **options)


def rows_by_process():
    """Return the batch with process 0's rows first, as the processes see it."""
    inputs, targets = batch(8, 2)
    order = torch.cat([torch.arange(8)[rank::PROCESSES] for rank in range(PROCESSES)])
    return inputs[order], targets[order]


def check(parts, case, engine):
    got = [part[case, engine] for part in parts]
    assert not any(isinstance(one, str) for one in got), got
    assert all(one.bytes_reported == one.bytes_per_step > 0 for one in got)
    for name, error in errors(got, run(CASES[case])).items():
        assert error <= (1e-7 if name == "reports" and "warmup" in case else BOUND), name


@pytest.mark.parametrize(("case", "engine"), QUICK)
def test_processes_find_what_one_finds(found, case, engine):
    check(found, case, engine)


@pytest.mark.slow
def test_two_and_four_processes_find_what_one_finds_in_every_case():
    for processes, cases in ((PROCESSES, REST), (4, QUICK + [("uneven batches", each) for each in ENGINES])):
        parts = launch(runs, processes, processes, cases, timeout=400)
        for case, engine in cases:
            check(parts, case, engine)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:torch.distributed is disabled, unavailable or uninitialized")
def test_a_run_kept_by_many_processes_goes_on_with_any_number_of_them(tmp_path):
    expected = resumed(0, 1, None, range(8), str(tmp_path / "whole"))
    spread = [(2, "fsdp2", range(2)), (4, "group", range(2, 4)), (2, "ddp", range(4, 6))]
    for processes, engine, steps in spread:
        for found in launch(resumed, processes, processes, engine, steps, str(tmp_path), timeout=400):
            assert not isinstance(found, str), found
    assert largest(resumed(0, 1, None, range(6, 8), str(tmp_path)), expected) <= BOUND


def test_layers_parallel_over_features_find_what_whole_ones_find(found):
    for part in found:
        assert len(part["features_in_parallel"]) == 3
        for name, off in part["features_in_parallel"].items():
            assert max(off) <= BOUND, name


@pytest.mark.slow
def test_meshes_of_features_rows_and_shards_find_what_one_process_finds():
    for part in launch(on_two_dimensions, 4, timeout=400):
        assert not isinstance(part, str), part
        assert len(part) == 9
        for name, off in part.items():
            assert max(off) <= BOUND, name
    for part in launch(in_parallel, 2, timeout=400):
        assert len(part) == len(ESTIMATORS)
        assert all(max(off) <= BOUND for off in part.values()), part


@pytest.mark.parametrize("work", ERRORS, ids=lambda work: work.__name__)
def test_what_one_process_raises_all_raise(found, work):
    for part in found:
        assert ERRORS[work] in part[work.__name__]


@pytest.mark.parametrize("work", ["a_policy_raises", "a_loss_raises_when_scored"])
def test_the_error_says_where_it_happened(found, work):
    assert all("This happened on process 1 of 2" in part[work] for part in found)


def test_a_batch_without_a_finite_row_is_skipped_by_all(found):
    for part in found:
        assert part["nothing_is_finite"][0] == (True, 8, False, 0.0)
        skipped, dropped, kept, _ = part["nothing_is_finite"][1]
        assert (skipped, dropped, kept) == (False, 4, True)


def test_a_loader_that_runs_dry_on_one_process_leaves_the_others_batches(found):
    inputs, targets = batch(12, 3)
    first, second = torch.tensor([0, 1, 2, 3, 7, 8, 9, 10, 11]), torch.tensor([4, 5, 6])
    loader = iter([(inputs[first], targets[first]), (inputs[second], targets[second])])
    curator = one_process(validation=loader)
    for step in range(3):
        scores = torch.cat([part["a_loader_runs_dry"][step] for part in found])
        assert largest(scores, curator.step(*rows_by_process()).scores) <= BOUND


def test_a_process_may_train_a_model_of_its_own(found):
    assert all(part["each_alone"] is True for part in found)


def test_groups_are_those_of_the_whole_batch(found):
    groups = torch.cat([torch.arange(4) % 2] * PROCESSES)
    curator = one_process(policy=lai_torch.GroupFloor(0.5))
    numbers = curator.step(*rows_by_process(), groups=groups).group_drops
    named = curator.score(*rows_by_process(), groups=[*NAMES[0], *NAMES[1]])[1].group_drops
    assert set(named) == {"even", "odd", "third"}
    expected = numbers, named
    assert all(part["groups_are_counted_together"] == expected for part in found)


def test_sharded_training_goes_on_after_an_error(found):
    curator = one_process()
    curator.step(*rows_by_process())
    expected = torch.cat([parameter.detach().flatten() for parameter in curator.model.parameters()])
    for part in found:
        assert largest(part["a_shard_goes_on_after_an_error"], expected) <= BOUND


def test_a_block_that_raises_on_one_process_raises_on_all_and_training_goes_on(found):
    curator, _ = curated(0, group=None, refresh=2)
    inputs, targets = batch(8, 2)
    rows = torch.tensor([0, 2, 4, 6, 1, 3, 5])
    for _ in range(2):
        curator.step(inputs[rows], targets[rows])
    expected = torch.cat([parameter.detach().flatten() for parameter in curator.model.parameters()])
    for part in found:
        said, parameters = part["a_block_raises_when_scored"]
        assert len(said) == 2
        for (message, *notes), where in zip(said, ("while tracing the validation set: ", ""), strict=True):
            assert message == f"{where}this block cannot be computed"
            assert any("This happened on process 1 of 2" in note for note in notes)
        assert largest(parameters, expected) <= BOUND


def test_an_interruption_in_a_round_is_raised_on_all_processes_and_training_goes_on(found):
    names = ("RuntimeError", "KeyboardInterrupt")
    for name, part in zip(names, found, strict=True):
        (kind, note), updated, steps = part["an_interruption_comes_in_a_round"]
        assert kind == name
        assert "This happened on process 1 of 2" in note
        assert updated
        assert steps == 2


@pytest.mark.parametrize("work", [a_wrapper_that_sums, shards_that_are_summed])
def test_a_wrapper_that_sums_is_found_out(found, work):
    curator = one_process()
    for _ in range(2):
        curator.step(*rows_by_process())
    expected = torch.cat([parameter.detach().flatten() for parameter in curator.model.parameters()])
    for part in found:
        assert largest(part[work.__name__], expected) <= BOUND


def test_a_model_spread_over_devices_is_refused():
    with pytest.raises(ValueError, match=re.escape("got DataParallel; use one of those")):
        one_process(model=nn.DataParallel(network()))


def test_a_group_needs_processes():
    with pytest.raises(ValueError, match=r"group: expected torch.distributed to be initialized"):
        one_process(group=dist.group.WORLD or object())
