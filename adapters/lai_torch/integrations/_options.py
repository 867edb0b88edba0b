"""Options of the curator that a trainer makes, checked when the trainer is made, and what is logged of it."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from lai_torch._curation.checks import checked_settings
from lai_torch.curator import Curator
from lai_torch.options import Kept
from lai_torch.options.keywords import REFUSED
from lai_torch.report import Report, score_quantiles

GIVEN = (None, None, None)
"""In the places of model, loss and optimizer, which a trainer hands over by itself."""
A_SET = torch.zeros(1, device="cpu"), torch.zeros(1, device="cpu")
"""In the place of a validation set that is still to be collated."""


def curator_options(host: str, options: Any, validation: Any = A_SET) -> tuple[dict[str, Any], Any]:
    """Return the options with which a trainer makes its curator, and its auxiliary loss.

    Raises
    ------
    TypeError
        If an option is of a wrong kind, or the curator has none of this name.
    ValueError
        If an option does not fit, or the trainer does not honour it.
    """
    if not isinstance(options, Mapping):
        msg = f"curation: expected a mapping of options of lai_torch.Curator, got {type(options).__name__}"
        raise TypeError(msg)
    own = [name for name in ("model", "loss", "optimizer", "validation") if name in options]
    if own:
        where = {"loss": "sample_loss=", "validation": "validation="}.get(
            own[0], "the trainer's own argument"
        )
        msg = f"{own[0]}: expected none in curation, which the trainer hands over, got one; pass {where}"
        raise TypeError(msg)
    bound = inspect.signature(Curator).bind(*GIVEN, validation, **options)
    bound.apply_defaults()
    settings = {name: value for name, value in bound.arguments.items() if name in KEYWORDS}
    checked_settings(validation, None, host=host, **settings)
    training = settings["backward"]
    auxiliary = training.auxiliary if isinstance(training, Kept) else None
    return {name: value for name, value in options.items() if name != "backward"}, auxiliary


def check_own_keywords(options: Mapping[str, Any]) -> None:
    """Raise if a trainer is given an option of its curator by itself."""
    for name in options:
        if name in KEYWORDS:
            usual = f"pass curation={{{name!r}: ...}}"
            way_out = REFUSED.get(name, (None, {}))[1].get("CuratedTrainer", usual)
            msg = f"the trainer got an unexpected keyword argument {name!r}; {way_out}"
            raise TypeError(msg)


KEYWORDS = frozenset(
    parameter.name
    for parameter in inspect.signature(Curator).parameters.values()
    if parameter.kind is parameter.KEYWORD_ONLY
)


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
