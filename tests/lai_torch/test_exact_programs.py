"""Exact scores of random programs, judged by one reverse pass a sample; `tests.random_torch` tries more."""

import lai_torch
import pytest

from tests.random_torch import REFUSED, scores
from tests.support.torch_parts import SOUND, UNSOUND
from tests.support.torch_programs import LOSSES, UNSOUND_LOSSES, program, verdict

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Full backward hook is firing:UserWarning"),
]
NETS, GROUPS = 144, 6
DOUBLE_BACKWARD = {"cut", "hooked", "padded_and_tied", "reversed", "straight"}
REVERSE = {"forgetful", "once", "prototypes"}


@pytest.mark.parametrize("group", range(GROUPS))
def test_random_programs_are_scored_exactly_or_refused_by_name(group):
    for seed in range(group, NETS, GROUPS):
        outcome, word = verdict(seed, scores)
        made_of = program(seed).made_of
        assert outcome not in {"wrong", "crash"}, (seed, word, made_of)
        assert outcome != "refused" or REFUSED & set(made_of), (seed, word, made_of)


@pytest.mark.parametrize("part", SOUND)
def test_every_part_is_scored_exactly(part):
    made_of = ("linear", part, "cross_entropy", "flat", "")
    assert verdict(1, scores, made_of)[0] == "exact"
    drawn = program(1, made_of=made_of)
    found = lai_torch.exact_scores(drawn.model, drawn.loss, drawn.validation, drawn.training, explain=True)
    if part in DOUBLE_BACKWARD:
        assert found.method == "double backward"
        assert found.reason.startswith("forward: ")
    if part in REVERSE:
        assert found.method == "reverse"
        assert "double backward: " in found.reason
    if part in {"linear", "attention", "experts", "renormalised", "scripted", "gru"}:
        assert found.residual < 1e-12


@pytest.mark.parametrize("part", UNSOUND)
def test_parts_that_leave_samples_no_score_are_refused(part):
    outcome, word = verdict(1, scores, (part, "tanh", "cross_entropy", "flat", ""))
    assert outcome in {"rightly refused", "refused"}
    assert word.startswith("model: expected ")


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_is_scored_exactly(loss):
    assert verdict(2, scores, ("linear", "tanh", loss, "flat", ""))[0] == "exact"


@pytest.mark.parametrize("loss", UNSOUND_LOSSES)
def test_losses_that_leave_samples_no_score_are_refused(loss):
    assert verdict(2, scores, ("linear", "tanh", loss, "flat", ""))[0] in {"rightly refused", "refused"}
