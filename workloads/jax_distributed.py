"""Start several processes of `jax.distributed` on this machine, and gather what each printed."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def launch(count: int, folder: Path) -> list[dict[str, Any]]:
    """Return what each process of `workloads.jax_processes` found; raise if one fails.

    All of them end with the first that does, for the others would wait for it.
    """
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "workloads.jax_processes"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    started = [
        subprocess.Popen(
            [*command, str(rank), str(count), port, str(folder)], cwd=ROOT, env=environment, **pipes
        )
        for rank in range(count)
    ]
    try:
        ended = [process.communicate(timeout=600) for process in started]
    finally:
        for process in started:
            process.kill()
    if any(process.returncode for process in started):
        message = f"processes of jax.distributed failed: {[said[-2000:] for _, said in ended]}"
        raise RuntimeError(message)
    return [json.loads(printed.splitlines()[-1]) for printed, _ in ended]
