"""What is saved comes back equal in every bit, in any namespace; anything else is refused by name."""

import json
import os
import re
from dataclasses import dataclass, fields

import jax
import jax.numpy as jnp
import lai_storage
import numpy as np
import pytest
import torch
from lai_storage._values import rebuilt
from safetensors.numpy import save_file

import lai_core as lai
from lai_core.estimators.gates import GateTrace
from tests.support.backends import BACKENDS

READERS = {backend.name: backend for backend in BACKENDS}


@dataclass(frozen=True, eq=False)
class OwnTrace(lai.LayerTrace):
    """A kind of record that the library does not know."""


def every_kind(backend):
    """Return a trace with a record of each kind, with keys and settings of all sorts."""
    draws = np.random.default_rng(0)

    def drawn(*shape, dtype="float32"):
        return backend.array(draws.normal(size=shape), dtype)

    ids = backend.array(draws.integers(0, 5, (4, 3)))
    return lai.Trace(
        [
            lai.EmbeddingTrace(ids, drawn(4, 3, 2), 5, padding=0, weight=("tied", 1), name="table"),
            lai.ConvolutionTrace(drawn(4, 2, 5, 5), drawn(4, 3, 4, 4), (2, 2), stride=(1, 1), bias=True),
            lai.GainTrace(None, drawn(4, 2, 7), weight="gain"),
            lai.ReadoutTrace(drawn(4, 6)),
            OwnTrace(drawn(4, 2), drawn(4, 3)),
            lai.LayerTrace(drawn(4, 6), drawn(4, 3, dtype="float64"), weight=7, bias=True),
        ]
    )


def same(left, right):
    """Assert that two objects are equal: kinds, fields, every bit of every array."""
    if hasattr(left, "dtype"):
        assert str(left.dtype).rpartition(".")[2] == str(right.dtype).rpartition(".")[2]
        assert tuple(left.shape) == tuple(right.shape)
        left, right = (READERS[name_of(side)].numpy(side) for side in (left, right))
        assert left.tobytes() == right.tobytes()
    elif isinstance(left, (tuple, list)):
        assert type(left) is type(right)
        assert len(left) == len(right)
        for pair in zip(left, right, strict=True):
            same(*pair)
    elif hasattr(left, "__dataclass_fields__"):
        assert type(left) is type(right)
        for field in fields(left):
            same(getattr(left, field.name), getattr(right, field.name))
    else:
        assert type(left) is type(right)
        assert left == right or (left != left and right != right)


def name_of(array):
    kinds = {np.ndarray: "numpy", torch.Tensor: "torch", jax.Array: "jax"}
    return next((name for kind, name in kinds.items() if isinstance(array, kind)), "strict")


@pytest.mark.parametrize("reader", BACKENDS, ids=str)
@pytest.mark.parametrize("writer", BACKENDS, ids=str)
def test_namespaces_load_each_others_files(tmp_path, writer, reader):
    trace = every_kind(writer)
    kept = (
        trace,
        lai.summarize(trace, "lai", positions="mean"),
        GateTrace(trace, [trace.layers[3].activations]),
    )
    lai_storage.save(tmp_path / "kept", kept)
    same(kept, lai_storage.load(tmp_path / "kept", asarray=reader.array))


def test_numbers_text_and_empties_round_trip(tmp_path):
    kept = {
        "numbers": (0, -3, 1.5, float("nan"), float("-inf"), True, None),
        ("a", 2): [],
        "arrays": [np.zeros((0, 3)), np.array(2.0), np.arange(6.0).reshape(2, 3).T, np.array([True])],
    }
    lai_storage.save(tmp_path / "kept", kept)
    found = lai_storage.load(tmp_path / "kept")
    assert list(found) == list(kept)
    same(list(found.values()), list(kept.values()))


