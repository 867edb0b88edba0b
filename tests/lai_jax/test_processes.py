"""Two processes of `jax.distributed`, each with its rows, find what one device finds."""

import pytest

from workloads.launches import launch_jax


@pytest.mark.slow
def test_two_processes_find_what_one_device_finds_and_orbax_keeps_it(tmp_path):
    for found in launch_jax(2, tmp_path):
        assert found.pop("orbax") is True
        assert len(found) == 6
        for case, errors in found.items():
            assert max(errors[name] for name in ("parameters", "scores", "weights")) <= 1e-12, (case, errors)
            assert errors["devices"] == 4
