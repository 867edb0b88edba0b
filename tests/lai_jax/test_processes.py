"""Two processes of `jax.distributed`, each with its rows, find what one device finds."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COUNT = 2


@pytest.mark.slow
def test_two_processes_find_what_one_device_finds_and_orbax_keeps_it(tmp_path):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    started = []
    for rank in range(COUNT):
        command = [
            sys.executable,
            "-m",
            "workloads.jax_processes",
            str(rank),
            str(COUNT),
            port,
            str(tmp_path),
        ]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(command, cwd=ROOT, env=environment, **pipes))
    try:
        ended = [process.communicate(timeout=600) for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0] * COUNT, ended
    for printed, _ in ended:
        found = json.loads(printed.splitlines()[-1])
        assert found.pop("orbax") is True
        assert len(found) == 6
        assert max(found.values()) <= 1e-12, found
