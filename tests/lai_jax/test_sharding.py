"""Data-parallel over eight devices: the same scores and decisions, and no sample leaves its device."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("sharded.py")


@pytest.fixture(scope="module")
def found():
    environment = os.environ | {
        "XLA_FLAGS": f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=8",
        "JAX_PLATFORMS": "cpu",
    }
    done = subprocess.run(
        [sys.executable, str(SCRIPT)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("case", range(3), ids=["lai", "lai-explicit", "ghost"])
def test_eight_devices_find_what_one_finds(found, case):
    figures = found[case]
    assert figures["devices"] == 8
    assert figures["score_error"] < 1e-12
    assert figures["same_decisions"]
    assert figures["parameter_error"] < 1e-12


@pytest.mark.parametrize("case", range(3), ids=["lai", "lai-explicit", "ghost"])
def test_the_summary_is_reduced_once_and_nothing_is_gathered(found, case):
    figures = found[case]
    assert [kind for kind, _ in figures["summary"]] == ["all-reduce"]
    assert {kind for kind, _ in figures["update"]} == {"all-reduce"}
    moved = [shape for _, shapes in figures["update"] for shape in re.findall(r"\[([\d,]*)\]", shapes)]
    rows = {"64", "8"}  # samples of the batch, and of one device
    assert not any(rows & set(shape.split(",")) for shape in moved)
