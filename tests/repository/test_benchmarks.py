"""What the benchmarks measure, at toy size, and the committed counts that no run may exceed."""

import copy
import json
from functools import partial

import lai_torch
import pytest
import torch

from benchmarks.methods import CACHED, curator, plain, plain_step
from benchmarks.models import TIMED
from benchmarks.seconds import BASELINE, measure, ratios, worse
from tests.support.workloads.counts import counted
from tests.support.workloads.torch_oracle import per_sample_gradients

FIGURES = {"model": {"kept": {"cpu_ratio": 0.9, "flops_ratio": 0.8, "waits": 1, "launches": 100}}}


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ({"cpu_ratio": 9.0, "hand_ratio": 7.0}, None),  # seconds are never judged
        ({"flops_ratio": 0.9}, "flops_ratio: 0.800 before, 0.900 now"),
        ({"waits": 2}, "waits: 1.000 before, 2.000 now"),
        ({"launches": 110}, "launches: 100.000 before, 110.000 now"),
    ],
)
def test_counts_that_grow_are_worse(row, named):
    found = copy.deepcopy(FIGURES)
    found["model"]["kept"] |= row
    assert worse(FIGURES, found) == ([] if named is None else [f"model kept {named}"])
    assert worse(found, FIGURES) == []
    assert worse(FIGURES, {"model": {}}) == ["model kept: not measured any more"]


KNOWN = json.loads(BASELINE.read_text(encoding="utf-8"))


def test_smallest_step_keeps_committed_counts():
    assert worse(KNOWN, measure(["tiny_mlp"], rounds=0)) == []


@pytest.mark.weekly  # models of twelve blocks take 20 minutes to count; the smallest model is counted above
def test_launch_counts_stay_within_committed_ones():
    assert worse(KNOWN, measure(["bert_12_launches", "gpt_12_launches"], rounds=0)) == []


def test_refused_methods_leave_no_row():
    def stop(error, work, optimizer):
        raise error

    refused, failed = (partial(stop, kind("why")) for kind in (NotImplementedError, RuntimeError))
    assert ratios(TIMED["tiny_mlp"], {"plain": plain, "refused": refused}, 0).keys() == {"plain"}
    with pytest.raises(RuntimeError, match="why"):
        ratios(TIMED["tiny_mlp"], {"plain": plain, "failed": failed}, 0)


def test_scores_match_and_cost_no_loop():
    torch.manual_seed(0)
    work = TIMED["tiny_mlp"]()
    step = counted(partial(plain_step, work, work.optimizer())).flops
    work.model.eval()

    def loop():
        sides = ((side, len(side[1])) for side in (work.batch, work.validation))
        rows, others = (per_sample_gradients(work.model, work.loss, *side, n) for side, n in sides)
        return (rows * others.sum(0)).sum(1)

    def score(estimator, refresh):
        made = curator(work, None, estimator, refresh=refresh)
        counts = [counted(partial(made.score, *work.batch)).flops for _ in range(4)]  # the first prove
        return made.score(*work.batch)[1].scores, min(counts)

    for estimator in (lai_torch.Ghost(), lai_torch.Exact()):
        scores, flops = score(estimator, 1)
        torch.testing.assert_close(scores, loop(), rtol=1e-4, atol=1e-5 * float(scores.abs().max()))
    # exact scores also run both halves of the batch forward, to see that samples do not meet
    assert flops < 1.3 * counted(loop).flops
    assert score(lai_torch.LAI(), CACHED)[1] < 0.5 * step
