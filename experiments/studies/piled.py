"""GPT-Neo on the Pile, by the paper's settings (`published.toml`): for its Figure 1 and its Table 1."""

import itertools
import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import lai_torch
import numpy as np
import torch
from torch import Tensor, nn

import lai_core as lai
from experiments.data import published as data
from experiments.data.digits import Batch
from experiments.data.published import find
from experiments.harness.study import Found
from experiments.networks import next_loss
from experiments.studies import published
from experiments.studies.figure_one import Reading, run

STREAMS = 5
"""The training sequences are dealt out in turn, to as many seeds: no two read the same ones."""


def network(seed: int, *, drawn: bool) -> nn.Module:
    """Return GPT-Neo, with its makers' weights or with weights drawn anew."""
    from transformers import AutoConfig, AutoModelForCausalLM

    place = str(find(published.SETTINGS["pile"]["model"]))
    torch.manual_seed(seed)
    if drawn:
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(place, local_files_only=True))
    else:
        model = AutoModelForCausalLM.from_pretrained(place, local_files_only=True)
    return published.Logits(model.eval()).to(
        published.WHERE
    )  # without dropout, which would hide what a step does


def windows(split: str) -> Iterator[np.ndarray]:
    """Return sequences of a split, each with the token that follows it."""
    from transformers import AutoTokenizer

    own = published.SETTINGS["pile"]
    tokenizer = AutoTokenizer.from_pretrained(str(find(own["model"])), local_files_only=True)
    return data.windows(data.documents(split), tokenizer, own["length"] + 1)


def batches(rows: Iterator[np.ndarray], size: int) -> Iterator[Batch]:
    """Yield so many sequences at once: their tokens, and those that follow."""
    while held := list(itertools.islice(rows, size)):
        ids = torch.from_numpy(np.stack(held)).to(published.WHERE)
        yield ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


def reading(seed: int, *, drawn: bool) -> Reading:
    """Return the network in training: Adam with decay, a warm-up, a cosine, short gradients."""
    own = published.SETTINGS["pile"]
    model, warmup, steps = network(seed, drawn=drawn), own["warmup"], own["steps"]
    options = {"betas": tuple(own["betas"]), "weight_decay": own["weight_decay"]}
    optimizer = torch.optim.AdamW(model.parameters(), lr=own["learning_rate"], **options)

    def rate(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        return 0.5 * (1.0 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))

    stream = batches(itertools.islice(windows("train"), seed % STREAMS, None, STREAMS), own["batch"])
    schedule, looks = torch.optim.lr_scheduler.LambdaLR(optimizer, rate), own["checkpoints"]
    return Reading(model, optimizer, stream, steps // looks, looks, schedule, own["max_norm"])


def figure(seed: int) -> Found:
    """Compare scores with both references at every checkpoint of a pre-training."""
    pairs, random = published.SETTINGS["pile"]["pairs"], np.random.default_rng((seed, 8))
    return run(reading(seed, drawn=True), pairs, random)


def trained(
    seed: int, estimator: Any, validation: Any, choose: Callable[[Tensor, torch.Generator], Tensor] | None
) -> dict[str, float]:
    """Train on; return the loss on `val`, its perplexity and the share kept."""
    own, found = published.SETTINGS["pile"], reading(seed, drawn=False)
    random, kept, curator = torch.Generator().manual_seed(seed), 0.0, None
    if estimator is not None:
        options: Any = {"estimator": estimator, "policy": lai.keep_positive, "max_norm": own["max_norm"]}
        curator = lai_torch.Curator(found.model, next_loss, found.optimizer, validation, **options)
    for batch in itertools.islice(found.batches, own["steps"]):
        weights = torch.full((len(batch[0]),), 1.0 / len(batch[0]))
        if curator is not None:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="positions: ")
                weights = curator.step(*batch).weights
            found.schedule.step()
        else:
            if choose is not None:
                weights = choose(torch.zeros(len(batch[0])), random)
            found.step(tuple(part[weights.to(part.device) > 0] for part in batch))
        kept += float((weights > 0).float().mean()) / own["steps"]
    losses = []
    with torch.no_grad():
        for inputs, targets in batches(itertools.islice(windows("val"), own["tested"]), own["batch"]):
            losses.append(next_loss(found.model(inputs), targets).cpu())
    loss = float(torch.cat(losses).double().mean())
    return {"test loss": loss, "perplexity": math.exp(loss), "kept": kept}
