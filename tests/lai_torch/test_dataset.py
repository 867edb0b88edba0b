"""A table of a data set's scores: right, with honest errors, and nothing lost or doubled by a kill."""

import lai_torch
import numpy as np
import pytest
import torch
from datasets import Dataset
from lai_storage.tables import read_scores
from torch.utils.data import DataLoader, TensorDataset

import lai_core as lai
from tests.lai_torch.process_support import scored_in_parts
from tests.lai_torch.support import LOSS, drawn
from tests.lai_torch.tables import COLUMNS, NAMES, items, network, scored
from tests.support.workloads import torch_processes as processes
from tests.support.workloads.launches import launch


@pytest.mark.parametrize("estimator", ["lai", "ghost", "lli", "exact", "gate_lai"])
def test_scores_are_a_curators(tmp_path, estimator):
    data, validation, model = drawn(23), drawn(20, 2), network()
    curator = lai_torch.Curator(model, LOSS, None, validation, estimator=estimator)
    _, report = curator.score(*data)
    table = scored(tmp_path, data, validation, model, estimator=estimator, batch_size=5, rows_per_file=8)
    assert table["id"] == list(range(23))
    np.testing.assert_allclose(table["score"], report.scores, rtol=1e-10)
    np.testing.assert_allclose(table["loss"], report.losses, rtol=1e-12)
    order = np.argsort(report.scores.numpy())
    assert [table["rank"][index] for index in order] == list(range(1, 24))


@pytest.mark.parametrize("estimator", ["lai", "ghost", "lli"])
def test_standard_errors_and_gradient_norms(tmp_path, estimator):
    data, validation, model = drawn(9), drawn(20, 2), network()
    sides = [lai_torch.trace(model, LOSS, *side, gradients="all") for side in (validation, data)]
    kernel = getattr(lai, f"{estimator}_kernel")
    table = scored(tmp_path, data, validation, model, estimator=estimator, parts=20, batch_size=4)
    np.testing.assert_allclose(table["standard_error"], (20 * kernel(*sides).var(0, correction=1)).sqrt())
    np.testing.assert_allclose(table["gradient_norm"], kernel(sides[1], sides[1]).diagonal().sqrt())


@pytest.mark.slow
def test_processes_share_a_data_set(tmp_path):
    assert launch(scored_in_parts, 2, str(tmp_path / "shared")) == [None, None]
    data, validation = processes.batch(40, 1), processes.batch(12, 2)
    options = {"rows_per_file": 8, "progress": False}
    alone = lai_torch.score_dataset(
        processes.network(), processes.LOSS, data, validation, tmp_path / "alone", **options
    )
    assert read_scores(tmp_path / "shared").equals(alone)


def test_checkpoints_follow_or_are_averaged(tmp_path):
    data, validation, model = drawn(6), drawn(8, 2), network()
    states = {name: network(seed).state_dict() for name, seed in {"early": 5, "late": 6}.items()}
    torch.save(states["late"], tmp_path / "late.pt")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    checkpoints = {"early": states["early"], "late": tmp_path / "late.pt"}
    table = scored(tmp_path / "table", data, validation, model, checkpoints=checkpoints)
    alone = [scored(tmp_path / str(seed), data, validation, network(seed))["score"] for seed in (5, 6)]
    assert table["checkpoint"] == ["early"] * 6 + ["late"] * 6
    np.testing.assert_array_equal(table["score"], np.concatenate(alone))
    averaged = read_scores(tmp_path / "table", average=True).to_pydict()
    np.testing.assert_allclose(averaged["score"], np.mean(alone, axis=0))
    assert sorted(averaged["rank"]) == list(range(1, 7))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.training


class Scaled(torch.nn.Module):
    """A network with a buffer that no state dict has."""

    def __init__(self, shift=0.0, net=None):
        super().__init__()
        self.net = net or network()
        self.register_buffer("shift", torch.tensor(shift, dtype=torch.double), persistent=False)

    def forward(self, inputs):
        return self.net(inputs) + self.shift


