"""A table of a data set's scores: right, with honest errors, and nothing lost or doubled by a kill."""

import lai_torch
import numpy as np
import pandas as pd
import pytest
import torch
from datasets import Dataset
from lai_storage.tables import read_scores
from torch.utils.data import DataLoader, TensorDataset, default_collate

import lai_core as lai
from tests.lai_torch.process_support import scored_in_parts
from tests.lai_torch.tables import COLUMNS, LOSS, NAMES, Stream, drawn, items, network, scored
from tests.support.workloads import torch_processes as processes
from tests.support.workloads.launches import launch


@pytest.mark.parametrize("estimator", ["lai", "ghost", "lli", "exact", "gate_lai"])
def test_scores_and_losses_are_those_of_a_curator_in_any_batches(tmp_path, estimator):
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
def test_one_sample_a_part_gives_the_textbook_standard_error_and_the_gradients_norm(tmp_path, estimator):
    data, validation, model = drawn(9), drawn(20, 2), network()
    sides = [lai_torch.trace(model, LOSS, *side, gradients="all") for side in (validation, data)]
    kernel = getattr(lai, f"{estimator}_kernel")
    table = scored(tmp_path, data, validation, model, estimator=estimator, parts=20, batch_size=4)
    np.testing.assert_allclose(table["standard_error"], (20 * kernel(*sides).var(0, correction=1)).sqrt())
    np.testing.assert_allclose(table["gradient_norm"], kernel(sides[1], sides[1]).diagonal().sqrt())


def test_standard_errors_of_parts_are_as_large_as_the_spread_over_drawn_validation_sets(tmp_path):
    data, everyone = drawn(6), drawn(3600, 3)
    tables = [
        scored(tmp_path / str(draw), data, tuple(side[draw * 60 : (draw + 1) * 60] for side in everyone))
        for draw in range(60)
    ]
    spread = np.std([table["score"] for table in tables], axis=0, ddof=1)
    stated = np.sqrt(np.mean(np.square([table["standard_error"] for table in tables]), axis=0))
    np.testing.assert_allclose(stated, spread, rtol=0.3)  # the spread itself is known to 1 / sqrt(118)


@pytest.mark.parametrize("options", [{"parts": None}, {"estimator": "exact"}])
def test_without_parts_no_error_is_stated(tmp_path, options):
    table = scored(tmp_path, drawn(4), drawn(8, 2), **options)
    assert np.isnan(table["standard_error"]).all()


def test_a_sample_that_is_not_finite_has_no_rank(tmp_path):
    inputs, targets = drawn(6)
    inputs[2, 0] = torch.inf
    table = scored(tmp_path, (inputs, targets), drawn(8, 2))
    assert [rank is None for rank in table["rank"]] == [False, False, True, False, False, False]


@pytest.mark.slow
def test_processes_of_a_group_that_begin_at_once_share_a_data_set(tmp_path):
    assert launch(scored_in_parts, 2, str(tmp_path / "shared")) == [None, None]
    data, validation = processes.batch(40, 1), processes.batch(12, 2)
    options = {"rows_per_file": 8, "progress": False}
    alone = lai_torch.score_dataset(
        processes.network(), processes.LOSS, data, validation, tmp_path / "alone", **options
    )
    assert read_scores(tmp_path / "shared").equals(alone)


def test_checkpoints_stand_one_after_the_other_or_are_averaged(tmp_path):
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
    """A network with an attribute, a buffer that no state dict has, and a loss of its own."""

    def __init__(self, factor=1.0, shift=0.0, net=None):
        super().__init__()
        self.net, self.factor = net or network(), factor
        self.register_buffer("shift", torch.tensor(shift, dtype=torch.double), persistent=False)

    def forward(self, inputs):
        return self.net(inputs) * self.factor + self.shift