@pytest.mark.parametrize("reader", [torch.asarray, jnp.asarray], ids=["torch", "jax"])
def test_bfloat16_keeps_its_bits(tmp_path, reader):
    values = torch.randn(50).bfloat16()
    lai_storage.save(tmp_path / "kept", [values])
    (found,) = lai_storage.load(tmp_path / "kept", asarray=reader)
    assert str(found.dtype).endswith("bfloat16")
    assert [float(value) for value in found] == values.tolist()
    assert lai_storage.load(tmp_path / "kept")[0].dtype == np.float32


def test_tensors_are_saved_without_graphs(tmp_path):
    lai_storage.save(tmp_path / "kept", torch.ones(2, requires_grad=True) * 3)
    assert lai_storage.load(tmp_path / "kept").tolist() == [3.0, 3.0]


def test_changed_or_missing_bytes_are_detected(tmp_path):
    path = tmp_path / "kept"
    lai_storage.save(path, [np.arange(5.0), "text", 1])
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(ValueError, match="kept: expected a whole file"):
            lai_storage.load(path)
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="kept: expected a whole file"):
            lai_storage.load(path)


def test_foreign_and_newer_files_are_named(tmp_path):
    save_file({"0": np.ones(2)}, tmp_path / "other")
    with pytest.raises(ValueError, match="got one of another program"):
        lai_storage.load(tmp_path / "other")
    save_file({}, tmp_path / "newer", {"lai_core": "2", "content": json.dumps({}), "sha256": ""})
    with pytest.raises(ValueError, match="got one of format 2 of a newer lai_core"):
        lai_storage.load(tmp_path / "newer")
    with pytest.raises(FileNotFoundError):
        lai_storage.load(tmp_path / "missing")


def test_unsupported_values_are_named_before_writing(tmp_path):
    trace = lai.Trace([lai.LayerTrace(np.ones((2, 3)), np.ones((2, 1)), weight=object())])
    with pytest.raises(TypeError, match=r"kept\['a'\]\.layers\[0\]\.weight: expected .*, got object"):
        lai_storage.save(tmp_path / "kept", {"a": trace})
    assert not list(tmp_path.iterdir())


UNFIT = {
    "complex128": np.ones(2, complex),
    "float8_e4m3fn": torch.ones(2).to(torch.float8_e4m3fn),
    "object": np.array([None, "a"]),
}


@pytest.mark.parametrize("dtype", UNFIT)
def test_types_outside_the_format_are_named(tmp_path, dtype):
    with pytest.raises(
        TypeError, match=rf"^kept\['a'\]\[1\]: expected an array of .* got {re.escape(dtype)}$"
    ):
        lai_storage.save(tmp_path / "new", {"a": [1, UNFIT[dtype]]})
    assert not list(tmp_path.iterdir())


def test_foreign_byte_orders_become_native(tmp_path):
    for dtype in (">f4", ">i8", "<u2", ">c8"):
        given = np.arange(3).astype(dtype)
        lai_storage.save(tmp_path / "swapped", given)
        found = lai_storage.load(tmp_path / "swapped")
        assert found.dtype.isnative
        np.testing.assert_array_equal(found, given)


def test_type_changing_namespaces_are_refused(tmp_path):
    lai_storage.save(tmp_path / "kept", np.ones(2))
    with pytest.raises(ValueError, match="expected asarray to keep the type float64, got float32"):
        lai_storage.load(tmp_path / "kept", asarray=lambda array: array.astype("float32"))


def test_interruptions_leave_only_old_files(tmp_path, monkeypatch):
    path = tmp_path / "kept"
    lai_storage.save(path, [np.ones(2)])
    whole = path.read_bytes()

    def interrupted(file):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lai_storage.save(path, [np.zeros(9)])
    assert [path] == list(tmp_path.iterdir())
    assert path.read_bytes() == whole


def test_unimported_record_kinds_are_named():
    message = "here: expected kinds that are imported, got a elsewhere.own.Kind: import 'elsewhere' first"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        rebuilt({"kind": "elsewhere.own.Kind", "fields": {}}, [], "here")
