"""Start several processes on this machine, of torch or of jax.distributed, and gather what they find."""

import json
import multiprocessing
import os
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[3]
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "array_api_strict",
        "beartype",
        "hypothesis",
        "jax",
        "torch.distributed.fsdp",
        "tests.support.workloads.torch_processes",
    ]
)
"""Processes that are forked from one that has imported what takes long, and has done nothing else."""


def launch(
    work: Callable[..., Any], processes: int, *arguments: Any, timeout: float = 120.0, start: Any = FORKS
) -> list[Any]:
    """Return what `work(rank, *arguments)` returned on each process, or why not; ends one that hangs."""
    with TemporaryDirectory() as folder:
        started: list[Any] = [
            start.Process(target=_enter, args=(rank, processes, folder, work, arguments))
            for rank in range(processes)
        ]
        for process in started:
            process.start()
        end = time.monotonic() + timeout
        for process in started:
            process.join(max(0.1, end - time.monotonic()))
        return [_left(Path(folder, f"{rank}.pt"), process) for rank, process in enumerate(started)]


def _left(path: Path, process: Any) -> Any:
    if process.is_alive():
        process.kill()
        return "hangs"
    import torch

    return torch.load(path, weights_only=False) if path.exists() else f"ended with {process.exitcode}"


def _enter(rank: int, processes: int, folder: str, work: Callable[..., Any], arguments: Any) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    store = dist.FileStore(f"{folder}/store", processes)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=processes)
    try:
        found = work(rank, *arguments)
    except BaseException:
        found = traceback.format_exc()
    torch.save(found, f"{folder}/{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def join(rank: int, processes: int) -> None:
    """Say in the environment which process this is, as torchrun does, where there are several."""
    if processes > 1:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(processes)}
        os.environ |= {"LOCAL_WORLD_SIZE": str(processes), "GROUP_RANK": "0", "TORCHELASTIC_RUN_ID": "none"}
        os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": "0"}  # asked for; the group is there


def in_ways(rank: int, folder: str, processes: int, *ways: tuple[Any, dict[str, Any]]) -> list[Any]:
    """Train by each of these functions with its options, one after the other, as one of several processes."""
    return [train(rank, folder, processes, **options)[:2] for train, options in ways]


def launch_jax(count: int, folder: Path, cases: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Return what each process of `jax_meshes`, with two devices, found, in all cases if none is named.

    All of them end with the first that fails, for the others would wait for it.
    """
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    flags = "--xla_force_host_platform_device_count=2"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    command = [sys.executable, "-m", "tests.support.workloads.jax_meshes", "--process"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    started = [
        subprocess.Popen(
            [*command, *map(str, (rank, count, port, folder, *cases))], cwd=ROOT, env=environment, **pipes
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
