"""Compare compiled, sharded blocks on two processes with plain ones on the whole batch, both curated.

`torchrun --nproc-per-node 2 -m tests.examples.compiled_shards` prints how far scores and parameters are
apart, relative to the largest.
"""

import functools
import os
import runpy
import sys
from pathlib import Path

import lai_torch
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

import lai_core as lai

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "torchtitan_style.py"))
STEPS, HALF = 3, functools.partial(lai.keep_top, fraction=0.5)


def curator(model, **options):
    """Return a curator of a model, in double precision."""
    tokens, labels, _ = next(EXAMPLE["PackedRows"](1))
    return lai_torch.Curator(
        model,
        lambda losses, _: losses,
        torch.optim.AdamW(model.parameters(), lr=3e-3),
        ((tokens, labels), labels),
        estimator=lai_torch.LAI(positions="tokens", sketch=16, chunk=2),
        policy=HALF,
        generator=torch.Generator().manual_seed(0),
        **options,
    )


def decoder():
    """Return the example's model, the same one each time."""
    torch.manual_seed(0)
    return EXAMPLE["Decoder"]().double()


def main():
    """Take the same steps both ways."""
    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    spread, alone = decoder(), decoder()
    for layer in spread.layers:
        layer.compile(backend="aot_eager", fullgraph=True)
        fully_shard(layer)
    fully_shard(spread)
    curators = (
        curator(spread, backward=lai_torch.KeptOptions(balance=True)),
        curator(alone, process_group=False),
    )
    streams = [EXAMPLE["PackedRows"](2, each, size, 0.4) for each in range(size)]
    off = 0.0
    for _ in range(STEPS):
        parts = [next(stream)[:2] for stream in streams]
        own, whole = parts[rank], tuple(map(torch.cat, zip(*parts, strict=True)))
        found, expected = (
            c.step(batch, batch[1]).scores for c, batch in zip(curators, (own, whole), strict=True)
        )
        rows = slice(rank * len(found), (rank + 1) * len(found))
        off = max(off, float((found - expected[rows]).abs().max() / expected.abs().max()))
    pairs = zip(spread.parameters(), alone.parameters(), strict=True)
    apart = max(float((one.full_tensor() - other).abs().max() / other.abs().max()) for one, other in pairs)
    if rank == 0:
        print("scores", off, "parameters", apart)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    # a thread of torch's that still runs would abort the interpreter's own end, now and then
    sys.stdout.flush()
    os._exit(0)
