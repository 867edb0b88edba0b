"""A table of a data set's scores, taken up where it stopped, and a scorer that gives its numbers anywhere."""

import pickle

import jax
import jax.numpy as jnp
import lai_jax
import lai_storage
import numpy as np
import pandas as pd
import pytest
from lai_storage.tables import read_scores

import lai_core as lai
from tests.lai_jax.support import computed, dense, drawn, squares, stepped, vectors


def weights(scale=1.0):
    return {"w": scale * drawn(4, 7), "o": drawn(7, 3)}


DATA, VALIDATION = (tuple(map(np.asarray, vectors(samples, seed=samples))) for samples in (11, 6))


def scored(folder, **options):
    options = {"progress": False, "batch_size": 4, "rows_per_file": 6} | options
    table = lai_jax.score_dataset(dense, weights(), squares, DATA, VALIDATION, folder, **options)
    return (read_scores(folder) if table is None else table).to_pydict()


def kernel_of(estimator):
    """Return an estimator's kernel, and the traces of both sides."""
    model = dense, weights(), squares
    traces = [computed(lai_jax.trace, *model, *side, gradients="all") for side in (VALIDATION, DATA)]
    return getattr(lai, f"{estimator}_kernel"), *traces


@pytest.mark.parametrize("estimator", ["lai", "ghost", "lli"])
def test_parts_of_one_match_the_kernel(tmp_path, estimator):
    kernel, *traced = kernel_of(estimator)
    pairs = kernel(*traced)
    table = scored(tmp_path, estimator=estimator, parts=6)
    np.testing.assert_allclose(table["score"], pairs.sum(0), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(table["standard_error"], np.sqrt(6 * pairs.var(0, ddof=1)))
    np.testing.assert_allclose(table["gradient_norm"], np.sqrt(np.diag(kernel(traced[1], traced[1]))))
    np.testing.assert_allclose(table["loss"], squares(dense(weights(), DATA[0]), DATA[1]))


def test_other_captured_arrays_are_another_model(tmp_path):
    """The frozen base of an adapter that begins at zero, say: equal parameters, other scores."""

    def build(base):
        return lambda params, inputs: dense(params, inputs + base)

    for base in (0.0, 1.0):
        given = build(jnp.full((), base)), weights(), squares
        scorer = lai_jax.Scorer(*given, VALIDATION, batch_size=4)
        if not base:
            lai_jax.score_dataset(*given, DATA, VALIDATION, tmp_path / "table", progress=False)
            scorer.save(tmp_path / "side")
    with pytest.raises(ValueError, match="model: expected the one with which the scores"):
        lai_jax.score_dataset(*given, DATA, VALIDATION, tmp_path / "table", progress=False)
    with pytest.raises(ValueError, match="validation: "):
        lai_jax.Scorer(*given, tmp_path / "side", batch_size=4)(DATA)


@pytest.mark.parametrize("estimator", ["exact", "gate_lai", "calibrated_lai"])
def test_other_estimators_score_like_steps(tmp_path, estimator):
    report = stepped((dense, weights(), squares), VALIDATION, DATA, estimator=estimator)[2]
    table = scored(tmp_path, estimator=estimator, parts=None)
    np.testing.assert_allclose(table["score"], report.scores, rtol=1e-9)
    assert np.isnan(table["standard_error"]).all()


def test_runs_resume_and_average_checkpoints(tmp_path):
    checkpoints = {"a": weights(0.5), "b": weights(0.9)}
    whole = scored(tmp_path / "whole", checkpoints=checkpoints)
    folder = tmp_path / "shared"
    for index in (0, 1):
        options = {"checkpoints": checkpoints, "process": (index, 2)}
        if index == 0:
            with pytest.raises(ValueError, match="1 of 2 parts"):
                scored(folder, **options)
        else:
            assert scored(folder, **options) == whole
    averaged = read_scores(folder, average=True).to_pydict()
    np.testing.assert_allclose(averaged["score"], np.reshape(whole["score"], (2, 11)).mean(0))
    with pytest.raises(ValueError, match=r"^model: expected .*pass another folder"):
        scored(folder, checkpoints=checkpoints | {"b": weights(1.1)})


@pytest.mark.parametrize(("estimator", "relative"), [("lai", False), ("ghost", False), ("lai", True)])
def test_top_samples_are_kernel_extremes(estimator, relative):
    kernel, *sides = kernel_of(estimator)
    lengths = np.sqrt(np.diag(kernel(sides[1], sides[1]))) if relative else 1.0
    options = {"estimator": estimator, "relative": relative, "top": 2, "batch_size": 4, "progress": False}
    found = lai_jax.top_samples(dense, weights(), squares, DATA, VALIDATION, **options).to_pylist()
    for row, scores in enumerate(kernel(*sides) / lengths):
        order = np.argsort(scores)
        expected = [each for each in order[:-3:-1] if scores[each] > 0]
        expected += [each for each in order[:2] if scores[each] < 0]
        of_row = [each for each in found if each["validation"] == row]
        assert [each["id"] for each in of_row] == expected
        np.testing.assert_allclose([each["score"] for each in of_row], scores[expected], rtol=1e-10)


COLUMNS = {
    "uid": [f"s{n}" for n in range(11)],
    "x": DATA[0].tolist(),
    "y": DATA[1].tolist(),
    "kind": [*"abcdefghijk"],
}
OPTIONS = {"collate": ("x", "y"), "ids": "uid", "groups": "kind", "batch_size": 4}


def scorer(validation=VALIDATION, params=weights, **options):
    return lai_jax.Scorer(dense, params, squares, validation, **(OPTIONS | options))


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    names = {"ids": COLUMNS["uid"], "groups": COLUMNS["kind"]}
    found = scored(tmp_path_factory.mktemp("table"), rows_per_file=11, **names)
    return {name: values for name, values in found.items() if name != "rank"}


@pytest.mark.parametrize("estimator", ["lai", "ghost", "lli", "exact", "gate_lai", "calibrated_lai"])
def test_saved_and_pickled_scorers_agree(estimator, tmp_path):
    here = scorer(estimator=estimator, parts=3, params=weights())
    expected = here(COLUMNS)
    here.save(tmp_path / "saved")
    saved = scorer(tmp_path / "saved", estimator=estimator)
    for other in (saved, *(pickle.loads(pickle.dumps(each)) for each in (here, saved))):
        found = other(COLUMNS)
        for name in expected:
            np.testing.assert_array_equal(found[name], expected[name])
    assert not isinstance(pickle.loads(pickle.dumps(here)).validation, tuple)


def test_summaries_keep_their_parts_and_sketch(tmp_path, table):
    validation = tuple(map(jnp.asarray, VALIDATION))
    side = lai_jax.summarize(dense, weights(), squares, *validation, parts=6)
    for given in (side, tmp_path / "side"):
        lai_storage.save(tmp_path / "side", side)
        np.testing.assert_array_equal(scorer(given)(COLUMNS)["standard_error"], table["standard_error"])
    sketch = lai_jax.draw_sketch(jax.random.key(0), 3, 2)
    side = lai_jax.summarize(dense, weights(), squares, *validation, sketch=sketch)
    found = scorer(side)(COLUMNS)
    assert np.isfinite(found["score"]).all()
    assert np.isnan(found["gradient_norm"]).all()  # of a sketch, no norm is stated


def test_one_program_scores_every_batch_size(table):
    traced = []

    def counting(outputs, targets):
        traced.append(outputs.shape)
        return squares(outputs, targets)

    one = lai_jax.Scorer(dense, weights, counting, VALIDATION, **OPTIONS)
    frame = pd.DataFrame(COLUMNS)
    found = [one(frame[:4])]
    before = len(traced)
    found += map(one, iter([frame[4:4], frame[4:7], frame[7:]]))
    assert len(traced) == before
    assert pd.concat(found).reset_index(drop=True).to_dict("list") == table
