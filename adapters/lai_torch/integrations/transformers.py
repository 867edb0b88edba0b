"""Curation in transformers' Trainer: the micro-batches of one optimizer step are weighed together."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Trainer, __version__
from transformers.trainer_utils import get_last_checkpoint

from lai_core.mixtures import Mixture
from lai_torch._model.precision import zeros_filled
from lai_torch._model.preserve import preserve
from lai_torch.curator import Weigher
from lai_torch.integrations._options import A_SET, Log, read_options
from lai_torch.integrations._trainer import (
    FILE,
    Keeping,
    Mixing,
    WithGroups,
    check_losses,
    names_of,
    usual_loss,
    validation_set,
)
from lai_torch.integrations.losses import documents_of
from lai_torch.integrations.rows import check_documents, kept_documents, kept_rows, unpack
from lai_torch.integrations.sources import USUAL

if not hasattr(Trainer, "loss_is_scaled_for_ga"):  # without it weights would be divided, silently
    _message = f"lai_torch.integrations.transformers: expected transformers 5.23 or later, got {__version__}"
    raise ImportError(_message)

WEIGHTS = "curation_weights"


class Curated:
    """Makes a Trainer train on the samples of a step that help: `class CuratedTrainer(Curated, MyTrainer)`.

    Everything else stays the trainer's: devices, accumulation, mixed precision, clipping, schedules. Where
    rows are packed (`position_ids` begin anew, and there is no `attention_mask`), the documents are the
    samples: each is scored as a row of its own, and a step trains on one packed row of those that are kept.

    Parameters
    ----------
    validation
        What the samples are to help: a data set, or the name of one where the `eval_dataset` is a dictionary.
        It is collated as one batch. Hold it out beside the `eval_dataset`: metrics on the samples that
        training is curated on are not held out.
    sample_loss
        `sample_loss(outputs, batch) -> (n,)`. None: by the model's kind, `next_token_losses` or
        `classification_losses`.
    groups
        The batch's entry that says which group each sample is of, whole numbers or text; it does not go into
        the model.
    mixture
        A `lai_core.mixtures.Mixture` of the sources that `groups` says, by number from 0 or by the names that
        the mixture has. Batches are drawn
        by its weights, which follow the sources' mean scores; all samples train.
    period
        Number of optimizer steps between two updates of the mixture.
    fixed
        How many samples of each step come from a source whatever the weights (see `MixtureSampler`).
    curation
        Options of `lai_torch.Weigher`; and `backward=KeptOptions(auxiliary=...)`, for a loss
        `auxiliary(outputs, batch)` that trains and does not score.
    """

    def __init__(
        self,
        *arguments: Any,
        validation: Any = None,
        sample_loss: Any = None,
        groups: str | None = None,
        mixture: Mixture | None = None,
        period: int = 20,
        fixed: Mapping[Any, int] | None = None,
        curation: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        trainer: Any = self
        check_losses(trainer, Curated, sample_loss)
        self.sample_loss = sample_loss or usual_loss(trainer.model)
        self.groups, names = groups, list[str]()
        # the collator turns text into numbers, which alone go to a device
        if groups is not None:
            names = names_of(trainer.train_dataset, groups, mixture, fixed)
            trainer.data_collator = WithGroups(trainer.data_collator, groups, names)
        self.shown = Log(names)
        self._mixing: Mixing | None = None
        given = dict(curation or {})
        if mixture is not None:
            self._mixing = Mixing(mixture, period, groups, fixed, trainer.train_dataset)
            given = {**USUAL, "refresh": period, **given}
        self.curation, self.auxiliary = read_options(self.sample_loss, A_SET, **given)
        chosen = validation_set(trainer.eval_dataset, validation)
        self._validation = chosen
        if not isinstance(validation, str):
            self._validation = self._prepare_data(chosen)
        self._curator: Weigher | None = None
        self._resumed: Path | None = None
        self._kept, self._apart = 0, False
        trainer.loss_is_scaled_for_ga = True  # weights are those of the whole accumulated batch
        trainer.add_callback(Keeping(self))

    def _prepare_data(self, dataset: Any) -> Any:
        return dataset

    @property
    def curator(self) -> Weigher:
        """The curator; made at a run's first step, when the model is where it will be trained."""
        if self._curator is None:
            trainer: Any = self
            loader = trainer.get_eval_dataloader(self._validation)
            known = loader.collate_fn([loader.dataset[index] for index in range(len(loader.dataset))])
            given = self._parts(unpack(trainer._prepare_inputs(known)))
            self._curator = Weigher(trainer.model_wrapped, self.sample_loss, given, **self.curation)
            if (saved := self._read_state()) is not None:
                self._curator.load_state_dict(saved["curator"])
        return self._curator

    def curation_state(self) -> dict[str, Any]:
        """Return the state of the curator and of a mixture, for a checkpoint.

        Returns
        -------
        dict
            Tensors and plain values.
        """
        return {"curator": self.curator.state_dict(), "mixing": self._mixing and self._mixing.state()}

    def _read_state(self) -> dict[str, Any] | None:
        return None if self._resumed is None else torch.load(self._resumed, weights_only=True)

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        """Return the sampler of the mixture, where there is one; else the trainer's own."""
        trainer: Any = self
        if self._mixing is None:
            return super()._get_train_sampler(train_dataset)  # type: ignore[misc]
        if train_dataset is None:
            train_dataset = trainer.train_dataset
        saved = self._read_state()
        state = None if saved is None else saved["mixing"]
        size = trainer.args.train_batch_size * trainer.args.gradient_accumulation_steps
        skips = not trainer.args.ignore_data_skip
        size *= trainer.args.world_size
        return self._mixing.make_sampler(train_dataset, size, trainer.args.seed, state, skips=skips)

    def train(self, resume_from_checkpoint: Any = None, **options: Any) -> Any:
        """Train; from a checkpoint, with the curator that was saved in it.

        `resume_from_checkpoint=True` is the last checkpoint that was written whole.

        Raises
        ------
        ValueError
            If the checkpoint has no curator in it.
        """
        trainer: Any = super()
        folder = resume_from_checkpoint
        if folder is True:
            output = self.args.output_dir  # type: ignore[attr-defined]
            folder = get_last_checkpoint(output)
            # which may be one that an interruption cut off: the latest with a curator in it is whole
            whole = [path.parent for path in Path(output).glob(f"checkpoint-*/{FILE}")]
            if whole:
                folder = str(max(whole, key=lambda path: int(path.name.partition("-")[2])))
        self._resumed = Path(folder) / FILE if folder else None
        if self._resumed is not None and not self._resumed.exists():
            msg = (
                f"resume_from_checkpoint: expected one that a curated run saved, with {FILE}, got {folder!r}"
            )
            raise ValueError(msg)
        return trainer.train(resume_from_checkpoint=folder or resume_from_checkpoint, **options)

    def get_batch_samples(self, *arguments: Any) -> tuple[list[Any], Any]:
        """Score and weigh the micro-batches of an optimizer step; return the kept rows of each, with weights.

        How many labels they have does not matter then: None.
        """
        trainer: Any = super()
        found, prepare = trainer.get_batch_samples(*arguments)[0], self._prepare_inputs  # type: ignore[attr-defined]
        batches = [dict(prepare(batch)) for batch in found]
        # the end of an epoch
        if not batches:
            return batches, None
        curator = self.curator
        groups = None
        if self.groups is not None:
            groups = []
            for batch in batches:
                # out of what goes into the model
                own = batch.pop(self.groups, None)
                if own is None:
                    msg = (
                        f"groups: expected every batch to have an entry {self.groups!r}, got "
                        f"{sorted(batch)}; have the data set pass it on (packing drops it: padding_free does "
                        "not), or leave groups out"
                    )
                    raise ValueError(msg)
                groups.append(torch.as_tensor(own))
        parts = [self._parts(unpack(batch)) for batch in batches]
        packed = [documents_of(batch) is not None for batch in batches]
        with disable_autocast(curator.model):
            # once: whether documents see one another is a property of the model
            if any(packed) and not self._apart:
                self._check_documents(batches[packed.index(True)])
            weights, report = curator.weigh(parts, groups=groups)
        self.shown.add(report)
        if self._mixing is not None and groups is not None:
            self._mixing.take(report, groups, self._gather_numbers)
        self._kept = report.kept
        rows = [
            kept_documents(batch, own) if several else kept_rows(part, own)
            for batch, (_, part), own, several in zip(batches, parts, weights, packed, strict=True)
        ]
        return [{**batch, WEIGHTS: own} for batch, own in rows], None

    def _check_documents(self, batch: dict[str, Any]) -> None:
        """Check once that packed documents do not see one another."""
        model = self.curator.model
        parameters, contents = list(model.parameters()), self._parts(batch)[0]

        def losses(other: Any) -> Tensor:
            with preserve(model):  # so that every pass draws the same random numbers
                return self.trained_losses(model, other)

        with zeros_filled(parameters):
            check_documents(losses, batch, contents, parameters)
        self._apart = True

    def compute_loss(self, model: Any, inputs: Any, *arguments: Any, **options: Any) -> Any:
        """Return what a step minimises: weighted losses; in evaluation, without weights, the trainer's."""
        weights = inputs.pop(WEIGHTS, None)
        # an evaluation, for which nothing was weighed
        if weights is None:
            trainer: Any = super()
            return trainer.compute_loss(model, inputs, *arguments, **options)
        outputs, losses = self._compute_trained(model, inputs)
        # the outputs are not needed again
        if self.auxiliary is None:
            return self.curator.objective(losses, weights)
        fraction = int((weights > 0).sum()) / max(self._kept, 1)
        auxiliary = self.auxiliary(outputs, inputs)
        return self.curator.objective(losses, weights, auxiliary=auxiliary, fraction=fraction)

    def trained_losses(self, model: Any, batch: Any) -> Tensor:
        """Return each sample's loss as it is trained on.

        Parameters
        ----------
        model, batch
            The model as it trains, and the rows that it trains on.

        Returns
        -------
        Tensor
            `(n,)`.
        """
        return self._compute_trained(model, batch)[1]

    def _compute_trained(self, model: Any, batch: Any) -> tuple[Any, Tensor]:
        outputs = model(**self._parts(batch)[0])
        return outputs, self.sample_loss(outputs, batch)

    def log(self, logs: dict[str, float], *arguments: Any, **options: Any) -> None:
        """Log what was kept since the last time beside the loss."""
        trainer: Any = super()
        if "loss" in logs:
            logs.update(self.shown.take(self._gather_numbers))
            if self._mixing is not None:
                logs.update(self._mixing.shares())
        trainer.log(logs, *arguments, **options)

    def get_eval_dataloader(self, *arguments: Any, **options: Any) -> Any:
        """Return the trainer's own loader, whose batches have no groups: evaluation needs none."""
        with self._groups_dropped():
            return super().get_eval_dataloader(*arguments, **options)  # type: ignore[misc]

    def get_test_dataloader(self, *arguments: Any, **options: Any) -> Any:
        """Return the trainer's own loader, whose batches have no groups."""
        with self._groups_dropped():
            return super().get_test_dataloader(*arguments, **options)  # type: ignore[misc]

    @contextmanager
    def _groups_dropped(self) -> Iterator[None]:
        """Make the trainer's loaders, in the block, with a collator that drops groups."""
        trainer: Any = self
        collate = trainer.data_collator
        if isinstance(collate, WithGroups):
            trainer.data_collator = collate.drop
        try:
            yield
        finally:
            trainer.data_collator = collate

    def _gather_numbers(self, own: Tensor) -> Tensor:
        """Return all processes' numbers, NaN where one has fewer than another."""
        accelerator = self.accelerator  # type: ignore[attr-defined]
        found: Tensor = accelerator.gather(accelerator.pad_across_processes(own, pad_index=torch.nan))
        return found

    def _set_signature_columns_if_needed(self) -> None:
        trainer: Any = super()
        trainer._set_signature_columns_if_needed()
        columns = self._signature_columns  # type: ignore[attr-defined]
        if self.groups is not None and self.groups not in columns:
            columns.append(self.groups)

    def _parts(self, batch: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        # a decoder behind an encoder makes its inputs of the labels; other models would only compute a loss
        encodes = getattr(self.model.config, "is_encoder_decoder", False)  # type: ignore[attr-defined]
        labels = {"labels", *self.label_names}  # type: ignore[attr-defined]
        inputs = {name: value for name, value in batch.items() if encodes or name not in labels}
        return inputs, dict(batch)


class CuratedTrainer(Curated, Trainer):  # type: ignore[misc]
    """A Trainer that trains on the samples of each step that help a validation set; see `Curated`."""


@contextmanager
def disable_autocast(model: nn.Module) -> Iterator[None]:
    """Run a block with the forward pass that accelerate has put autocast around as it was before."""
    around, before = model.__dict__.get("forward"), model.__dict__.get("_original_forward")
    # accelerate has put nothing around it
    if before is None:
        yield
        return
    model.forward = before
    try:
        yield
    finally:
        model.forward = around  # type: ignore[assignment]
