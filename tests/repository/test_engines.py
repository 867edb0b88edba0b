"""The code of the guide's page on engines runs, on stand-ins for the engines."""

import dataclasses
import inspect
import re
import sys
import types
from pathlib import Path

import lai_jax
import lai_torch
import numpy as np
import pandas as pd
import pytest
import torch

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "engines.md"
BLOCKS = dict(re.findall(r"## ([^\n]+)\n(?:(?!\n## ).)*?```python\n(.*?)```", PAGE.read_text(), re.DOTALL))
COLUMNS = {"uid": [1, 2, 3], "pixels": [[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], "label": [0, 1, 1]}


@dataclasses.dataclass
class Document:
    """A task of NeMo Curator."""

    dataset_name: str
    data: pd.DataFrame
    task_id: str = dataclasses.field(init=False, default="")

    def to_pandas(self):
        return self.data


class Frame:
    """A DataFrame of Spark, or a data set of Ray: calls as they do, on the parts that they have."""

    def mapInPandas(self, function, schema):  # noqa: N802 # Spark's name
        names = [column.split()[0] for column in schema.split(", ")]
        parts = (pd.DataFrame(COLUMNS)[rows] for rows in (slice(2), slice(2, 2), slice(2, 3)))
        return pd.concat(function(parts))[names]

    def map_batches(self, kind, *, fn_constructor_args, fn_constructor_kwargs, batch_size, compute):
        batch = {name: np.array(values) for name, values in COLUMNS.items()}
        self.found = kind(*fn_constructor_args, **fn_constructor_kwargs)(batch)
        return self

    def write_parquet(self, path):
        assert path == "/shared/scores"


@pytest.fixture
def names(tmp_path):
    model, loss = torch.nn.Linear(2, 2), torch.nn.CrossEntropyLoss(reduction="none")
    lai_torch.Scorer(model, loss, (torch.eye(2), torch.tensor([0, 1]))).save(
        tmp_path / "validation.safetensors"
    )
    return {
        "load_model": lambda: model,
        "loss": loss,
        "lai_torch": lai_torch,
        "corpus": Frame(),
        "folder": tmp_path,
    }


@pytest.fixture
def expected(names):
    given = names["load_model"], names["loss"], names["folder"] / "validation.safetensors"
    return lai_torch.Scorer(*given, collate=("pixels", "label"), ids="uid")(pd.DataFrame(COLUMNS))


def run(title, names):
    """Run a block of the page, with the folder where the validation set lies."""
    code = BLOCKS[title].replace("/shared/validation", f"{names['folder']}/validation")
    exec(compile(code, title, "exec"), names)  # the page's own text


def test_the_block_on_ray_is_short_and_scores(names, expected):
    data = types.SimpleNamespace(
        read_parquet=lambda path: names["corpus"], ActorPoolStrategy=lambda size: size
    )
    run("Ray Data", names | {"ray": types.SimpleNamespace(data=data)})
    np.testing.assert_allclose(names["corpus"].found["score"], expected["score"])
    assert len(BLOCKS["Ray Data"].splitlines()) + 1 < 10  # with the line that saves the validation set


def test_the_block_on_spark_scores_and_its_schema_names_the_columns(names, expected):
    run("Spark", names)
    found = names["scores"].reset_index(drop=True)
    assert list(found) == list(expected)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_the_stage_of_nemo_curator_appends_what_it_says(names, expected, monkeypatch):
    class Base:
        def __class_getitem__(cls, of):
            return cls

    stands = {
        "nemo_curator.stages.base": {"ProcessingStage": Base},
        "nemo_curator.stages.resources": {"Resources": dict},
        "nemo_curator.tasks": {"DocumentBatch": Document},
    }
    for name, held in {"nemo_curator": {}, "nemo_curator.stages": {}, **stands}.items():
        module = types.ModuleType(name)
        vars(module).update(held)
        monkeypatch.setitem(sys.modules, name, module)
    names["__name__"] = "builtins"  # where dataclasses look annotations up
    run("NeMo Curator", names)
    path = f"{names['folder']}/validation.safetensors"
    stage = names["ScoreStage"](names["load_model"], names["loss"], path)
    stage.setup()
    task = Document("corpus", pd.DataFrame(COLUMNS))
    done = stage.process(task)
    assert {*stage.inputs()[1], "uid"} == set(COLUMNS)
    assert list(done.data) == [*COLUMNS, *stage.outputs()[1]]
    np.testing.assert_array_equal(done.data["score"], expected["score"])
    assert len(BLOCKS["NeMo Curator"].splitlines()) < 36


def test_both_adapters_scorers_take_the_same_options():
    torch_options, jax_options = (
        {name for name, each in inspect.signature(kind).parameters.items() if each.kind is each.KEYWORD_ONLY}
        for kind in (lai_torch.Scorer, lai_jax.Scorer)
    )
    assert jax_options - torch_options == {"positions", "last", "valid"}  # torch's estimators hold these
    assert torch_options <= jax_options
