"""What some namespaces have beyond the standard, against numbers written out and sums one by one."""

import array_api_strict as strict
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from lai_core._engine.namespace import namespace_of
from lai_core._engine.own import add_rows, convolutions, kernel_of_equal_ids

XP = namespace_of({"numpy": np.ones(1)})


@pytest.mark.parametrize("make", [torch.asarray, jnp.asarray, np.asarray], ids=["torch", "jax", "numpy"])
def test_rows_with_equal_ids_are_added(make):
    values = make(np.arange(8.0, dtype=np.float32).reshape(4, 2))
    found = add_rows(namespace_of({"values": values}), 3, make(np.array([2, 0, 2, 2])), values)
    assert found.tolist() == [[2.0, 3.0], [0.0, 0.0], [10.0, 13.0]]
    assert add_rows(strict, 3, strict.asarray([0]), strict.ones((1, 2))) is None


def test_id_kernel_is_declined_when_costlier():
    """One pair moves 16 numbers or its width; all products of 4 with 4 or 5 positions are 16 or 20."""
    for width, count, fits in ((1, 4, True), (20, 5, True), (20, 4, False), (21, 5, False)):
        own = 10 * np.arange(4)[None, :], np.ones((4, width))
        found = kernel_of_equal_ids(XP, own, (np.arange(1 - count, 1)[None, :], np.ones((count, width))))
        assert (None if found is None else found.tolist()) == ([[float(width)]] if fits else None)


def test_disjoint_ids_give_zero_products():
    own, others = (np.array([[-1], [5], [2]]), np.ones((3, 2))), (np.array([[3], [-1]]), np.ones((2, 2)))
    assert kernel_of_equal_ids(XP, own, others).tolist() == [[0.0, 0.0]] * 3


@pytest.mark.parametrize("make", [jnp.asarray, np.asarray], ids=["jax", "numpy"])
def test_frameworks_convolve_as_torch_does(make):
    sides = [np.random.default_rng(0).normal(size=(2, 1, t)) for t in (9, 4, 2)]
    found = []
    for as_array, xp in ((torch.asarray, torch), (make, np)):
        maps, outputs, kernel = map(as_array, sides)
        own = convolutions(xp, maps, (2,), (1,), (3,), 1)  # no two numbers may be exchanged
        found.append(np.asarray(own.products(maps, outputs, kernel[:1])))
    np.testing.assert_allclose(*found)


def test_four_dimensional_maps_have_no_convolutions():
    for axes in (3, 4):
        found = convolutions(torch, torch.ones((1, 1, *[2] * axes)), *[(1,) * axes] * 3, 1)
        assert (found is None) == (axes == 4)


def test_convolutions_ignore_autocast():
    maps, kernel = torch.full((1, 2, 5), 1.0 + 2**-12), torch.ones(3, 2, 2)
    own = convolutions(torch, maps, (1,), (0,), (1,), 1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        products = own.products(maps, torch.ones(1, 3, 4), kernel)
        gradient = own.kernel_gradient(maps, torch.ones(1, 3, 4), (3, 2, 2))
        gradients = own.sample_gradients(maps, torch.ones(1, 3, 4), (3, 2, 2))
    assert products.tolist() == [12 * (4.0 + 2**-10)]
    assert torch.equal(gradients, torch.full((1, 12), 4.0 + 2**-10))
    assert torch.equal(gradient, torch.full((3, 2, 2), 4.0 + 2**-10))


def test_own_convolutions_require_torch_on_processors():
    """On a GPU torch's round float32 to 10 bits unless told otherwise; `meta` stands for any other device."""
    assert convolutions(torch, torch.ones(1, 1, 3, device="meta"), (1,), (0,), (1,), 1) is None
    assert convolutions(strict, strict.ones((1, 1, 3)), (1,), (0,), (1,), 1) is None
