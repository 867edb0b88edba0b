"""The processes that share one batch: what they add up, and what they tell each other."""

import builtins
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate, pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

KINDS = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
KINDS += [torch.complex128, torch.complex64, torch.int64, torch.int32, torch.bool]
"""Types of what is gathered, by their number."""
_CPU = torch.device("cpu")
TOLD = "_on_every_process"
"""Attribute of errors that every process raises."""


class Group:
    """The processes that share a batch, each with its own rows of it: one without a process group.

    Each method is a collective or two, which all processes have to enter; of one process it does nothing.
    So whatever may raise on one of them alone runs in `raise_together`, and `reduce_max` decides what data
    decide.
    """

    def __init__(
        self,
        group: Any = None,  # a process group
        device: torch.device = _CPU,  # where what is told lies
    ) -> None:
        self.group, self.device = group, device
        self.size, self.rank = 1, 0
        if group is not None:
            self.size, self.rank = group.size(), dist.get_rank(group)
        self._collectives = self._bytes = 0

    def count_traffic(self, tensor: Tensor) -> Tensor:
        """Count a collective and its bytes. Pickled objects are not counted."""
        self._collectives += 1
        self._bytes += tensor.nbytes
        return tensor

    def take_traffic(self) -> tuple[int, int]:
        """Return how many collectives there were since this was last asked, and the bytes handed to them."""
        found = self._collectives, self._bytes
        self._collectives = self._bytes = 0
        return found

    def whole(self, tensor: Any) -> Tensor:
        """Return a tensor, gathered if it lies in parts."""
        if hasattr(tensor, "full_tensor"):
            self.count_traffic(tensor.to_local())
            tensor = tensor.full_tensor()
        return tensor

    def reduce_max(self, number: int) -> int:
        """Return the largest of the processes' numbers: of flags, whether any is set."""
        if self.size == 1:
            return int(number)
        return int(self.largest(torch.tensor(int(number), device=self.device)))

    def largest(self, numbers: Tensor) -> Tensor:
        """Return the largest of the processes' numbers, for each of several, in place: one all-reduce."""
        if self.size > 1:
            dist.all_reduce(self.count_traffic(numbers), dist.ReduceOp.MAX, group=self.group)
        return numbers

    def reduce_sum(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return each tensor's sum over the processes: one all-reduce per type of number."""
        found = list(tensors)
        if self.size == 1:
            return found
        for kind in dict.fromkeys(tensor.dtype for tensor in found):
            places = [index for index, tensor in enumerate(found) if tensor.dtype == kind]
            flat = torch.cat([found[index].reshape(-1) for index in places])
            dist.all_reduce(self.count_traffic(flat), group=self.group)
            parts = flat.split([found[index].numel() for index in places])
            for index, part in zip(places, parts, strict=True):
                found[index] = part.view(found[index].shape)
        return found

    def totals(self, *numbers: float) -> list[float]:
        """Return each number's sum over the processes, in double precision, in which counts stay whole."""
        if self.size == 1:
            return list(numbers)
        (found,) = self.reduce_sum([torch.tensor(numbers, dtype=torch.float64, device=self.device)])
        listed: list[float] = found.tolist()
        return listed

    def gather_rows(self, vector: Tensor) -> tuple[Tensor, list[slice]]:
        """Concatenate the rows of all processes; return them and each process's slice.

        Two small all-gathers: the lengths, then the vectors, filled up to the longest.
        """
        if self.size == 1:
            return vector, [slice(0, len(vector))]
        told = torch.tensor([len(vector), KINDS.index(vector.dtype)], device=self.device)
        lengths, kinds = zip(*torch.stack(self._gather_equal(told)).tolist(), strict=True)
        # seen by all, since all hold the same kinds
        if len(set(kinds)) > 1:
            names = ", ".join(str(KINDS[kind]) for kind in sorted(set(kinds)))
            msg = (
                f"loss: expected numbers of one type on every process, got {names}; give each process's "
                "inputs and targets the same types"
            )
            raise ValueError(msg)
        # an all-gather takes as many rows of each process
        padded = vector.new_zeros((max(lengths), *vector.shape[1:]))
        padded[: len(vector)] = vector
        rows = [part[:length] for part, length in zip(self._gather_equal(padded), lengths, strict=True)]
        ends = list(accumulate(lengths, initial=0))
        return torch.cat(rows), [slice(*each) for each in pairwise(ends)]

    def _gather_equal(self, own: Tensor) -> list[Tensor]:
        found = [torch.empty_like(own) for _ in range(self.size)]
        dist.all_gather(found, self.count_traffic(own), group=self.group)
        return found

    def exchange(self, taken: Tensor, given: Tensor, takes: list[int], gives: list[int]) -> None:
        """Write into `taken` what the others give: `gives` rows of `given` to each, `takes` from each."""
        dist.all_to_all_single(taken, self.count_traffic(given), takes, gives, group=self.group)

    def objects(self, value: Any) -> list[Any]:
        """Return every process's value, in order: for what is rare, since it is pickled."""
        found = [value] * self.size
        if self.size > 1:
            dist.all_gather_object(found, value, group=self.group)
        return found

    def has_equal(self, value: str) -> bool:
        """Say whether every process has the same string, by a checksum."""
        return not self.find_differing({"": zlib.crc32(value.encode())})

    def find_differing(self, numbers: Mapping[str, int]) -> list[str]:
        """Return the names of the numbers that are not the same on every process, under the same names.

        One all-reduce: where the largest is also the smallest, all are the same.
        """
        own = torch.tensor([*numbers.values()], dtype=torch.int64, device=self.device)
        most, least = self.largest(torch.cat([own, -own])).tensor_split(2)
        return [name for name, differs in zip(numbers, (most != -least).tolist(), strict=True) if differs]

    @contextmanager
    def raise_together(self) -> Iterator[None]:
        """Run a block that communicates with nobody; raise on every process if it raised on one."""
        error: BaseException | None = None
        try:
            yield
        except BaseException as found:  # an interruption, too: the others would wait
            if self.size == 1 or getattr(found, TOLD, False):  # the inner block has already broadcast it
                raise
            error = found
        if self.reduce_max(error is not None):
            raise self._share_error(error)

    def _share_error(self, error: BaseException | None) -> BaseException:
        """Return this process's error; of one that has none, the first of the others'."""
        rank = dist.get_rank()
        own = None
        if error is not None:
            # an interruption is no `Exception`, and it may say nothing: then its name does
            text = str(error)
            if not text or not isinstance(error, Exception):
                text = ": ".join(part for part in (type(error).__name__, text) if part)
            kind = "RuntimeError"
            # the closest class that every process has and that can be made of a text
            for each in reversed(type(error).__mro__):
                unfit = issubclass(each, UnicodeError | KeyError | BaseExceptionGroup)
                if issubclass(each, Exception) and not unfit and vars(builtins).get(each.__name__) is each:
                    kind = each.__name__
            own = rank, kind, text
        told = self.objects(own)
        if error is None:
            rank, kind, text = next(one for one in told if one is not None)
            error = getattr(builtins, kind)(text)
        note = f"This happened on process {rank} of {dist.get_world_size()}; every process raises an error."
        error.add_note(note)
        setattr(error, TOLD, True)
        return error


def digest(tensors: Sequence[Tensor]) -> str:
    """Return a string that differs where tensors do: their shapes, sums and norms."""
    marks = []
    for tensor in tensors:
        tensor, exact, norm = tensor.detach(), torch.int64, 0
        if tensor.is_complex():
            tensor = torch.view_as_real(tensor.resolve_conj())
        if tensor.is_floating_point():
            exact = torch.float64
            norm = tensor.norm(dtype=exact).item()
        marks.append((tuple(tensor.shape), str(tensor.dtype), tensor.sum(dtype=exact).item(), norm))
    return repr(marks)
