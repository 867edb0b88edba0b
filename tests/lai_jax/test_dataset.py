"""A table of a data set's scores: those of the core, with honest errors, taken up where it stopped."""

import jax.numpy as jnp
import lai_jax
import numpy as np
import pytest
from lai_storage.tables import read_scores

import lai_core as lai
from tests.lai_jax.support import computed, stepped


def apply(params, inputs):
    return jnp.tanh(inputs @ params["hidden"]) @ params["out"]


def loss(outputs, targets):
    return ((outputs - targets) ** 2).sum(-1)


def drawn(samples, seed):
    draws = np.random.default_rng(seed)
    return draws.normal(size=(samples, 5)), draws.normal(size=(samples, 3))


def weights(seed=0):
    draws = np.random.default_rng(seed)
    return {"hidden": jnp.asarray(draws.normal(size=(5, 7))), "out": jnp.asarray(draws.normal(size=(7, 3)))}


DATA, VALIDATION = drawn(11, 1), drawn(6, 2)


def scored(folder, params=None, **options):
    params = weights() if params is None else params
    options = {"progress": False, "batch_size": 4, "rows_per_file": 6} | options
    table = lai_jax.score_dataset(apply, params, loss, DATA, VALIDATION, folder, **options)
    return (read_scores(folder) if table is None else table).to_pydict()


def kernel_of(estimator):
    """Return an estimator's kernel, and the traces of both sides."""
    model = apply, weights(), loss
    traces = [computed(lai_jax.trace, *model, *side, gradients="all") for side in (VALIDATION, DATA)]
    return getattr(lai, f"{estimator}_kernel"), *traces


@pytest.mark.parametrize("estimator", ["lai", "ghost", "lli"])
def test_one_sample_a_part_gives_scores_errors_and_norms_of_the_kernel(tmp_path, estimator):
    kernel, *traced = kernel_of(estimator)
    pairs = kernel(*traced)
    table = scored(tmp_path, estimator=estimator, parts=6)
    np.testing.assert_allclose(table["score"], pairs.sum(0), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(table["standard_error"], np.sqrt(6 * pairs.var(0, ddof=1)))
    np.testing.assert_allclose(table["gradient_norm"], np.sqrt(np.diag(kernel(traced[1], traced[1]))))
    np.testing.assert_allclose(table["loss"], loss(apply(weights(), DATA[0]), DATA[1]))


@pytest.mark.parametrize("estimator", ["exact", "gate_lai", "calibrated_lai"])
def test_other_estimators_score_as_a_step_does(tmp_path, estimator):
    report = stepped((apply, weights(), loss), VALIDATION, DATA, estimator=estimator)[2]
    table = scored(tmp_path, estimator=estimator, parts=None)
    np.testing.assert_allclose(table["score"], report.scores, rtol=1e-9)
    assert np.isnan(table["standard_error"]).all()


def test_a_run_goes_on_where_it_stopped_and_checkpoints_are_averaged(tmp_path):
    checkpoints = {"a": weights(3), "b": weights(4)}
    whole = scored(tmp_path / "whole", checkpoints=checkpoints)
    folder = tmp_path / "shared"
    for index in (0, 1):
        options = {"checkpoints": checkpoints, "process": (index, 2)}
        if index == 0:
            with pytest.raises(ValueError, match="1 are missing"):
                scored(folder, **options)
        else:
            assert scored(folder, **options) == whole
    averaged = read_scores(folder, average=True).to_pydict()
    np.testing.assert_allclose(averaged["score"], np.reshape(whole["score"], (2, 11)).mean(0))
    with pytest.raises(ValueError, match=r"^model: expected .*pass another folder"):
        scored(folder, checkpoints={"a": weights(5)})


def test_what_depends_on_a_training_run_is_refused(tmp_path):
    with pytest.raises(ValueError, match="expected one that scores a sample by itself"):
        scored(tmp_path / "new", estimator="preconditioned_lai")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(("estimator", "relative"), [("lai", False), ("ghost", False), ("lai", True)])
def test_top_samples_are_the_extremes_of_the_kernel(estimator, relative):
    kernel, *sides = kernel_of(estimator)
    lengths = np.sqrt(np.diag(kernel(sides[1], sides[1]))) if relative else 1.0
    options = {"estimator": estimator, "relative": relative, "top": 2, "batch_size": 4, "progress": False}
    found = lai_jax.top_samples(apply, weights(), loss, DATA, VALIDATION, **options).to_pylist()
    for row, scores in enumerate(kernel(*sides) / lengths):
        order = np.argsort(scores)
        expected = [each for each in order[:-3:-1] if scores[each] > 0]
        expected += [each for each in order[:2] if scores[each] < 0]
        of_row = [each for each in found if each["validation"] == row]
        assert [each["id"] for each in of_row] == expected
        np.testing.assert_allclose([each["score"] for each in of_row], scores[expected], rtol=1e-10)
