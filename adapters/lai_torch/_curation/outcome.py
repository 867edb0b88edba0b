"""Groups of samples; from all processes' scores to this one's weights, and from each part to one report."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lai_core._adapters import numbered
from lai_torch._curation.processes.group import Alone, digest
from lai_torch._curation.scorers.base import Scored
from lai_torch._curation.undo import DeferredChecks
from lai_torch._curation.update import Update
from lai_torch.options.protocols import Policy, ask
from lai_torch.report import Report, ScoredReport

NUMBERS, TEXT = 1, 2


class Groups(NamedTuple):
    """The groups of all processes' samples, and what they are called where they are text."""

    numbers: Tensor
    names: Sequence[str] = ()


def check_groups(groups: Any, samples: int) -> None:
    """Raise unless there is one group per sample, all whole numbers or all text."""
    if groups is None:
        return
    text = not isinstance(groups, Tensor)
    listed = isinstance(groups, Collection) and not isinstance(groups, str | Mapping)
    if text and not (listed and all(isinstance(one, str) for one in groups)):
        msg = (
            "groups: expected a tensor of whole numbers, or a list of text, one per sample, got "
            f"{type(groups).__name__}"
        )
        raise TypeError(msg)
    shape = (len(groups),) if text else tuple(groups.shape)
    if shape != (samples,):
        msg = f"groups: expected shape ({samples},), got {shape}"
        raise ValueError(msg)
    if not text and (groups.is_floating_point() or groups.is_complex()):
        msg = f"groups: expected whole numbers, got {groups.dtype}"
        raise TypeError(msg)


def joined_groups(groups: Sequence[Any] | None) -> Any:
    """Return the groups of several batches as those of one."""
    if groups is None or isinstance(groups[0], Tensor):
        return None if groups is None else torch.cat(list(groups))
    return [one for each in groups for one in each]


def gathered_groups(group: Alone, groups: Any) -> Groups | None:
    """Return the groups of all processes' samples, which all pass numbers, all text or none."""
    kind = 0 if groups is None else NUMBERS if isinstance(groups, Tensor) else TEXT
    if not (most := group.most(kind)):
        return None
    with group.agreed():
        if kind != most:
            expected = ("", "whole numbers", "text")[most]
            got = ("None", "whole numbers", "text")[kind]
            msg = f"groups: expected {expected} on every process, as on one, got {got}"
            raise ValueError(msg)
    names: list[str] = []
    if kind == TEXT:
        # the same numbers on every process, so that policies see the same
        names = sorted({str(one) for own in group.objects(sorted(set(groups))) for one in own})
        groups = torch.as_tensor(numbered(groups, names), device="cpu")
    if group.size > 1:
        groups = group.gathered(groups.to(group.device, torch.int64))[0]
    return Groups(groups, names)


def dropped_shares(weights: Tensor, groups: Groups) -> dict[Any, float]:
    """Return the share of each group that got no weight."""
    numbers = groups.numbers.to(weights.device)
    return {
        groups.names[number] if groups.names else number: float(
            (weights[numbers == number] <= 0).double().mean()
        )
        for number in numbers.unique().tolist()
    }


SHARED = {each.name for each in fields(Scored)} & {each.name for each in fields(Report)}
"""What a report takes over from scoring."""


def weigh(
    group: Alone,
    scored: Scored,
    policy: Policy,
    told: dict[str, Any],
    own: dict[str, Tensor],
    deferred: DeferredChecks,
) -> Tensor:
    """Return the weights of this process's samples; the policy reads those of all processes.

    So no policy needs another form on several processes: they gather n numbers, not what it is made of.
    Beside the scores it sees what it asks for of `told`, and of this process's `own` numbers a sample.
    """
    scores, slices = group.gathered(scored.scores)
    parts = None if scored.parts is None else group.gathered(scored.parts.T)[0].T
    seen = told | {name: group.gathered(values)[0] for name, values in own.items()}
    if parts is not None:
        seen["sizes"] = scored.sizes
    with group.agreed():
        found = ask(policy, scores if parts is None else parts, seen)
        weights = checked_weights(found, scores, deferred)
    if group.telling and not group.alike(digest([weights, weights.cumsum(0)])):
        msg = (
            "policy: expected the same weights from the same scores on every process, got others; let it "
            "draw from a generator that is seeded alike, and read nothing else"
        )
        raise ValueError(msg)
    return weights if group.size == 1 else weights[slices[group.rank]]


def _not_negative(least: float) -> bool:
    return least >= 0.0


def checked_weights(weights: Any, scores: Tensor, deferred: DeferredChecks) -> Tensor:
    """Return a policy's weights, zero where a score is not finite, after checking that they are weights."""
    name = "policy: expected weights as a floating-point tensor"
    if not isinstance(weights, Tensor):
        msg = f"{name}, one per sample, got {type(weights).__name__}"
        raise TypeError(msg)
    if not weights.is_floating_point():
        hint = "; divide a mask by the number of samples it keeps" if weights.dtype is torch.bool else ""
        msg = f"{name}, got {weights.dtype}{hint}"
        raise TypeError(msg)
    if weights.shape != scores.shape:
        msg = f"{name} of shape {tuple(scores.shape)}, got {tuple(weights.shape)}"
        raise ValueError(msg)
    weights = weights.detach().to(scores.device)
    if not deferred.later:  # else all scores are finite
        weights = torch.where(torch.isfinite(scores), weights, 0.0)
    if not (deferred.holds(weights.amin(), _not_negative) and deferred.finite(weights)):
        worst = weights[~((weights >= 0) & torch.isfinite(weights))][0]
        msg = f"policy: expected weights that are finite and not negative, got {float(worst):g}"
        raise ValueError(msg)
    return weights


def reported(
    group: Alone,
    scored: Scored | None,
    update: Update,
    groups: Groups | None,
    deferred: DeferredChecks,
    **told: Any,
) -> Report:
    """Say what became of a batch: of this process's samples one by one, of all processes' in sum."""
    found: dict[str, Any] = {"scores": None, "losses": update.losses}
    dropped = update.dropped
    if scored is not None:
        found = {name: getattr(scored, name) for name in SHARED}
        if not deferred.later:  # else all of them are finite
            dropped += int((~torch.isfinite(scored.scores)).sum())
    weights, kept, loss = update.weights, update.kept, None
    if group.size > 1:
        weights, _ = group.gathered(update.weights)
        kept = int((weights > 0).sum())
        nothing = math.isnan(update.loss) and not update.kept
        loss, everyone = group.totals(0.0 if nothing else update.loss, dropped)
        dropped = int(everyone)
        loss = loss if kept else math.nan
    collectives, sent = group.spent()
    kind = Report if scored is None else ScoredReport
    return kind(
        weights=update.weights,
        kept=kept,
        share=kept / weights.shape[0],
        dropped=dropped,
        skipped=not update.used,
        updated=update.updated,
        group_drops=None if groups is None else dropped_shares(weights, groups),
        trained_losses=update.losses,
        total=loss,
        collectives=collectives,
        bytes_sent=sent,
        **told,
        **found,
    )
