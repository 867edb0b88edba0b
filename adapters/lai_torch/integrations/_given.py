"""What a curated Trainer is given: its losses, and the data set that samples are to help."""

from collections.abc import Mapping
from typing import Any

from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
)

from lai_torch.integrations._options import warn_of_metrics
from lai_torch.integrations.losses import classification_losses, next_token_losses
from lai_torch.options import with_defaults

LOSSES = (
    (MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, next_token_losses),
    (MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES, classification_losses),
)


def check_losses(trainer: Any) -> None:
    """Refuse losses of a whole batch: a curated step trains on the weighted losses of its samples alone."""
    if trainer.compute_loss_func is not None:
        msg = (
            f"compute_loss_func: expected None, got {trainer.compute_loss_func!r}: a curated step weighs the "
            "losses of single samples; pass a function sample_loss(outputs, batch) -> (n,)"
        )
        raise ValueError(msg)
    if trainer.args.label_smoothing_factor:
        msg = (
            f"label_smoothing_factor: expected 0, got {trainer.args.label_smoothing_factor}: a curated step "
            "takes the losses of sample_loss; pass one that smooths labels, as torch's "
            "cross_entropy(label_smoothing=) does"
        )
        raise ValueError(msg)


def check_one_part(curation: Mapping[str, Any], micro_batches: int) -> None:
    """Raise if an estimator reads an optimizer step in one part, and the trainer cuts it."""
    estimator = with_defaults(curation.get("estimator", "lai"))
    if micro_batches > 1 and not estimator.in_parts:
        msg = (
            f"gradient_accumulation_steps: expected 1 with {estimator.name!r}, which reads a step in one "
            f"part, got {micro_batches}; pass 1, or use 'lai'"
        )
        raise ValueError(msg)


def usual_loss(model: Any) -> Any:
    """Return the loss that a model of its kind is usually trained on."""
    kind = type(model.get_base_model() if hasattr(model, "get_base_model") else model).__name__
    for names, loss in LOSSES:
        if kind in names.values() and getattr(model.config, "num_labels", 2) > 1:
            return loss
    msg = (
        f"sample_loss: expected one for a {kind}, which is no language model that predicts the next token "
        "and no classifier, got None; pass a function sample_loss(outputs, batch) -> (n,)"
    )
    raise ValueError(msg)


def validation_set(evaluated: Any, chosen: Any, given: Any = None) -> Any:
    """Return the data set that samples are to help; warn where metrics are reported on it."""
    sets = dict(evaluated) if isinstance(evaluated, Mapping) else {"eval_dataset": evaluated}
    if isinstance(chosen, str):
        if not isinstance(evaluated, Mapping) or chosen not in evaluated:
            names = sorted(evaluated) if isinstance(evaluated, Mapping) else type(evaluated).__name__
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
    raw = given.values() if isinstance(given, Mapping) else [given]
    warn_of_metrics(chosen, [*sets.values(), *raw])  # a trainer may have prepared what it was given
    return chosen