OTHER_RUNS = {
    "estimator": ("estimator", {"estimator": "ghost"}),
    "parameters": ("model", {"model": Scaled(net=network(4))}),
    "a frozen layer": ("model", {"model": Scaled(net=network().requires_grad_(requires_grad=False))}),
    "a buffer without a name": ("model", {"model": Scaled(shift=0.1)}),
    "an attribute": ("model", {"model": Scaled(factor=1.0 + 1e-9)}),
    "a hook": ("model", {"model": Scaled(), "hook": True}),
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
def test_a_folder_of_other_scores_is_refused_by_what_differs(tmp_path, case):
    name, changed = OTHER_RUNS[case]
    given = {"data": drawn(6), "validation": drawn(8, 2), "model": Scaled(), "loss": LOSS}
    first = scored(tmp_path, **given)
    given = {**given, "model": Scaled()}
    assert scored(tmp_path, **given) == first  # what is made anew alike is the same run
    given |= changed
    if given.pop("hook", False):
        given["model"].net[1].register_forward_hook(lambda module, inputs, outputs: outputs * 2)
    written = {path: path.read_bytes() for path in tmp_path.rglob("*.*")}
    with pytest.raises(ValueError, match=rf"^{name}: expected .*pass .*another folder"):
        scored(tmp_path, **given)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.*")} == written


def test_a_run_that_goes_on_halfway_checks_what_is_there(tmp_path):
    data, validation, options = drawn(20), drawn(8, 2), {"rows_per_file": 5}
    scored(tmp_path, data, validation, **options)
    (tmp_path / "part-000002.parquet").unlink()
    changed = data[0].clone(), data[1]
    changed[0][17] += 1
    with pytest.raises(ValueError, match=r"^dataset: .*part-000003.* same ids with another content"):
        scored(tmp_path, changed, validation, **options)


class Broken(TensorDataset):
    def __getitem__(self, index):
        if index == 3:
            raise KeyError("the fourth")
        return super().__getitem__(index)


UNFIT = {
    "workers": (
        DataLoader(Broken(*drawn(6)), num_workers=1),
        "dataset: expected samples that its workers load",
    ),
    "shapes": ([(torch.ones(2), 1), (torch.ones(3), 1)], "dataset: expected samples of one shape"),
    "keys": ([{"x": 1, "y": 2}, {"x": 1}], "dataset: expected samples that are all pairs"),
    "texts": (["ab", "cd"], "dataset: expected samples that are all pairs"),
    "a filter": (
        DataLoader(TensorDataset(*drawn(6)), collate_fn=lambda items: default_collate(items[:1])),
        "dataset: expected a collation that keeps 6 samples, got 3 from it",
    ),
    "a filter of a stream": (
        DataLoader(Stream(zip(*drawn(6), strict=True)), collate_fn=lambda items: default_collate(items[:1])),
        "dataset: expected a collation that keeps 2 samples, got 1 from it",
    ),
    "no collation": (DataLoader(TensorDataset(*drawn(6)), batch_size=None), "dataset: expected a DataLoader"),
}


@pytest.mark.filterwarnings("ignore:.*fork", "ignore::pytest.PytestUnraisableExceptionWarning")  # of jax
@pytest.mark.parametrize("case", UNFIT)
def test_data_that_make_no_batches_are_named(tmp_path, case):
    data, message = UNFIT[case]
    with pytest.raises((TypeError, ValueError), match=f"^({message})"):
        scored(tmp_path, data, drawn(8, 2), batch_size=2)
    assert not list(tmp_path.glob("*.parquet"))


@pytest.mark.parametrize("case", ["not a file", "other kind", "cut short"])
def test_a_checkpoint_of_another_kind_is_named(tmp_path, case):
    torch.save(network().state_dict(), tmp_path / "whole.pt")
    (tmp_path / "cut.pt").write_bytes((tmp_path / "whole.pt").read_bytes()[:200])
    torch.save(network(), tmp_path / "pickled.pt")
    given = {
        "not a file": {"0.weight": torch.ones(2)},
        "other kind": tmp_path / "pickled.pt",
        "cut short": tmp_path / "cut.pt",
    }[case]
    with pytest.raises(
        ValueError, match=r"^checkpoints\['a'\]: expected a state dict of the model, or the path"
    ):
        scored(tmp_path / "table", drawn(6), drawn(8, 2), checkpoints={"a": given})


def test_a_validation_set_that_was_saved_serves_a_table_too(tmp_path):
    data, validation = drawn(20), drawn(8, 2)
    whole = scored(tmp_path / "whole", data, validation)
    lai_torch.Scorer(network(), LOSS, validation).save(tmp_path / "validation")
    assert scored(tmp_path / "saved", data, tmp_path / "validation") == whole


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("estimator", ["ghost", "lai", "lli"])
def test_top_samples_are_the_extremes_of_the_kernel(estimator, relative):
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


def test_items_that_are_dictionaries_have_ids_and_groups_in_a_stream_and_in_a_data_set(tmp_path):
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
        "a Series": pd.Series(found, index=[*range(len(found))][::-1]),
        "rows of datasets": Dataset.from_list(found),
        "stream of datasets": Dataset.from_list(found).to_iterable_dataset(),
    }.items():
        for form, side in validations.items():
            assert scored(tmp_path / f"{name} {form}", given, side, **COLUMNS) == whole
            given = given if name.endswith("datasets") else found


def test_a_stream_goes_on_where_it_stopped_and_scores_nothing_twice(tmp_path):
    data, validation = drawn(20), drawn(8, 2)
    stream = Stream(items(data, NAMES))
    whole = scored(tmp_path / "whole", stream, validation, **COLUMNS)
    assert stream.read == 20
    folder = tmp_path / "stopped"

    def failing():
        for number, item in enumerate(stream):
            if number == 17:
                raise KeyboardInterrupt
            yield item

    with pytest.raises(KeyboardInterrupt):
        scored(folder, failing(), validation, **COLUMNS)
    with pytest.raises(ValueError, match="a stream up to its end, which is missing: start the same"):
        read_scores(folder)
    written = {path: path.stat().st_mtime_ns for path in folder.glob("*.parquet")}
    assert len(written) == 2
    assert scored(folder, stream, validation, **COLUMNS) == whole
    assert {path: path.stat().st_mtime_ns for path in written} == written
