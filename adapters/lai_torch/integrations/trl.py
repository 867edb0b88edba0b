"""Curation in TRL's SFTTrainer, whose loss never builds the logits of a batch."""

from typing import Any

from torch import Tensor
from trl.trainer.sft_trainer import SFTTrainer

from lai_torch.integrations.losses import next_token_losses
from lai_torch.integrations.transformers import Curated


class CuratedSFTTrainer(Curated, SFTTrainer):  # type: ignore[misc]
    """An SFTTrainer that trains on the samples of each step that help a validation set; see `Curated`.

    Scores come of the logits, which a pass of its own builds, as many sequences at a time as the estimator's
    `chunk` says; what is trained on are the same losses by TRL's own head, which builds none. With `packing`
    or `padding_free` the documents of a row are the samples.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        kind = self.args.loss_type  # type: ignore[attr-defined]
        if kind != "nll":
            msg = f"loss_type: expected 'nll', whose losses are those of the scores, got {kind!r}"
            raise ValueError(msg)

    def _prepare_data(self, dataset: Any) -> Any:
        """Return a data set tokenized as TRL tokenizes those that it evaluates."""
        trainer: Any = self
        if trainer._skip_prepare_dataset:
            return dataset
        packing = trainer.args.eval_packing
        # TRL's own default
        if trainer.args.eval_packing is None:
            packing = trainer.args.packing
        given = trainer.processing_class, trainer.args, packing, trainer._formatting_func
        return trainer._prepare_dataset(dataset, *given, "validation")

    def _compute_trained(self, model: Any, batch: Any) -> tuple[Any, Tensor]:
        """Return the outputs, which have no logits, and the losses."""
        outputs = model(**batch, use_cache=False, fused_lm_head=True)
        return outputs, next_token_losses(outputs, batch)
