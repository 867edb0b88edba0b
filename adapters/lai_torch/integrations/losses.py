"""The losses that language models and classifiers are usually trained on, one number a sample."""

from typing import Any

from torch import Tensor
from torch.nn.functional import cross_entropy, pad

IGNORED = -100
"""The label of positions that count for nothing."""


def next_token_losses(outputs: Any, batch: Any) -> Tensor:
    """Return the mean loss of each sequence's labelled tokens, given those before.

    Parameters
    ----------
    outputs
        With `logits`, `(n, t, words)`.
    batch
        With `labels`, `(n, t)`, -100 where a token counts for nothing.

    Returns
    -------
    Tensor
        `(n,)`; 0 for a sequence without a labelled token.
    """
    following = pad(_labels(batch)[:, 1:], (0, 1), value=IGNORED)
    logits = outputs.logits
    # flat logits: the loss of transposed ones, or of a slice, takes two to five times as long
    losses = cross_entropy(logits.flatten(0, 1), following.flatten(), reduction="none", ignore_index=IGNORED)
    return losses.view(following.shape).sum(1) / (following != IGNORED).sum(1).clamp(min=1)


def classification_losses(outputs: Any, batch: Any) -> Tensor:
    """Return the cross-entropy of each sample's class.

    Parameters
    ----------
    outputs
        With `logits`, `(n, classes)`.
    batch
        With `labels`, `(n,)`.

    Returns
    -------
    Tensor
        `(n,)`.
    """
    return cross_entropy(outputs.logits, _labels(batch), reduction="none")


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
