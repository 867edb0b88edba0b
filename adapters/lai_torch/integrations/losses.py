"""The losses that language models and classifiers are usually trained on, one number a sample.

A sample is a row, or a document of packed rows, whose positions begin at 0 in each document.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, pad

IGNORED = -100
"""The label of positions that count for nothing."""


def documents_of(batch: Mapping[str, Any]) -> Tensor | None:
    """Return the number of each position's document; None where rows are not packed.

    Parameters
    ----------
    batch
        Packed where it has `position_ids`, `(n, t)`, that begin anew within a row, and no `attention_mask`.

    Returns
    -------
    Tensor or None
        `(n, t)`, integers.
    """
    positions = batch.get("position_ids")
    if positions is None or "attention_mask" in batch or positions.ndim != 2:
        return None
    begins = positions == 0
    # one token alone, as padding at a row's end looks, has no loss: it stays with the document before it
    begins[:, 1:] &= pad(positions[:, 2:], (0, 1)) != 0
    if not bool((positions[:, 0] == 0).all() & begins[:, 1:].any()):
        return None
    return (begins.flatten().cumsum(0) - 1).view(positions.shape)


def sample_means(losses: Tensor, counted: Tensor, documents: Tensor | None) -> Tensor:
    """Return the mean of the losses of each sample's positions that count.

    Parameters
    ----------
    losses, counted
        `(n, t)`: the positions' losses, 0 where a position does not count, and which do.
    documents
        `(n, t)`: the document of each position. None: each row is one.

    Returns
    -------
    Tensor
        `(n,)` or `(documents,)`; 0 where no position counts.
    """
    if documents is None:
        return losses.sum(1) / counted.sum(1).clamp(min=1)
    index = documents.flatten()
    count = int(index[-1]) + 1
    sums = losses.new_zeros(count).index_add(0, index, losses.flatten())
    return sums / torch.bincount(index, counted.flatten().to(losses.dtype), count).clamp(min=1)


def next_token_losses(outputs: Any, batch: Any) -> Tensor:
    """Return the mean loss of each sequence's labelled tokens, given those before.

    Parameters
    ----------
    outputs
        With `logits`, `(n, t, words)`; or with TRL's `log_probs` and `label_mask`, `(n, t - 1)`, which its
        head computes without logits.
    batch
        With `labels`, `(n, t)`, -100 where a token counts for nothing.

    Returns
    -------
    Tensor
        `(n,)`, or one number a document of packed rows; 0 for a sequence without a labelled token.
    """
    labels, documents = _labels(batch), documents_of(batch)
    if hasattr(outputs, "log_probs"):  # each is that of the next token
        following = None if documents is None else documents[:, 1:]
        return sample_means(-outputs.log_probs, outputs.label_mask, following)
    if documents is not None:  # a document's first token is not predicted by the one before
        labels = labels.masked_fill(batch["position_ids"] == 0, IGNORED)
    following = pad(labels[:, 1:], (0, 1), value=IGNORED)
    logits = outputs.logits
    # flat logits: the loss of transposed ones, or of a slice, takes two to five times as long
    losses = cross_entropy(logits.flatten(0, 1), following.flatten(), reduction="none", ignore_index=IGNORED)
    return sample_means(losses.view(following.shape), following != IGNORED, documents)


def classification_losses(outputs: Any, batch: Any) -> Tensor:
    """Return the cross-entropy of each sample's class, or the mean of those of its classes, if several hold.

    Parameters
    ----------
    outputs
        With `logits`, `(n, classes)`.
    batch
        With `labels`, `(n,)` whole numbers; or `(n, classes)` of 0.0 and 1.0, as transformers has it for a
        `problem_type` of `multi_label_classification`.

    Returns
    -------
    Tensor
        `(n,)`.
    """
    labels = _labels(batch)
    if labels.is_floating_point():
        return binary_cross_entropy_with_logits(outputs.logits, labels, reduction="none").mean(1)
    return cross_entropy(outputs.logits, labels, reduction="none")


def _labels(batch: Any) -> Tensor:
    """Return the labels, or say how to use others."""
    if "labels" in batch:
        found: Tensor = batch["labels"]
        return found
    msg = (
        f"batch: expected an entry 'labels', got {sorted(batch)}; have the collator make one, or pass a "
        "function sample_loss(outputs, batch) -> (n,) that reads another"
    )
    raise ValueError(msg)
