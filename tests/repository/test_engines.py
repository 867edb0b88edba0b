"""The code of the guide's page on engines runs, on stand-ins for the engines."""

import re
import types
from pathlib import Path

import lai_torch
import numpy as np
import pandas as pd
import pytest
import torch

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "engines.md"
BLOCKS = dict(re.findall(r"## ([^\n]+)\n(?:(?!\n## ).)*?```python\n(.*?)```", PAGE.read_text(), re.DOTALL))
COLUMNS = {"uid": [1, 2, 3], "pixels": [[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], "label": [0, 1, 1]}


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
    code = BLOCKS[title].replace("/shared/validation", f"{names['folder']}/validation")
    exec(compile(code, title, "exec"), names)  # the page's own text


def test_ray_block_is_short_and_scores(names, expected):
    data = types.SimpleNamespace(
        read_parquet=lambda path: names["corpus"], ActorPoolStrategy=lambda size: size
    )
    run("Ray Data", names | {"ray": types.SimpleNamespace(data=data)})
    np.testing.assert_allclose(names["corpus"].found["score"], expected["score"])
    assert len(BLOCKS["Ray Data"].splitlines()) + 1 < 10  # with the line that saves the validation set


def test_spark_block_scores_by_its_schema(names, expected):
    run("Spark", names)
    found = names["scores"].reset_index(drop=True)
    assert list(found) == list(expected)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
