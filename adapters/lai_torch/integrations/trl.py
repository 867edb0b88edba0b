"""Curation in TRL's SFTTrainer, whose loss never builds the logits of a batch."""

from typing import Any

from torch import Tensor
from trl.trainer.sft_trainer import SFTTrainer

from lai_torch.integrations.transformers import Curated


class CuratedSFTTrainer(Curated, SFTTrainer):  # type: ignore[misc]
    """An SFTTrainer that trains on the samples of each step that help a validation set; see `Curated`.

    Scores come of the logits, which are built without a graph, as many sequences at a time as the estimator's
    `chunk` says; what is trained on are the same losses by TRL's own head, which builds none.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        trainer: Any = self
        size = trainer.args.per_device_train_batch_size
        if trainer.padding_free and size > 1:
            msg = (
                "per_device_train_batch_size: expected 1 where a batch is one row without padding "
                f"(padding_free, or packing by 'bfd'), got {size}: that row would be one sample, kept or "
                "dropped whole; pass 1 and gradient_accumulation_steps, or packing_strategy='wrapped'"
            )
            raise ValueError(msg)

    def _prepared(self, dataset: Any) -> Any:
        """Return a data set tokenized as TRL tokenizes those that it evaluates."""
        trainer: Any = self
        if trainer._skip_prepare_dataset:
            return dataset
        packing = trainer.args.packing if trainer.args.eval_packing is None else trainer.args.eval_packing
        given = trainer.processing_class, trainer.args, packing, trainer._formatting_func
        return trainer._prepare_dataset(dataset, *given, "validation")

    def _trained(self, model: Any, batch: Any) -> tuple[Any, Tensor]:
        """Return the outputs, and the losses of `next_token_losses` without the logits."""
        kind = self.args.loss_type  # type: ignore[attr-defined]
        if kind != "nll":
            msg = f"loss_type: expected 'nll', whose losses are those of the scores, got {kind!r}"
            raise ValueError(msg)
        outputs = model(**batch, use_cache=False, fused_lm_head=True)
        counted = outputs.label_mask.flatten(1).sum(1).clamp(min=1)
        return outputs, -outputs.log_probs.flatten(1).sum(1) / counted
