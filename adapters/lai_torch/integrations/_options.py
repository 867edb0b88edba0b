"""Options of the weigher that a trainer makes, checked when the trainer is made, and what is logged of it."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lai_torch.curator import Weigher
from lai_torch.options import KeptOptions
from lai_torch.report import Report, score_quantiles

A_SET = torch.zeros(1, device="cpu"), torch.zeros(1, device="cpu")
"""In the place of a validation set that is still to be collated."""


def read_options(loss: Any, validation: Any, **options: Any) -> tuple[dict[str, Any], Any]:
    """Return the options of a trainer's `Weigher`, and the auxiliary loss of its `KeptOptions`.

    Makes one of them, so that a mistake shows before there is a model to train.
    """
    training = options.pop("backward", KeptOptions())
    auxiliary = getattr(training, "auxiliary", None)
    if training != KeptOptions(auxiliary=auxiliary):
        msg = f"backward: expected KeptOptions(auxiliary=...) alone, for the trainer trains, got {training!r}"
        raise TypeError(msg)
    Weigher(nn.Identity(), loss, validation, **options | {"process_group": False})
    return options, auxiliary


class Log:
    """Over the steps since the last time: fractions kept and, by group, dropped; quantiles of scores."""

    def __init__(self, names: Sequence[str] = ()) -> None:  # names of groups that reports have as numbers
        self.names = names
        self._fractions: list[float] = []
        self._scores: list[Tensor] = []
        self._groups: dict[Any, list[float]] = {}

    def add(self, report: Report) -> None:
        self._fractions.append(report.kept_fraction)
        if report.scores is not None:
            self._scores.append(report.scores.detach())
        for group, share in (report.group_drops or {}).items():
            name = self.names[group] if self.names else group
            self._groups.setdefault(name, []).append(share)

    def take(self, gather: Callable[[Tensor], Tensor] = lambda own: own) -> dict[str, float]:
        """Return what to log, and begin again; `gather` takes one process's scores, NaN for none, to all."""
        if not self._fractions:
            return {}
        found = {"curation/kept": sum(self._fractions) / len(self._fractions)}
        if self._scores:
            quantiles = score_quantiles(gather(torch.cat(self._scores)))
            found |= {f"curation/{name}": value for name, value in quantiles.items()}
        for group, shares in self._groups.items():
            found[f"curation/dropped/{group}"] = sum(shares) / len(shares)
        self.__init__(self.names)  # type: ignore[misc]
        return found
