"""Groups of samples, one report from what each process did, and the counts after it."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from lai_core._adapters import number_groups
from lai_torch._curation.passes.base import Gradient
from lai_torch._curation.processes.group import Group
from lai_torch._curation.readings import Scored
from lai_torch._curation.state import CuratorState
from lai_torch._curation.weigh import Groups, Weighed
from lai_torch.report import Report, ScoredReport, sum_weighted_losses

NUMBERS, TEXT = 1, 2


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


def join_groups(groups: Sequence[Any] | None) -> Any:
    if groups is None or all(one is None for one in groups):
        return None
    numbers = [isinstance(one, Tensor) for one in groups]
    if any(one is None for one in groups) or 0 < sum(numbers) < len(numbers):
        got = [type(one).__name__ for one in groups]
        msg = f"groups: expected a tensor for each batch, a list of text for each, or none at all, got {got}"
        raise TypeError(msg)
    if all(numbers):
        return torch.cat(list(groups))
    return [one for each in groups for one in each]


def gather_groups(group: Group, groups: Any) -> Groups | None:
    """Return the groups of all processes' samples, which all pass numbers, all text or none."""
    kind = 0
    if groups is not None:
        kind = NUMBERS if isinstance(groups, Tensor) else TEXT
    if not (most := group.reduce_max(kind)):
        return None
    with group.raise_together():
        if kind != most:
            expected = ("", "whole numbers", "text")[most]
            got = ("None", "whole numbers", "text")[kind]
            msg = f"groups: expected {expected} on every process, as on one, got {got}"
            raise ValueError(msg)
    names: list[str] = []
    if kind == TEXT:
        # the same numbers on every process, so that policies see the same
        names = sorted({str(one) for own in group.objects(sorted(set(groups))) for one in own})
        groups = torch.as_tensor(number_groups(groups, names), device="cpu")
    if group.size > 1:
        groups = group.gather_rows(groups.to(group.device, torch.int64))[0]
    return groups, names


SHARED = {each.name for each in fields(Scored)} & {each.name for each in fields(Report)}
"""What a report takes over from scoring."""


def make_report(
    group: Group,
    scored: Scored | None,
    weighed: Weighed,
    gradient: Gradient,
    groups: Groups | None,
    state: CuratorState,
) -> Report:
    """Say what became of a batch: of this process's samples one by one, of all processes' in sum."""
    kind: type[Report] = Report
    found: dict[str, Any] = {"scores": None, "losses": gradient.losses}
    if scored is not None:
        # a report holds what a scored batch knows, and None of a warm-up
        kind, found = ScoredReport, {name: getattr(scored, name) for name in SHARED}
        found |= {"scores": scored.scores, "age": max(state.served - 1, 0)}
        if scored.sizes is None:
            found["parts"] = None
    kept, dropped, weights, everyone = weighed.kept, weighed.dropped, weighed.weights, weighed.everyone
    if not gradient.used:
        if gradient.objective is not None:  # else no row ran
            dropped += int(((weights > 0) & ~torch.isfinite(gradient.losses)).sum())
        kept, weights, everyone = 0, torch.zeros_like(weights), torch.zeros_like(everyone)
    loss = None
    if group.size > 1:
        loss = sum_weighted_losses(weights, gradient.losses)
        # of the rows that ran here, where those are not this process's own
        if gradient.moved and gradient.objective is not None:
            loss = float(gradient.objective)
        if math.isnan(loss) and not bool((weights > 0).any()):
            loss = 0.0  # of a process that keeps no row; the others' losses still count
        loss, total = group.totals(loss, dropped)
        dropped = int(total)
        # the sum of none would read as a loss of 0
        if not kept:
            loss = math.nan
    if groups is not None:
        numbers, names = groups[0].to(everyone.device), dict(enumerate(groups[1]))
        found["group_drops"] = {
            names.get(number, number): float((everyone[numbers == number] <= 0).double().mean())
            for number in numbers.unique().tolist()
        }
    return kind(
        weights=weights,
        kept=kept,
        kept_fraction=kept / everyone.shape[0],
        dropped=dropped,
        skipped=not gradient.used,
        updated=gradient.updated,
        backward=gradient.name,
        trained_losses=gradient.losses,
        total=loss,
        step=state.steps,
        **found,
    )


def count_step(state: CuratorState, scored: Scored | None, report: Report) -> CuratorState:
    """Return the state after a step; a skipped one moves no second moment."""
    moments = state if scored is None or report.skipped else scored
    return replace(
        state,
        steps=state.steps + 1,
        skipped=state.skipped + report.skipped,
        dropped=state.dropped + report.dropped,
        idle=0 if report.kept else state.idle + 1,
        second_moment=moments.second_moment,
        input_second_moments=moments.input_second_moments,
    )
