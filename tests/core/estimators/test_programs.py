"""Inside compilers: the same numbers, one compilation for a shape, no branch on a value."""

import subprocess
import sys

import jax
import numpy as np
import pytest

from tests.support.programs import PROGRAMS, SHAPES


def arrays(seed: int, batch: tuple[int, ...] = ()) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [generator.normal(size=(*batch, *shape)) for shape in SHAPES]


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_jax_jit_agrees_and_compiles_once(name):
    traced = 0

    def program(*inputs):
        nonlocal traced
        traced += 1
        return PROGRAMS[name](*inputs)

    jitted = jax.jit(program)
    for seed in range(3):
        np.testing.assert_allclose(
            jitted(*arrays(seed)), PROGRAMS[name](*arrays(seed)), rtol=1e-10, atol=1e-12
        )
    assert traced == 1


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_jax_vmap_gives_the_same_numbers(name):
    together = arrays(0, batch=(2,))
    mapped = jax.jit(jax.vmap(PROGRAMS[name]))(*together)
    for index in range(2):
        alone = PROGRAMS[name](*(array[index] for array in together))
        np.testing.assert_allclose(mapped[index], alone, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "names",
    [
        # an estimator of each kind, and a policy; all in one process, for each takes seconds to start
        {"ghost_kernel", "gate_lai", "preconditioned", "reweight"},
        pytest.param(PROGRAMS, marks=pytest.mark.weekly),
    ],
)
def test_torch_compile_agrees_and_compiles_once(names):
    command = [sys.executable, "-m", "tests.support.torch_compiled", *names]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr[-3000:]
    assert finished.stdout.count("compiled once") == len(names)
