"""Processes that are forked from one that has imported what takes long, and has done nothing else."""

import multiprocessing

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "array_api_strict",
        "beartype",
        "hypothesis",
        "jax",
        "numpy",
        "torch",
        "torch.distributed.fsdp",
        "torch.distributed.tensor",
    ]
)
