"""A mixture of sources that follows the scores of what is trained on, and its place in a Trainer."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

import lai_core as lai
from lai_core._adapters import numbered, source_names
from lai_core.mixtures import Mixture, group_scores
from lai_torch.integrations.sampling import MixtureSampler
from lai_torch.options import check_count
from lai_torch.report import Report

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
        self.mixture.step(*group_scores(found, sources, len(self.mixture.weights)))
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


class Mixing:
    """A mixture, the sampler that draws by it, and how far both are in a run.

    Parameters
    ----------
    mixture, period
        As for `Sources`.
    groups
        Name of the column that says a sample's source.
    fixed
        As for `MixtureSampler`.
    """

    def __init__(
        self, mixture: Mixture, period: int, groups: str | None, fixed: Mapping[Any, int] | None
    ) -> None:
        if groups is None:
            msg = "groups: expected the name of the entry that says a sample's source, got None"
            raise ValueError(msg)
        self.groups, self.fixed = groups, fixed
        self.sources = Sources(mixture, period)
        self.sampler: MixtureSampler | None = None
        self.drawn = 0

    def sampled(self, data: Any, batch_size: int, seed: int, state: Mapping[str, Any] | None) -> Any:
        """Make the sampler of a run: a new one, or as a checkpoint has it.

        Parameters
        ----------
        data
            With a column that says each sample's source.
        batch_size
            Of an optimizer step, of all processes: each draws the whole, and takes its part.
        seed
            The run's.
        state
            What `state` returned. None: a new run.

        Returns
        -------
        MixtureSampler
            Which reads the mixture's weights at each batch.
        """
        named = hasattr(data, "column_names")
        groups = data[self.groups] if named else [row[self.groups] for row in data]
        self.drawn = 0
        self.sampler = MixtureSampler(
            list(groups), self.sources.mixture, batch_size, fixed=self.fixed, seed=seed
        )
        if state is not None:
            self.sources.load_state_dict(state["sources"])
            self.sampler.load_state_dict(state["sampler"])
        return self.sampler

    def take(self, report: Report, groups: Sequence[Tensor], gather: Callable[[Tensor], Tensor]) -> None:
        """Take in a step.

        Parameters
        ----------
        report
            On this process's samples.
        groups
            Their sources, batch by batch.
        gather
            From one process's numbers to all processes', NaN where there is none.
        """
        self.drawn += 1
        if report.scores is not None:
            scores, sources = (gather(own) for own in (report.scores, torch.cat(list(groups)).double()))
            self.sources.add(scores, torch.nan_to_num(sources, nan=-1.0))

    def shares(self) -> dict[str, float]:
        """Return the weights, as a trainer logs them.

        Returns
        -------
        dict
            `curation/share/K` for each source, or its name.
        """
        mixture = self.sources.mixture
        names = mixture.names or range(len(mixture.weights))
        return {f"curation/share/{name}": one for name, one in zip(names, mixture.weights, strict=True)}

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint holds.

        Returns
        -------
        dict
            Tensors and plain values.
        """
        sampler = None if self.sampler is None else self.sampler.state_dict(batches=self.drawn)
        return {"sources": self.sources.state_dict(), "sampler": sampler}


class WithGroups:
    """A collator that passes the samples' groups on; TRL's drop every column that they do not know.

    Parameters
    ----------
    collate
        From examples to a batch.
    groups
        Name of the examples' entry.
    names
        Of groups that are text: each is numbered by its place among them.
    """

    def __init__(self, collate: Callable[[list[Any]], Any], groups: str, names: Sequence[str] = ()) -> None:
        self.collate, self.groups, self.names = collate, groups, names

    def __call__(self, examples: list[Any]) -> Any:
        """Collate examples, with their groups where they have any."""
        batch = self.collate(examples)
        if self.groups not in batch and self.groups not in examples[0]:
            return batch
        groups = batch[self.groups] if self.groups in batch else [one[self.groups] for one in examples]
        return {**batch, self.groups: torch.as_tensor(numbered(groups, self.names), device="cpu")}


def names_of(data: Any, groups: str, mixture: Mixture | None, fixed: Mapping[Any, int] | None) -> list[str]:
    """Return what a data set's groups are called, by number: the mixture's names, or its own in order.

    Parameters
    ----------
    data
        A data set; one without columns, and a stream, has no names of its own.
    groups
        Name of the column.
    mixture, fixed
        As for `Mixing`.

    Returns
    -------
    list of str
        Empty where groups are numbers.
    """
    names = source_names(mixture, fixed)
    held = hasattr(data, "__len__") and groups in (getattr(data, "column_names", None) or ())
    if names or mixture is not None or not held:  # a stream's names nobody knows before its end
        return names
    return sorted({one for one in data[groups] if isinstance(one, str)})
