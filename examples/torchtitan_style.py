"""A small Llama as torchtitan trains one: blocks compiled and sharded, the loss in chunks, rows packed.

Run it by `torchrun --nproc-per-node 2 examples/torchtitan_style.py`.
"""

import functools
import itertools
import sys

import lai_torch
import torch
import torch.distributed as dist
from torch import nn
from torch._dynamo.utils import counters
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy, scaled_dot_product_attention, silu
from torch.utils.checkpoint import checkpoint

import lai_core

WORDS, LENGTH, WIDTH, HEADS, DEPTH = 256, 32, 32, 2, 2
ROWS, CHUNKS = 16, 8  # rows of a process's batch; parts into which the loss cuts their positions
BOUNDS = (64, 257), (0, WORDS), (1, 4)  # of a document's length, first token and step
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BACKEND = "inductor" if DEVICE == "cuda" else "aot_eager"  # which needs no C++ compiler


def rotated(heads):
    """Return queries or keys `(n, heads, t, width)`, rotated by their positions."""
    width = heads.shape[-1]
    rates = 1e4 ** (-torch.arange(0, width, 2, device=heads.device) / width)
    angles = torch.arange(heads.shape[-2], device=heads.device)[:, None] * rates
    (x, y), (cos, sin) = heads.chunk(2, -1), (angles.cos(), angles.sin())
    return torch.cat([x * cos - y * sin, x * sin + y * cos], -1)


class Block(nn.Module):
    """Attention, then a gated network."""

    def __init__(self):
        super().__init__()
        self.attention_norm, self.network_norm = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(WIDTH, 3 * WIDTH, bias=False) for _ in range(2))
        self.down = nn.Linear(3 * WIDTH, WIDTH, bias=False)

    def forward(self, hidden):
        """Return the hidden states `(n, t, WIDTH)` behind the block."""
        normed = self.attention_norm(hidden)
        layers = (self.query, self.key, self.value)
        query, key, value = (layer(normed).unflatten(2, (HEADS, -1)).transpose(1, 2) for layer in layers)
        mixed = scaled_dot_product_attention(rotated(query), rotated(key), value, is_causal=True)
        hidden = hidden + self.out(mixed.transpose(1, 2).flatten(2))
        normed = self.network_norm(hidden)
        return hidden + self.down(silu(self.gate(normed)) * self.up(normed))


class Decoder(nn.Module):
    """The model, with its loss inside: one number a row, without the logits of a whole batch."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(DEPTH))
        self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens, labels):
        """Return each row's mean loss, `(n,)`.

        Training cuts the positions into chunks, and makes the logits of each again in the backward pass.
        LAI reads the head as one layer on all positions: scoring, in eval mode, cuts the rows by `chunk=`.
        """
        hidden = self.embedding(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        hidden = self.norm(hidden)
        if not self.training:
            return self.summed(hidden, labels) / LENGTH
        parts = zip(hidden.chunk(CHUNKS, 1), labels.chunk(CHUNKS, 1), strict=True)
        return sum(checkpoint(self.summed, *part, use_reentrant=False) for part in parts) / LENGTH

    def summed(self, hidden, labels):
        logits = self.head(hidden).flatten(0, 1)
        return cross_entropy(logits, labels.flatten(), reduction="none").view_as(labels).sum(1)


class PackedRows:
    """A process's batches: documents that count upwards, or are noise, end to end, cut into rows."""

    def __init__(self, seed, rank=0, processes=1, noise=0.0):
        self.rank, self.processes, self.noise = rank, processes, noise
        self.draw = torch.Generator().manual_seed(seed)
        self.tokens, self.noisy = torch.empty(0, dtype=torch.long), torch.empty(0)

    def document(self):
        """Return a document's tokens, and whether they are noise."""
        length, start, step = (int(torch.randint(*ends, (), generator=self.draw)) for ends in BOUNDS)
        noisy = bool(torch.rand((), generator=self.draw) < self.noise)
        noise = torch.randint(WORDS, (length,), generator=self.draw)
        return noise if noisy else (start + step * torch.arange(length)) % WORDS, torch.full((length,), noisy)

    def __iter__(self):
        return self

    def __next__(self):
        """Return this process's tokens and labels `(n, t)`, and the share of noise in each row."""
        wanted = self.processes * ROWS * (LENGTH + 1)
        while len(self.tokens) < wanted:
            tokens, noisy = self.document()
            self.tokens, self.noisy = torch.cat([self.tokens, tokens]), torch.cat([self.noisy, noisy])
        rows, noisy = (each[:wanted].view(-1, LENGTH + 1) for each in (self.tokens, self.noisy))
        self.tokens, self.noisy = self.tokens[wanted:], self.noisy[wanted:]
        own = rows[self.rank :: self.processes].to(DEVICE)
        return own[:, :-1], own[:, 1:], noisy[self.rank :: self.processes].mean(1).to(DEVICE)


def train(steps, policy=None):
    """Train without curation, or by a policy; return what was compiled, and what was trained on."""
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)
    model = Decoder().to(DEVICE)
    shapes, logits, noise = set(), [], []
    model.register_forward_pre_hook(lambda _, given: shapes.add(len(given[0])) if model.training else None)
    model.head.register_forward_hook(lambda *call: logits.append(call[2].shape[:-1].numel()))
    for layer in model.layers:
        layer.compile(backend=BACKEND, fullgraph=True)
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loader = PackedRows(2, dist.get_rank(), dist.get_world_size(), noise=0.4)
    if policy is not None:
        tokens, labels, _ = next(PackedRows(1))
        curator = lai_torch.Curator(
            model,
            lambda losses, _: losses,
            optimizer,
            ((tokens, labels), labels),
            estimator=lai_torch.LAI(positions="tokens", sketch=16, chunk=ROWS // CHUNKS),
            policy=policy,
            refresh=4,
            backward=lai_torch.KeptOptions(
                balance=True
            ),  # as many rows on each process: with keep_top one shape
        )
    for tokens, labels, noisy in itertools.islice(loader, steps):
        if policy is None:
            model(tokens, labels).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            noise.append(noisy)
        else:
            noise.append(noisy[curator.step((tokens, labels), labels).weights > 0])
    return {
        "graphs": counters["stats"]["unique_graphs"],
        "graph_breaks": sum(counters["graph_break"].values()),
        "shapes": len(shapes),
        "logits": max(logits) / (ROWS * LENGTH),
        "noise": float(torch.cat(noise).mean()),
    }


def main(steps=12):
    """Train without curation, on the best half of each batch, and on what helps; print what that took."""
    dist.init_process_group()
    if DEVICE == "cuda":
        torch.cuda.set_device(dist.get_node_local_rank())
    policies = {
        "plain": None,
        "keep_top": functools.partial(lai_core.keep_top, fraction=0.5),
        "keep_positive": lai_core.keep_positive,
    }
    found = {name: train(steps, policy) for name, policy in policies.items()}
    for name, row in found.items() if dist.get_rank() == 0 else ():
        print(name, *(f"{key} {value:.3g}" for key, value in row.items()), sep="\t")
    dist.destroy_process_group()
    return found


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
