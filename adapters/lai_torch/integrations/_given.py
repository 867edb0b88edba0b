"""What a curated Trainer is given: its losses, and the data set that samples are to help."""

from collections.abc import Mapping
from typing import Any

from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
)

from lai_torch.integrations.losses import classification_losses, next_token_losses

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


def validation_set(given: Any, chosen: Any) -> Any:
    """Return the data set that samples are to help."""
    if isinstance(chosen, str):
        if not isinstance(given, Mapping) or chosen not in given:
            names = sorted(given) if isinstance(given, Mapping) else type(given).__name__
            msg = f"validation: expected the name of one of the eval_dataset's, {names}, got {chosen!r}"
            raise ValueError(msg)
        return given[chosen]
    found = given if chosen is None else chosen
    if found is None or isinstance(found, Mapping) or not hasattr(found, "__len__"):
        msg = (
            "validation: expected a data set with a length, the eval_dataset or the name of one of them, got "
            f"{type(found).__name__}"
        )
        raise TypeError(msg)
    return found
