"""A mixture of sources that follows the scores of what is trained on, and its place in a Trainer."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

import lai_core as lai
from lai_core._adapters import check_count
from lai_core.mixtures import Mixture, group_scores, group_sizes

USUAL = {"estimator": "lli", "policy": partial(lai.keep_top, fraction=1.0)}
"""Options where scores decide by source: LLI's do as well as others', and every sample trains."""


class Sources:
    """Moves a mixture by the mean scores of its sources, every `period` steps.

    Parameters
    ----------
    mixture
        The mixture, whose weights a sampler reads.
    period
        Number of scored steps whose scores make one update.
    """

    def __init__(self, mixture: Mixture, period: int = 20) -> None:
        check_count("period", period, 1)
        self.mixture, self.period = mixture, period
        self._seen: list[tuple[Tensor, Tensor]] = []

    def add(self, scores: Tensor, groups: Tensor) -> bool:
        """Take in the scores of a step, and say whether the mixture was moved.

        Parameters
        ----------
        scores
            `(n,)`; those that are not finite count for nothing.
        groups
            `(n,)`, the source of each sample. Numbers beyond the mixture's sources count for nothing: those
            of validation samples that are mixed in, say.

        Returns
        -------
        bool
            Whether this was the last step of a period.
        """
        self._seen.append((scores.detach().double().cpu(), groups.detach().to("cpu", torch.int64)))
        if len(self._seen) < self.period:
            return False
        found, sources = (torch.cat(column) for column in zip(*self._seen, strict=True))
        given = found, sources, len(self.mixture.weights)
        self.mixture.step(*group_scores(*given), sizes=group_sizes(*given))
        self._seen.clear()
        return True

    def state_dict(self) -> dict[str, Any]:
        """Return the mixture's state and the scores since its last update, for a checkpoint."""
        return {"mixture": self.mixture.state_dict(), "seen": list(self._seen)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take a state back.

        Parameters
        ----------
        state
            What `state_dict` returned.
        """
        self.mixture.load_state_dict(state["mixture"])
        self._seen = list(state["seen"])
