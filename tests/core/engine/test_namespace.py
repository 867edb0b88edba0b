"""What the core asks of a namespace: products without autocast, blocks, compilers."""

import sys

import array_api_strict as strict
import jax.numpy as jnp
import numpy as np
import torch

from lai_core._engine.namespace import count_cacheable, device_of, is_compiling, matmul, move_to_host


def test_products_ignore_autocast():
    left, right = torch.full((2, 3), 1.0 + 2**-12), torch.ones(3, 1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = matmul(torch, left, right)
        assert torch.is_autocast_enabled("cpu")
        assert (left @ right).dtype == torch.bfloat16
    assert inside.dtype == torch.float32
    assert inside.tolist() == matmul(torch, left, right).tolist() == [[3.0 * (1 + 2**-12)]] * 2


def test_only_processors_block_products_for_caches():
    arrays = np.ones(1), torch.ones(1), torch.ones(1, device="meta"), strict.ones(1), jnp.ones(1)
    assert [count_cacheable(array) for array in arrays] == [2**17, 2**18, None, None, None]


def test_nothing_compiles_without_torch_imported(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch")
    assert is_compiling() is False


def test_new_arrays_follow_existing_devices():
    assert device_of(strict.ones(2, device=strict.Device("device1"))) == strict.Device("device1")
    assert device_of(jnp.ones(2)) is None


def test_what_numpy_reads_has_no_graph():
    tracked, array = torch.ones(2, requires_grad=True) * 3, np.ones(2)
    assert move_to_host(tracked).requires_grad is False
    assert move_to_host(array) is array
