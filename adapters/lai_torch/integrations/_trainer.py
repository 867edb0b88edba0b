"""What a curated Trainer is given, writes into its checkpoints, and samples from."""

import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import IterableDataset, Sampler
from transformers import TrainerCallback
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES,
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES,
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
    MODEL_FOR_VIDEO_CLASSIFICATION_MAPPING_NAMES,
)

from lai_core._adapters import number_groups, source_names
from lai_core.mixtures import Mixture
from lai_torch.integrations.losses import classification_losses, next_token_losses
from lai_torch.integrations.sampling import MixtureSampler
from lai_torch.integrations.sources import Sources
from lai_torch.report import Report

LOSSES = (
    (MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, next_token_losses),
    (MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES, classification_losses),
    (MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES, classification_losses),
    (MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES, classification_losses),
    (MODEL_FOR_VIDEO_CLASSIFICATION_MAPPING_NAMES, classification_losses),
)


def check_losses(trainer: Any, curated: type, sample_loss: Any) -> None:
    """Refuse losses that are not `sample_loss`: a curated step trains on its samples' own losses."""
    if trainer.compute_loss_func is not None:
        msg = (
            f"compute_loss_func: expected None, got {trainer.compute_loss_func!r}: a curated step weighs the "
            "losses of single samples; pass a function sample_loss(outputs, batch) -> (n,)"
        )
        raise ValueError(msg)
    # the trainer smooths in its own loss, which is not called
    if trainer.args.label_smoothing_factor:
        msg = (
            f"label_smoothing_factor: expected 0, got {trainer.args.label_smoothing_factor}: a curated step "
            "takes the losses of sample_loss; pass one that smooths labels, as torch's "
            "cross_entropy(label_smoothing=) does"
        )
        raise ValueError(msg)
    if sample_loss is not None:
        return
    # a trainer's own loss may be another one than that of the model's kind
    classes = type(trainer).__mro__
    behind = classes[classes.index(curated) + 1 :]
    owner = next(one for one in behind if "compute_loss" in vars(one))
    if owner.__module__.partition(".")[0] not in {"transformers", "trl"}:
        msg = (
            f"compute_loss: expected the library's own, got that of {owner.__name__}, which a curated step "
            "does not call: it weighs the losses of single samples; pass what it computes as a function "
            "sample_loss(outputs, batch) -> (n,)"
        )
        raise ValueError(msg)


def usual_loss(model: Any) -> Any:
    """Return the loss that a model of its kind is usually trained on."""
    # adapters of peft wrap the model that has the loss
    base = getattr(model, "get_base_model", lambda: model)()
    kind = type(base).__name__
    for names, loss in LOSSES:
        if kind in names.values() and getattr(model.config, "num_labels", 2) > 1:
            return loss
    msg = (
        f"sample_loss: expected one for a {kind}, which is no language model that predicts the next token "
        "and no classifier with several labels, got None; pass a function sample_loss(outputs, batch) -> (n,)"
    )
    raise ValueError(msg)


def validation_set(evaluated: Any, chosen: Any) -> Any:
    """Return the data set that samples are to help."""
    # a trainer's eval_dataset may be several, by name
    if isinstance(chosen, str):
        if not isinstance(evaluated, Mapping):
            msg = f"validation: expected a data set, since eval_dataset is no dictionary, got {chosen!r}"
            raise ValueError(msg)
        if chosen not in evaluated:
            names = sorted(evaluated)
            msg = f"validation: expected the name of one of the eval_dataset's, {names}, got {chosen!r}"
            raise ValueError(msg)
        chosen = evaluated[chosen]
    if chosen is None or isinstance(chosen, Mapping) or not hasattr(chosen, "__len__"):
        msg = (
            "validation: expected the data set that samples are to help, with a length, or the name of one "
            f"of the eval_dataset's, got {type(chosen).__name__}; hold one out beside the eval_dataset, for "
            "metrics on what training is curated on are not held out"
        )
        raise TypeError(msg)
    if not len(chosen):
        msg = "validation: expected at least one sample, got none"
        raise ValueError(msg)
    return chosen


FILE = "curation.pt"


