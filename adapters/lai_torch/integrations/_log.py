"""What a trainer logs of its curator."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from lai_torch.report import Report, score_quantiles


class Log:
    """Over the steps since the last time: the share kept, quantiles of scores, each group's share dropped."""

    def __init__(self, names: Sequence[str] = ()) -> None:  # names of groups that reports have as numbers
        self.names = names
        self._shares: list[float] = []
        self._scores: list[Tensor] = []
        self._groups: dict[Any, list[float]] = {}

    def add(self, report: Report) -> None:
        """Take a step's report."""
        self._shares.append(report.share)
        if report.scores is not None:
            self._scores.append(report.scores.detach())
        for group, share in (report.group_drops or {}).items():
            self._groups.setdefault(self.names[group] if self.names else group, []).append(share)

    def take(self, gather: Callable[[Tensor], Tensor] = lambda own: own) -> dict[str, float]:
        """Return what to log, and begin again; `gather` takes one process's scores, NaN for none, to all."""
        if not self._shares:
            return {}
        found = {"curation/kept": sum(self._shares) / len(self._shares)}
        if self._scores:
            quantiles = score_quantiles(gather(torch.cat(self._scores)))
            found |= {f"curation/{name}": value for name, value in quantiles.items()}
        for group, shares in self._groups.items():
            found[f"curation/dropped/{group}"] = sum(shares) / len(shares)
        self.__init__(self.names)  # type: ignore[misc]
        return found
