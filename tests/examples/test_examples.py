"""Every example runs, and shows what it says."""

import functools
import math
import multiprocessing
import runpy
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import lai_torch
import pytest
import torch

import lai_core
from tests.support.workloads.counts import Counts
from tests.support.workloads.launches import launch
from tests.support.workloads.torch_processes import CASES, errors, run, runs

EXAMPLES = Path(__file__).parents[2] / "examples"
WORDS = 8192
"""Of a vocabulary whose logits are most of a step's memory."""
SHOWS = {
    "accelerate_loop": lambda plain, curated: curated > plain,
    "jax_equinox": lambda plain, curated: curated > plain,
    "jax_flax": lambda plain, curated: curated > plain,
    "lightning_callback": lambda plain, curated: curated > plain,
    "whole_run": lambda plain, curated: curated > plain,
    "sources": lambda fixed, moved: moved > fixed,
    "transformers_trainer": lambda clean, noise: noise > 0.3 > clean,
}


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # the trainers' own
@pytest.mark.parametrize("name", sorted(SHOWS))
def test_an_example_shows_what_it_says(name):
    assert SHOWS[name](*runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"]())


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # the compiler's own
def test_resumed_runs_are_bitwise_identical(tmp_path):
    train = runpy.run_path(str(EXAMPLES / "whole_run.py"))["train"]
    logs = {"once": [], "resumed": []}
    for name, stops in {"once": (2,), "resumed": (1, 2)}.items():
        for epochs in stops:
            train(tmp_path / name, lambda *entry, name=name: logs[name].append(entry), epochs, 2)
    assert logs["once"] == logs["resumed"]
    assert {"curation/kept", "curation/loss", "test/accuracy"} <= {entry[0] for entry in logs["once"]}
    assert all(math.isfinite(value) for _, value, _ in logs["once"])
    first, second = (torch.load(tmp_path / name, weights_only=True)["model"] for name in logs)
    assert all(torch.equal(first[name], second[name]) for name in first)


def lines_of(*program):
    """Return the lines that a program prints."""
    options = {"cwd": EXAMPLES.parent, "capture_output": True, "text": True, "check": False, "timeout": 600}
    done = subprocess.run([sys.executable, *map(str, program)], **options)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


# both as programs: datasets forks, which JAX's threads do not outlive, and Ray starts slowly
@pytest.mark.slow
@pytest.mark.parametrize("name", ["score_corpus", pytest.param("ray_data", marks=pytest.mark.weekly)])
def test_corpus_scores_ignore_process_count(name):
    harmful, alike = lines_of(EXAMPLES / f"{name}.py")[-2:]
    assert alike.endswith("are the same")
    assert int(harmful.split()[3].rstrip("%")) > 50  # of all, 36% have one


@pytest.mark.weekly
def test_curators_add_no_compilations_when_sharded():
    two, found = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"), {}
    for line in lines_of(*two, EXAMPLES / "torchtitan_style.py"):
        name, *figures = line.split("\t")
        found[name] = {key: float(value) for key, value in map(str.split, figures)}
    assert found.keys() == {"plain", "keep_top", "keep_positive"}
    for row in found.values():
        assert row["graph_breaks"] == 0
        assert row["graphs"] <= row["shapes"]
        assert row["logits"] <= 3 / 16  # of all: a chunk of two rows is also run with one row more
    assert found["plain"]["graphs"] == found["keep_top"]["graphs"] == 1
    assert found["keep_top"]["noise"] < 0.8 * found["plain"]["noise"]


@pytest.mark.slow
def test_compiled_shards_match_plain_blocks():
    case, spawned = ("compiled", "fsdp2"), multiprocessing.get_context("spawn")
    parts = launch(runs, 2, 2, [case], start=spawned)
    assert max(errors([part[case] for part in parts], run(CASES["compiled"])).values()) < 1e-12


@pytest.mark.slow
def test_curated_steps_never_hold_batch_logits(monkeypatch):
    made = runpy.run_path(str(EXAMPLES / "torchtitan_style.py"))
    monkeypatch.setitem(made["PackedRows"].__next__.__globals__, "WORDS", WORDS)
    whole = 4 * made["ROWS"] * made["LENGTH"] * WORDS
    stream, (tokens, labels, _) = made["PackedRows"](2), next(made["PackedRows"](1))
    peaks = []
    for warmup in (10**9, 0):
        model = made["Decoder"]()
        curator = lai_torch.Curator(
            model,
            lambda losses, _: losses,
            torch.optim.AdamW(model.parameters()),
            ((tokens, labels), labels),
            estimator=lai_torch.LAI(positions="tokens", sketch=16, chunk=2),
            policy=functools.partial(lai_core.keep_top, fraction=0.5),
            warmup=warmup,
        )
        for step in range(3):
            (inputs, targets, _), tracker = next(stream), Counts()
            with tracker if step == 2 else nullcontext():
                curator.step((inputs, targets), targets)
        peaks.append(tracker.peak)
    plain, curated = peaks
    assert curated < plain < whole


def test_packed_streams_are_sharded():
    stream = runpy.run_path(str(EXAMPLES / "torchtitan_style.py"))["PackedRows"]
    processes, alone = [stream(2, rank, 2, 0.4) for rank in range(2)], stream(2, 0, 1, 0.4)
    shares = zip(*map(next, processes), strict=True)
    wholes = zip(next(alone), next(alone), strict=True)
    for own, batches in zip(shares, wholes, strict=True):
        assert torch.equal(torch.stack(own, 1).flatten(0, 1), torch.cat(batches))


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # the trainer's own
def test_grpo_losses_match_with_fewer_rollouts(monkeypatch):
    made = runpy.run_path(str(EXAMPLES / "trl_grpo.py"))
    gradients, compute = [], made["GRPOTrainer"]._compute_loss

    def compared(trainer, model, rollouts):
        loss = compute(trainer, model, rollouts)
        inputs, targets = made["as_batch"](rollouts)
        losses = made["policy_gradient"](model(**inputs), targets)
        parameters = list(model.parameters())
        both = loss, losses.mean()
        gradients.append([torch.autograd.grad(one, parameters, retain_graph=True) for one in both])
        return loss

    monkeypatch.setattr(made["GRPOTrainer"], "_compute_loss", compared)
    found = {
        arm: made["trained"](arm, 4, 0)[1] for arm in ("every rollout", "prompts with variance", "curated")
    }
    assert len(gradients) == 12
    for grpo, rollouts in gradients:
        torch.testing.assert_close(grpo, rollouts, rtol=1e-4, atol=1e-6)
    assert 0 < found["curated"] < 0.8 * found["prompts with variance"]
    assert found["prompts with variance"] <= found["every rollout"] < 4 * 64


def test_every_example_is_run_and_shown():
    elsewhere = {"trl_sft", "score_corpus", "ray_data", "trl_grpo", "torchtitan_style"}
    there = {path.stem for path in EXAMPLES.glob("*.py")}
    assert there == set(SHOWS) | elsewhere
    pages = (EXAMPLES.parent / "docs/guide" / f"{name}.md" for name in ("examples", "whole-run"))
    gallery = "".join(page.read_text(encoding="utf-8") for page in pages)
    assert {name for name in there if f"```{{literalinclude}} ../../examples/{name}.py" in gallery} == there
