"""What the core asks of a namespace: types by name, bytes, one device, products."""

import sys
from types import SimpleNamespace

import array_api_strict as strict
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from lai_core._engine import namespace
from lai_core._engine.namespace import (
    accumulation_dtype,
    device_of,
    is_compiling,
    is_floating,
    itemsize,
    matmul,
    namespace_of,
    place_of,
)

XP = namespace_of({"numpy": np.ones(1)})


def test_sums_use_at_least_single_precision():
    half, single, double = (np.dtype(name) for name in ("float16", "float32", "float64"))
    assert accumulation_dtype(XP, half) == accumulation_dtype(XP, half, single) == single
    assert accumulation_dtype(XP, half, double) == double
    assert [itemsize(XP, each) for each in (half, single, double)] == [2, 4, 8]
    assert is_floating(XP, single)
    assert not is_floating(XP, np.dtype("int32"))


def test_products_ignore_autocast():
    left, right = torch.full((2, 3), 1.0 + 2**-12), torch.ones(3, 1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = matmul(torch, left, right)
        assert torch.is_autocast_enabled("cpu")
        assert (left @ right).dtype == torch.bfloat16
    assert inside.dtype == torch.float32
    assert inside.tolist() == matmul(torch, left, right).tolist() == [[3.0 * (1 + 2**-12)]] * 2


def test_arrays_lie_on_one_device():
    here, there = strict.ones(2), strict.ones(2, device=strict.Device("device1"))
    assert namespace_of({"a": here, "b": here}) is namespace_of({"b": there})
    message = r"^b: expected an array on the device of a \(.*\), got one on .*device1"
    with pytest.raises(ValueError, match=message):
        namespace_of({"a": here, "b": there})
    with pytest.raises(TypeError, match=r"^b: expected an array of the namespace of a \(.*numpy\), got"):
        namespace_of({"a": np.ones(2), "b": here})
    with pytest.raises(TypeError, match=r"^b: expected an array \(.*\), got SimpleNamespace$"):
        namespace_of({"a": np.ones(2), "b": SimpleNamespace()})


def test_new_arrays_follow_existing_devices():
    assert device_of(strict.ones(2, device=strict.Device("device1"))) == strict.Device("device1")
    assert device_of(jnp.ones(2)) is None


def test_places_distinguish_devices(monkeypatch):
    monkeypatch.setattr(namespace, "_PLACES", {})
    assert place_of(np.ones(1)) is None
    assert [place_of(torch.ones(1, device=name)).type for name in ("cpu", "meta")] == ["cpu", "meta"]


def test_nothing_compiles_without_torch_imported(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch")
    assert is_compiling() is False
