"""Data-parallel over eight devices: the same scores and decisions, and no sample leaves its device."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from workloads.jax_meshes import CASES

ROOT = Path(__file__).parents[2]


QUICK = ["lai", "lai, explicit", "ghost", "data, explicit, rows"]


def on_eight_devices(cases):
    environment = os.environ | {
        "XLA_FLAGS": f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=8",
        "JAX_PLATFORMS": "cpu",
    }
    command = [sys.executable, "-m", "workloads.jax_meshes", *cases]
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


@pytest.mark.slow
def test_parameters_may_lie_in_parts_or_by_features_on_automatic_and_explicit_axes():
    rest = [case for case in CASES if case not in QUICK]
    found = on_eight_devices(rest)
    for case in rest:
        check(found[case])


@pytest.mark.parametrize("case", ["lai", "lai, explicit", "ghost"])
def test_the_summary_is_reduced_once_and_nothing_is_gathered(found, case):
    figures = found[case]
    assert [kind for kind, _ in figures["summary"]] == ["all-reduce"]
    assert {kind for kind, _ in figures["update"]} == {"all-reduce"}
    moved = [shape for _, shapes in figures["update"] for shape in re.findall(r"\[([\d,]*)\]", shapes)]
    rows = {"64", "8"}  # samples of the batch, and of one device
    assert not any(rows & set(shape.split(",")) for shape in moved)


def test_a_device_runs_its_part_of_the_chosen_rows(found):
    assert found["operations"]["with a sharding"] <= 0.75 < 1.0 < found["operations"]["without"]