OTHER_RUNS = {
    "estimator": ("estimator", {"estimator": "ghost"}),
    "an estimator's function": ("model", {"estimator": lai_torch.LAI(valid=len)}),
    "parameters": ("model", {"model": Scaled(net=network(4))}),
    "a buffer without a name": ("model", {"model": Scaled(shift=0.1)}),
    "a class": ("model", {"model": Scaled(net=network().insert(1, torch.nn.GELU()))}),
    "a frozen layer": ("model", {"model": Scaled(net=network().requires_grad_(requires_grad=False))}),
    "a setting of a loss": (
        "loss",
        {"loss": torch.nn.CrossEntropyLoss(reduction="none", label_smoothing=0.1)},
    ),
    "validation": ("validation", {"validation": drawn(8, 3)}),
    "a loss's parameters": (
        "loss",
        {"loss": torch.nn.CrossEntropyLoss(reduction="none", weight=torch.ones(3, dtype=torch.double) * 2)},
    ),
    "samples": ("samples", {"data": drawn(7)}),
    "contents": ("dataset", {"data": (drawn(6)[0] + 1e-12, drawn(6)[1])}),
    "targets": ("dataset", {"data": (drawn(6)[0], drawn(6)[1].flip(0))}),
}


@pytest.mark.parametrize("case", OTHER_RUNS)
def test_folders_of_other_scores_are_refused(tmp_path, case):
    name, changed = OTHER_RUNS[case]
    given = {"data": drawn(6), "validation": drawn(8, 2), "model": Scaled(), "loss": LOSS}
    first = scored(tmp_path, **given)
    given = {**given, "model": Scaled()}
    assert scored(tmp_path, **given) == first  # what is made anew alike is the same run
    given |= changed
    written = {path: path.read_bytes() for path in tmp_path.rglob("*.*")}
    with pytest.raises(ValueError, match=rf"^{name}: expected .*pass .*another folder"):
        scored(tmp_path, **given)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.*")} == written


def test_other_checkpoints_are_named(tmp_path):
    torch.save(network(), tmp_path / "pickled.pt")
    message = r"^checkpoints\['a'\]: expected a state dict of the model, or the path"
    for given in ({"0.weight": torch.ones(2)}, tmp_path / "pickled.pt"):
        with pytest.raises(ValueError, match=message):
            scored(tmp_path / "table", drawn(6), drawn(8, 2), checkpoints={"a": given})


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("estimator", ["ghost", "lai", "lli"])
def test_top_samples_are_extremes(estimator, relative):
    data, validation, model = drawn(23), drawn(3, 2), network()
    model.append(torch.nn.Dropout(0.5))  # silent: scores are of the model in eval mode
    options = {"estimator": estimator, "relative": relative, "top": 2, "batch_size": 5, "progress": False}
    found = lai_torch.top_samples(model, LOSS, TensorDataset(*data), validation, **options)
    assert model.training
    sides = [lai_torch.trace(model.eval(), LOSS, *side, gradients="all") for side in (validation, data)]
    kernel = getattr(lai, f"{estimator}_kernel")
    lengths = kernel(sides[1], sides[1]).diagonal().sqrt() if relative else 1.0
    for row, scores in enumerate(kernel(*sides) / lengths):
        of_row = [each for each in found.to_pylist() if each["validation"] == row]
        helps = scores.argsort(descending=True)[:2], scores.argsort()[:2]
        assert [each["id"] for each in of_row] == [*helps[0].tolist(), *helps[1].tolist()]
        expected = [float(scores[each["id"]]) for each in of_row]
        np.testing.assert_allclose([each["score"] for each in of_row], expected, rtol=1e-10)


def test_dictionaries_have_ids_and_groups(tmp_path):
    data, validation = drawn(20), drawn(8, 2)
    named = {"ids": NAMES, "groups": [name[0] for name in NAMES], "batch_size": 7, "rows_per_file": 8}
    whole = scored(tmp_path / "whole", data, validation, **named)
    found = items(data, NAMES)
    validations = {"pair": validation, "columns": dict(zip("xy", validation, strict=True))}
    validations["items"] = items(validation, NAMES[:8])
    for name, given in {
        "stream": iter(found),
        "set": found,
        "loader": DataLoader(found, batch_size=2, shuffle=True),
        "rows of datasets": Dataset.from_list(found),
        "stream of datasets": Dataset.from_list(found).to_iterable_dataset(),
    }.items():
        for form, side in validations.items():
            assert scored(tmp_path / f"{name} {form}", given, side, **COLUMNS) == whole
            given = given if name.endswith("datasets") else found