class Keeping(TrainerCallback):
    """Gives each run its own curator; each checkpoint gets its state last, as a mark that it is complete."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Let go of an earlier run's curator: its model, wrapped or made anew, may be another one."""
        del args, state, control
        self.trainer._curator = None

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Write it, on one process: it is the same on all."""
        del control
        # moved into place when it is whole: its presence says that the checkpoint is
        if state.is_world_process_zero:
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            torch.save(self.trainer.curation_state(), folder / f"{FILE}.new")
            os.replace(folder / f"{FILE}.new", folder / FILE)


class Mixing:
    """A mixture, the sampler that draws by it, and how far both are in a run."""

    def __init__(
        self, mixture: Mixture, period: int, groups: str | None, fixed: Mapping[Any, int] | None, data: Any
    ) -> None:
        # a trainer asks no sampler for the order of a stream
        if isinstance(data, IterableDataset):
            msg = (
                f"mixture: expected a train_dataset with a length, got {type(data).__name__}, which is read "
                "in its own order; leave mixture out, or load the data set"
            )
            raise TypeError(msg)
        if groups is None:
            msg = "groups: expected the name of the entry that says a sample's source, got None"
            raise ValueError(msg)
        self.groups, self.fixed = groups, fixed
        self.sources = Sources(mixture, period)
        self.sampler: MixtureSampler | None = None
        self.drawn = 0

    def make_sampler(
        self, data: Any, batch_size: int, seed: int, state: Mapping[str, Any] | None, *, skips: bool
    ) -> Any:
        """Make the sampler of a run, new or as a checkpoint has it, for the batch of all processes.

        Where the trainer `skips` what an epoch has trained on, it is given as much to skip.
        """
        # a data set of `datasets` gives a column at once
        named = hasattr(data, "column_names")
        groups = data[self.groups] if named else [row[self.groups] for row in data]
        self.drawn = 0
        self.sampler = MixtureSampler(
            list(groups), self.sources.mixture, batch_size, fixed=self.fixed, seed=seed
        )
        # mixture, draws and count are of one moment
        if state is not None:
            self.sources.load_state_dict(state["sources"])
            self.sampler.load_state_dict(state["sampler"])
            self.drawn = state["sampler"]["batch"]
        return ResumedSampler(self.sampler, self.drawn % self.sampler.batches * batch_size if skips else 0)

    def take(self, report: Report, groups: Sequence[Tensor], gather: Callable[[Tensor], Tensor]) -> None:
        """Take in a step's scores; `gather` takes one process's numbers, NaN for none, to all."""
        self.drawn += 1
        # a warm-up scores nothing
        if report.scores is not None:
            scores, sources = (gather(own) for own in (report.scores, torch.cat(list(groups)).double()))
            self.sources.add(scores, torch.nan_to_num(sources, nan=-1.0))

    def shares(self) -> dict[str, float]:
        mixture = self.sources.mixture
        names = mixture.names or range(len(mixture.weights))
        return {f"curation/share/{name}": one for name, one in zip(names, mixture.weights, strict=True)}

    def state(self) -> dict[str, Any]:
        sampler = None
        if self.sampler is not None:
            sampler = self.sampler.state_dict(batches=self.drawn)
        return {"sources": self.sources.state_dict(), "sampler": sampler}


class ResumedSampler(Sampler[int]):
    """A sampler in the middle of its epoch, whose first indices stand for those that were trained on."""

    def __init__(self, sampler: MixtureSampler, trained: int) -> None:
        self.sampler, self.trained = sampler, trained

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[int]:
        trained, self.trained = self.trained, 0
        yield from itertools.repeat(0, trained)
        yield from self.sampler


class WithGroups:
    """A collator that passes the samples' groups on; TRL's drop every column that they do not know.

    Groups that are text are numbered by their place among `names`.
    """

    def __init__(self, collate: Callable[[list[Any]], Any], groups: str, names: Sequence[str] = ()) -> None:
        self.collate, self.groups, self.names = collate, groups, names

    def __call__(self, examples: list[Any]) -> Any:
        """Collate examples, with their groups where they have any."""
        batch = self.collate(examples)
        # an evaluation set may have none
        if self.groups not in batch and self.groups not in examples[0]:
            return batch
        groups = batch[self.groups] if self.groups in batch else [one[self.groups] for one in examples]
        return {**batch, self.groups: torch.as_tensor(number_groups(groups, self.names), device="cpu")}

    def drop(self, examples: list[Any]) -> Any:
        """Collate examples without their groups, which may be others than those that train."""
        kept = [{name: value for name, value in one.items() if name != self.groups} for one in examples]
        return self.collate(kept)


def names_of(data: Any, groups: str, mixture: Mixture | None, fixed: Mapping[Any, int] | None) -> list[str]:
    """Return what a data set's groups are called, by number: the mixture's names, or its own in order."""
    names = source_names(mixture, fixed)
    held = hasattr(data, "__len__") and groups in (getattr(data, "column_names", None) or ())
    if names or mixture is not None or not held:  # a stream's names nobody knows before its end
        return names
    return sorted({one for one in data[groups] if isinstance(one, str)})
