"""What a user is likely to hand over by mistake is named, with the way out, before anything changes."""

import copy
import pickle
import re
import subprocess
import sys
import warnings

import lai_torch
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import lai_core as lai
from tests.lai_torch.support import HALF, LOSS, curated, data, network


class OwnError(Exception):
    """An error that is not made of a message alone."""

    def __init__(self, code, text):
        super().__init__(code, text)


def test_an_error_of_another_kind_on_the_validation_set_keeps_its_kind():
    def failing(outputs, targets):
        raise OwnError(3, "no")

    with pytest.raises(OwnError) as caught:
        curated(network(), data(5), loss=failing).step(*data(4))
    assert caught.value.__notes__ == ["This happened while tracing the validation set."]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda m, v: curated(m, list(v)),
            "got list whose parts are no pairs; pass a tuple",
        ),
        (
            lambda m, v: curated(m, TensorDataset(*v)),
            "got TensorDataset; pass torch.utils.data.DataLoader(dataset",
        ),
        (lambda m, v: curated(m, {"x": 1.0}), "that hold tensors, got (dict, dict); pass"),
        (
            lambda m, v: curated(m, (v[0].numpy(), v[1].numpy())),
            "got (ndarray, ndarray); pass torch.as_tensor",
        ),
        (
            lambda m, v: lai_torch.Curator(m, LOSS, torch.optim.SGD, v),
            "optimizer: expected a torch.optim.Optimizer, got the class SGD; make one, such as",
        ),
        (
            lambda m, v: lai_torch.Curator(m, LOSS, "sgd", v),
            "optimizer: expected a torch.optim.Optimizer, got",
        ),
        (
            lambda m, v: lai_torch.Curator(abs, LOSS, None, v),
            "model: expected a torch.nn.Module, got",
        ),
        (
            lambda m, v: curated(m, v, loss="mse"),
            "loss: expected a function loss(outputs, targets)",
        ),
        (
            lambda m, v: curated(m, v, generator=3),
            "generator: expected a torch.Generator on the CPU",
        ),
        (
            lambda m, v: curated(m, v, policy=lai.keep_top),
            "got keep_top (missing a required argument: 'frac",
        ),
        (lambda m, v: curated(m, v, policy=lai_torch.KeepAbove), "got the class KeepAbove; call it"),
        (
            lambda m, v: curated(m, v, policy="Keep_Postive"),
            "got 'Keep_Postive'; pass lai_core.keep_p",
        ),
    ],
)
def test_what_is_of_a_wrong_kind_is_named_when_a_curator_is_made(make, message):
    with pytest.raises(TypeError, match=re.escape(message)):
        make(network(), data(5))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda m, v: curated(m, v, share="all"), "share: expected a share in (0, 1], got 'all'"),
        (lambda m, v: lai_torch.GroupFloor("all"), "share: expected a share in [0, 1], got 'all'"),
        (
            lambda m, v: curated(m, v, max_norm="all"),
            "max_norm: expected a number above 0, or None, got 'all'",
        ),
        (lambda m, v: curated(m, v, max_norm=True), "max_norm: expected a number above 0, or None, got True"),
        (lambda m, v: lai_torch.LAI(positions="token"), "did you mean 'tokens'?"),
        (lambda m, v: lai_torch.AuditLog("."), "path: expected a file in a folder that exists, got '.'"),
    ],
)
def test_a_value_that_cannot_be_is_named(make, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make(network(), data(5))


def test_a_list_of_pairs_is_a_loader_and_one_of_triples_is_told_what_to_collate():
    curated(network(), [data(4), data(3)]).step(*data(4))
    with pytest.raises(TypeError, match="got tuple; pass one whose collate_fn returns such"):
        curated(network(), iter([(*data(4), 1)])).step(*data(4))


@pytest.mark.parametrize(("side", "name"), [(0, "inputs"), (1, "targets")])
def test_a_batch_on_another_device_is_named_by_its_side(side, name):
    model, batch = network(), list(data(4))
    batch[side] = batch[side].to("meta")
    before = [parameter.clone() for parameter in model.parameters()]
    message = f"{name}: expected tensors on the model's device, cpu, got one on meta; move the batch there"
    with pytest.raises(ValueError, match=re.escape(message)):
        curated(model, data(5)).step(*batch)
    assert all(map(torch.equal, before, model.parameters()))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
@pytest.mark.parametrize("run", [lai_torch.trace, lai_torch.coverage, lai_torch.selfcheck])
def test_a_nested_tensor_is_named(layout, run):
    rows = torch.nested.nested_tensor([torch.randn(3, 4), torch.randn(2, 4)], layout=layout)
    with pytest.raises(ValueError, match=r"inputs: expected dense tensors, .* got a nested one; pad it"):
        run(network(), LOSS, rows, torch.tensor([0, 1]))


def test_a_sparse_tensor_is_named():
    inputs, targets = data(4)
    with pytest.raises(
        ValueError, match=r"inputs: expected dense tensors, .* sparse_coo one; pass .to_dense"
    ):
        lai_torch.exact_scores(network(), LOSS, (inputs, targets), (inputs.to_sparse(), targets))


def test_a_validation_set_without_numbers_is_named():
    inputs, targets = data(4)
    with pytest.raises(ValueError, match="validation: expected tensors that hold numbers"):
        curated(network(), (inputs.to("meta"), targets)).score(inputs, targets)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_curator_is_not_copied(copied):
    with pytest.raises(TypeError, match=r"curator: expected no copy of one, .* hand over state_dict\(\)"):
        copied(curated(network(), data(5)))


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_a_step_needs_gradients_and_scores_do_not(off):
    curator = curated(network(), data(5))
    with off():
        with pytest.raises(ValueError, match=re.escape(f"a call under torch.{off.__name__}(); leave it")):
            curator.step(*data(4))
        curator.score(*data(4))
    assert curator.step(*data(4)).updated


@pytest.mark.parametrize("estimator", ["lai", "ghost", "exact"])
def test_a_step_on_a_frozen_model_is_refused_before_it_runs(estimator):
    model = network()
    curator = curated(model, data(5), estimator=estimator)
    model.requires_grad_(False)
    with pytest.raises(ValueError, match="model: expected at least one trainable parameter to step"):
        curator.step(*data(4))
    if estimator == "ghost":
        with pytest.raises(ValueError, match="while tracing the validation set: model: expected at"):
            curator.score(*data(4))


def test_a_refresh_that_costs_more_than_a_step_says_which_would_not():
    curator = curated(network(), data(40), refresh=2)
    for _ in range(2):
        curator.step(*data(4))
    message = (
        "refresh: tracing 40 validation samples every 2 steps costs 1.2 times a step on 4 samples; "
        "refresh=4 halves that, refresh=5 makes it half of a step"
    )
    with pytest.warns(UserWarning, match=re.escape(message)):
        curator.step(*data(4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(4):
            curator.step(*data(4))  # once


BATCH = torch.randn(6, 4), torch.arange(6) % 3
SQUARES = nn.MSELoss(reduction="none")


class Complex(nn.Module):
    """Ends in a layer of complex numbers."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3, dtype=torch.cfloat)

    def forward(self, inputs):
        return self.head(inputs.to(torch.cfloat)).abs()


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize(
    ("score", "error", "message"),
    [
        (
            lambda: lai_torch.trace(nn.Linear(4, 1), SQUARES, BATCH[0], torch.randn(6)),
            ValueError,
            "shape (6,), got (6, 6): outputs and targets may have broadcast, as (n, 1) and (n,) do; give",
        ),
        (
            lambda: lai_torch.trace(nn.Linear(4, 1), SQUARES, BATCH[0], torch.randn(6, 1)),
            ValueError,
            "shape (6,), got (6, 1): sum over everything but the first axis",
        ),
        (
            lambda: lai_torch.trace(Complex(), LOSS, *BATCH),
            ValueError,
            "model: expected a last layer of real numbers, got 'head.weight' of torch.complex64",
        ),
        (
            lambda: lai_torch.trace(nn.Linear(4, 3), LOSS, *(side.numpy() for side in BATCH)),
            ValueError,
            "got none (ndarray, ndarray); pass torch.as_tensor(...) of each",
        ),
        (
            lambda: lai_torch.trace(nn.Linear(4, 3), LOSS, BATCH[0].numpy(), BATCH[1]),
            TypeError,
            "inputs: expected a tensor, a tuple or a mapping, got ndarray; pass torch.as_tensor(inputs)",
        ),
        (
            lambda: curated(nn.Linear(4, 3), BATCH).step(*BATCH, groups=[0, 1, 0, 1, 0, 1]),
            TypeError,
            "groups: expected a tensor of whole numbers, or a list of text, one per sample, got list",
        ),
    ],
)
def test_a_mistake_with_a_batch_is_answered_by_what_mends_it(score, error, message):
    with pytest.raises(error, match=re.escape(message)):
        score()


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        ("Curator(positions=)", "it belongs to estimator=lai_torch.LAI(positions=...)"),
        ("Curator(decay=)", "it belongs to estimator=lai_torch.PreconditionedLAI(decay=...)"),
        ("Curator(autocast=)", "estimator=lai_torch.LAI(autocast=...), or backward=lai_torch.Kept(autocast="),
        (
            "Curator(max_grad_norm=)",
            "it belongs to TrainingArguments(max_grad_norm=...), or Curator(max_norm=",
        ),
        ("Curator(threshold=)", "it belongs to policy=lai_torch.KeepAbove(threshold=...)"),
        ("Curator(fraction=)", "it belongs to policy=functools.partial(lai_core.keep_top, fraction=...)"),
        ("Curator(criterion=)", "did you mean 'loss'?"),
        ("Curator(clip=)", "did you mean 'max_norm'?"),
        ("Curator(warmup_step=)", "did you mean 'warmup'?"),
        ("Curator(treshold=)", "it belongs to policy=lai_torch.KeepAbove(threshold=...)"),
        ("Curator(colour=)", "there are model, loss, optimizer, validation, estimator"),
        ("LAI(decay=)", "it belongs to estimator=lai_torch.PreconditionedLAI(decay=...)"),
        ("Kept(max_norm=)", "there are autocast, scaler, balance, auxiliary"),
        ("score_dataset(batchsize=)", "did you mean 'batch_size'?"),
    ],
)
def test_an_unknown_keyword_is_answered_by_where_it_belongs(call, answer):
    name, _, keyword = call[:-2].partition("(")
    given = (network(), LOSS, None, data(5)) if name == "Curator" else ()
    message = f"{name}() got an unexpected keyword argument {keyword!r}; "
    with pytest.raises(TypeError, match=re.escape(message) + ".*" + re.escape(answer)):
        getattr(lai_torch, name)(*given, **{keyword: 1})


def test_fifty_steps_that_keep_nothing_are_told_once(monkeypatch):
    """As many in a row, here five: one that keeps something begins the count anew."""
    assert lai_torch.curator.EMPTY == 50
    monkeypatch.setattr(lai_torch.curator, "EMPTY", 5)
    nothing = torch.zeros_like
    curator = curated(network(), data(5), policy=nothing, estimator="lli")
    batch = data(4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kept in (False, True, False):
            curator.policy = HALF if kept else nothing
            for _ in range(4):
                curator.step(*batch)
    with pytest.warns(UserWarning, match="policy: nothing was kept in 5 steps in a row, so that nothing"):
        curator.step(*batch)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(6):
            curator.step(*batch)


def test_what_is_printed_is_a_line():
    curator = curated(network(), data(40), estimator=lai_torch.LAI(chunk=2))
    report = curator.step(*data(4))
    assert repr(curator) == "Curator(LAI(chunk=2), validation=tuple, steps=1, skipped=0)"
    line = r"Report\(step=0, samples=4, kept=\d, dropped=0, loss=\S+, (updated|skipped), backward='kept'\)"
    assert re.fullmatch(line, repr(report))
    trace = lai_torch.trace(network(), LOSS, *data(4))
    assert repr(trace.layers[1]) == (
        "LayerTrace(activations=(4, 8), output_gradients=(4, 3), bias=True, weight='2.weight', name='2')"
    )


def test_weights_that_carry_a_graph_are_taken_without_it():
    report = curated(network(), data(5), policy=lambda s: torch.ones_like(s, requires_grad=True)).step(
        *data(4)
    )
    assert not report.weights.requires_grad


@pytest.mark.parametrize(("name", "extra"), [("lai_torch", "torch"), ("lai_jax", "jax")])
def test_without_its_framework_an_adapter_names_the_extra(name, extra):
    code = f"import sys; sys.modules[{extra!r}] = None; import {name}"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"which is not installed; pip install 'lai-core[{extra}]' adds it" in found.stderr


def test_a_model_that_is_mostly_frozen_is_named_once():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)).double()
    model[:4].requires_grad_(False)
    curator = curated(model, data(5))
    with pytest.warns(UserWarning, match="2 of the 3 layers whose inputs LAI reads are frozen"):
        curator.step(*data(4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        curator.step(*data(4))
        curated(model, data(5), estimator="lli").step(*data(4))  # whose head trains
        curated(model, data(5), estimator="ghost").step(*data(4))
    model.requires_grad_(True)[4].requires_grad_(False)
    curator = curated(model, data(5), estimator="lli")
    with pytest.warns(UserWarning, match="LLI scores the last layer alone, '4', which is frozen"):
        curator.step(*data(4))
