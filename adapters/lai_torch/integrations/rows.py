"""The rows of a batch that are trained on; of packed rows, the documents.

Several documents may lie one behind another in a row, as collators without padding lay them. Each is a
sample: it is scored as a row of its own, so that every estimator gives it the score that it has in an
unpacked batch, and dropped documents are cut out of the row that is trained on. That row must then give a
document a loss that no other document in it moves, which `check_documents` tries.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from lai_torch._model.batch import map_tensors, rows
from lai_torch.integrations.losses import IGNORED, documents_of
from lai_torch.segments import check_apart

LENGTHS = ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "seq_idx")
"""What collators say of documents beside their positions: made anew for the documents that are kept."""


def kept_rows(batch: Any, weights: Tensor) -> tuple[Any, Tensor]:
    """Return the rows with a positive weight, and their weights; of none, the first one, with weight 0.

    So every process takes part in every backward pass, and a trainer gets as many batches as it gave. What of
    that row is no number is 0: zero times NaN would be the gradient of every parameter.

    Parameters
    ----------
    batch
        Tensors in nested tuples, lists and mappings.
    weights
        `(n,)`, as `Curator.weigh` or `Curator.score` gave them.

    Returns
    -------
    tuple
        Rows of the batch and of the weights.
    """
    index = _find_kept(weights)
    found = rows(batch, index, len(weights))
    if not bool(weights[index].any()):
        found = map_tensors(
            found, lambda one: one.nan_to_num(0.0, 0.0, 0.0) if one.is_floating_point() else one
        )
    return found, weights[index]


def _find_kept(weights: Tensor) -> Tensor:
    index = (weights > 0).nonzero().squeeze(1)
    # one row runs, with weight 0, for a wrapper waits for every process
    if not len(index):
        index = index.new_zeros(1)
    return index


def unpack(batch: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the documents of packed rows as rows of their own, padded at their ends.

    Parameters
    ----------
    batch
        With `position_ids`, `(n, t)`, that begin at 0 in each document, and no `attention_mask`; one whose
        rows are not packed is returned as it is.

    Returns
    -------
    Mapping
        Every `(n, t, ...)` tensor as `(documents, longest, ...)`, an `attention_mask`, and what is no tensor.
        Positions are left to the model.
    """
    if documents_of(batch) is None:
        return batch
    documents = _check_packed(batch)
    number, lengths = documents.flatten(), torch.bincount(documents.flatten())
    place = torch.arange(len(number), device=number.device) - (lengths.cumsum(0) - lengths)[number]
    shape = len(lengths), int(lengths.max())
    mask = torch.zeros(shape, dtype=torch.int64, device=number.device)
    mask[number, place] = 1
    found: dict[str, Any] = {"attention_mask": mask}
    for name, value in batch.items():
        if name in LENGTHS or name == "position_ids":
            continue
        if isinstance(value, Tensor):
            empty = value.new_full((*shape, *value.shape[2:]), IGNORED if name == "labels" else 0)
            empty[number, place] = value.flatten(0, 1)
            value = empty
        found[name] = value
    return found


def kept_documents(batch: Mapping[str, Any], weights: Tensor) -> tuple[dict[str, Any], Tensor]:
    """Return one packed row of the documents with a positive weight; of none, the first, with weight 0.

    Parameters
    ----------
    batch
        Packed rows, as for `unpack`.
    weights
        `(documents,)`.

    Returns
    -------
    tuple
        The row, and the weights of its documents.
    """
    documents = _check_packed(batch).flatten()
    index = _find_kept(weights)
    chosen = torch.isin(documents, index)
    row = {
        name: value.flatten(0, 1)[chosen].unsqueeze(0) if isinstance(value, Tensor) else value
        for name, value in batch.items()
        if name not in LENGTHS
    }
    lengths = torch.bincount(documents)[index]
    ends = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]).to(torch.int32)
    made = dict.fromkeys(LENGTHS[:2], ends) | {name: int(lengths.max()) for name in LENGTHS[2:4]}
    # documents are numbered anew, without those that were left out
    numbers = torch.arange(len(index), dtype=torch.int32, device=lengths.device)
    made["seq_idx"] = numbers.repeat_interleave(lengths).unsqueeze(0)
    return row | {name: value for name, value in made.items() if name in batch}, weights[index]


def check_documents(
    losses: Callable[[Mapping[str, Any]], Tensor],
    batch: Mapping[str, Any],
    contents: Mapping[str, Any],
    parameters: Iterable[Tensor],
) -> None:
    """Raise if a document's loss moves when others in its row have other contents.

    Parameters
    ----------
    losses
        From a batch to `(documents,)`.
    batch
        Packed rows, as for `unpack`.
    contents
        What of the batch goes into the model.
    parameters
        Of the model.

    Raises
    ------
    ValueError
        If documents see one another, or losses are not one number a document.
    """
    documents = _check_packed(batch)

    def spread_losses(changed: tuple[Mapping[str, Any], None]) -> Tensor:
        found = losses({**batch, **changed[0]})
        if found.shape != (number := int(documents[-1, -1]) + 1,):
            msg = (
                f"sample_loss: expected one number a document of packed rows, ({number},), got shape "
                f"{tuple(found.shape)}; leave it out, or return sample_means(...) of documents_of(batch)"
            )
            raise ValueError(msg)
        return found[documents]

    message = (
        "model: expected the documents of a packed row not to see one another, got a loss of document {} "
        "that moves with another's contents; use an attn_implementation that separates packed documents "
        "('flash_attention_2', or 'sdpa' where the model makes its mask of position_ids), or "
        "packing_strategy='wrapped', whose rows are samples"
    )
    check_apart(spread_losses, (contents, None), documents, parameters, message)


def _check_packed(batch: Mapping[str, Any]) -> Tensor:
    """Return each position's document, after checking that every tensor has one entry a position."""
    documents: Any = documents_of(batch)
    for name, value in batch.items():
        # an entry of another form could not be cut into documents
        if isinstance(value, Tensor) and name not in LENGTHS and value.shape[:2] != documents.shape:
            msg = (
                f"batch: expected packed rows whose entries have {tuple(documents.shape)} positions, got "
                f"{name!r} of shape {tuple(value.shape)}"
            )
            raise ValueError(msg)
    return documents
