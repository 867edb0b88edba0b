"""The place of a mixture of sources in a Trainer: its sampler, its scores, its checkpoints."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from lai_core._adapters import numbered, source_names
from lai_core.mixtures import Mixture
from lai_torch.integrations.sampling import MixtureSampler
from lai_torch.integrations.sources import Sources
from lai_torch.report import Report


class Mixing:
    """A mixture, the sampler that draws by it, and how far both are in a run."""

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
        """Make the sampler of a run, new or as a checkpoint has it, for the batch of all processes."""
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
        """Take in a step's scores; `gather` takes one process's numbers, NaN for none, to all."""
        self.drawn += 1
        if report.scores is not None:
            scores, sources = (gather(own) for own in (report.scores, torch.cat(list(groups)).double()))
            self.sources.add(scores, torch.nan_to_num(sources, nan=-1.0))

    def shares(self) -> dict[str, float]:
        """Return the weights, as a trainer logs them."""
        mixture = self.sources.mixture
        names = mixture.names or range(len(mixture.weights))
        return {f"curation/share/{name}": one for name, one in zip(names, mixture.weights, strict=True)}

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint holds."""
        sampler = None if self.sampler is None else self.sampler.state_dict(batches=self.drawn)
        return {"sources": self.sources.state_dict(), "sampler": sampler}


class WithGroups:
    """A collator that passes the samples' groups on; TRL's drop every column that they do not know.

    Groups that are text are numbered by their place among `names`.
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
    """Return what a data set's groups are called, by number: the mixture's names, or its own in order."""
    names = source_names(mixture, fixed)
    held = hasattr(data, "__len__") and groups in (getattr(data, "column_names", None) or ())
    if names or mixture is not None or not held:  # a stream's names nobody knows before its end
        return names
    return sorted({one for one in data[groups] if isinstance(one, str)})
