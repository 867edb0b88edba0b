"""What workloads measure: exactness on models of every kind, and steps over devices and processes."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.workloads import jax_exactness
from tests.support.workloads.jax_meshes import CASES, PROCESSES
from tests.support.workloads.jax_models import MODELS
from tests.support.workloads.launches import launch_jax


@pytest.mark.parametrize("name", MODELS)
def test_ghost_is_exact_and_covers_everything(name):
    found = jax_exactness.measure(MODELS[name])
    assert found["relative_error"] <= 1e-10
    assert found["coverage"] == 1.0


ROOT = Path(__file__).parents[2]
QUICK = [
    "lai",
    "lai, explicit",
    "ghost",
    "data, explicit, rows",
    "parameters, rows",
    "features, explicit, rows",
]


def on_eight_devices(cases):
    environment = os.environ | {
        "XLA_FLAGS": f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=8",
        "JAX_PLATFORMS": "cpu",
    }
    command = [sys.executable, "-m", "tests.support.workloads.jax_meshes", *cases]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def found():
    return on_eight_devices(QUICK)


def check(figures):
    assert figures["devices"] == 8
    assert max(figures[name] for name in ("parameters", "scores", "weights")) < 1e-12
    assert figures["same_decisions"]
    assert figures["same_layout"]


@pytest.mark.parametrize("case", QUICK)
def test_eight_devices_find_what_one_finds(found, case):
    check(found[case])


@pytest.mark.weekly  # the same promise in all other layouts
def test_parameter_shardings_give_equal_results():
    rest = [case for case in CASES if case not in QUICK]
    found = on_eight_devices(rest)
    for case in rest:
        check(found[case])


@pytest.mark.parametrize("case", ["lai", "lai, explicit", "ghost"])
def test_summaries_reduce_once_without_gathering(found, case):
    figures = found[case]
    assert [kind for kind, _ in figures["summary"]] == ["all-reduce"]
    assert {kind for kind, _ in figures["update"]} == {"all-reduce"}
    moved = [shape for _, shapes in figures["update"] for shape in re.findall(r"\[([\d,]*)\]", shapes)]
    rows = {"64", "8"}  # samples of the batch, and of one device
    assert not any(rows & set(shape.split(",")) for shape in moved)


def test_devices_run_only_their_rows(found):
    assert found["operations"]["with a sharding"] <= 0.75 < 1.0 < found["operations"]["without"]


@pytest.mark.parametrize(
    "cases",
    [
        pytest.param(["ghost, rows"], marks=pytest.mark.slow),
        pytest.param([*PROCESSES], marks=pytest.mark.weekly),  # which compile for two minutes
    ],
)
def test_two_processes_agree_with_one_device(cases, tmp_path):
    for found in launch_jax(2, tmp_path, cases):
        assert found.pop("orbax") is True
        assert [*found] == cases
        for case, errors in found.items():
            assert max(errors[name] for name in ("parameters", "scores", "weights")) <= 1e-12, (case, errors)
            assert errors["devices"] == 4
