"""A batch that stays as it is, whatever a model or a loss writes to what it is given."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from lai_torch._model.batch import Loss, call, mapped, tensors
from lai_torch._model.preserve import preserved
from lai_torch._model.snapshot.tensors import written

_WRITES: WeakKeyDictionary[nn.Module, dict[tuple[bool, int], bool]] = WeakKeyDictionary()
"""Of each model that ran before, in training and in eval mode, and a loss: whether they write to a batch."""


class WrittenError(ValueError):
    """A batch is no longer what it was."""


def losses_of(
    model: nn.Module, loss: Loss, batch: tuple[Any, Any], caller: Callable[[nn.Module, Any], Any] = call
) -> Any:
    """Return what a loss makes of a batch, of which model and loss see copies where they write to it."""
    with untouched(model, loss, batch) as (inputs, targets):
        return loss(caller(model, inputs), targets)


def learn(model: nn.Module, loss: Loss, batch: tuple[Any, Any]) -> None:
    """See whether model and loss write to a batch or a parameter, by a pass where none has shown it yet.

    What is watched then runs on the batch itself, as it does later, and gives the same to the bit.
    """
    if (model.training, id(loss)) not in _WRITES.get(model, {}) or written(model) is None:
        with preserved(model, loss), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            losses_of(model, loss, batch)


@contextmanager
def untouched(model: nn.Module, loss: Loss | None, batch: Any) -> Iterator[Any]:
    """Run the body on a batch, or on copies of its tensors; on lists and dictionaries of its own.

    To copy each time would be a waste, so it happens once, and always where the body then wrote to them.

    Raises
    ------
    WrittenError
        If the body writes to a batch as none before it did.
    """
    known, kind = _WRITES.setdefault(model, {}), (model.training, id(loss))
    if known.get(kind, True):
        copied = mapped(batch, _copy)
        pairs = list(zip(tensors(batch), tensors(copied), strict=True))
        before = _versions(copied)
        yield copied
        if not known.get(kind, False):
            moved = before != _versions(copied)
            known[kind] = moved or not all(torch.equal(one, copy) for one, copy in pairs)
        return
    before = _versions(batch)
    yield _contained(batch)
    if before != _versions(batch):
        known[kind] = True
        msg = (
            "inputs: expected a model and a loss that leave the batch as it is, or write to it always, got "
            "ones that wrote to this one in place and to none before it, so that its values are gone; write "
            "to copies (x = x.clone())"
        )
        raise WrittenError(msg)


def _copy(tensor: Tensor) -> Tensor:
    with torch.no_grad():
        copy = tensor.clone()
    return copy.requires_grad_() if tensor.requires_grad else copy


def _contained(tree: Any) -> Any:
    """Return the same tensors in new lists and dictionaries, of which something may be taken out."""
    if type(tree) is dict:
        return {key: _contained(part) for key, part in tree.items()}
    if type(tree) in {list, tuple}:
        return type(tree)(_contained(part) for part in tree)
    return tree


def _versions(batch: Any) -> list[int]:
    """Count the writes to each tensor of a batch; those made in inference mode are not counted."""
    with torch._C.DisableTorchFunction():  # a recorder would look at each of these questions
        return [0 if one.is_inference() else one._version for one in tensors(batch)]
