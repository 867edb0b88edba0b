"""Two processes of `jax.distributed`, each with its rows, find what one device finds."""

import pytest

from workloads.jax_distributed import launch


@pytest.mark.slow
def test_two_processes_find_what_one_device_finds_and_orbax_keeps_it(tmp_path):
    for found in launch(2, tmp_path):
        assert found.pop("orbax") is True
        assert len(found) == 6
        for case, errors in found.items():
            errors.pop("update")
            assert errors.keys() == {"parameters", "scores", "weights"}
            assert max(errors.values()) <= 1e-12, (case, errors)
