"""The processes that share one batch: what they add up, and what they tell each other."""

import builtins
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

FLOATS = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
KINDS = [*FLOATS, torch.complex128, torch.complex64, torch.int64, torch.int32, torch.bool]
"""Types of what is gathered, by their number."""
_NOBODY = nullcontext()
TOLD = "_on_every_process"
"""Attribute of errors that every process raises."""


class Alone:
    """A group of one process, with the interface of `Together`; its collectives do nothing."""

    size, rank = 1, 0
    device: torch.device = torch.device("cpu")
    telling: tuple[Any, ...] = ()
    settles: Callable[[], None] | None = None
    """What a process does before it enters a collective: where parameters are gathered block by block."""

    def settle(self) -> None:
        """Be ready for a collective: others may still wait for this process's part of a block."""
        if self.settles is not None:
            self.settles()

    def largest(self, numbers: Tensor) -> Tensor:
        """Return the largest of the processes' numbers, for each of several."""
        return numbers

    def summed(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return each tensor's sum over the processes."""
        return list(tensors)

    def totals(self, *numbers: float) -> list[float]:
        """Return each number's sum over the processes."""
        return list(numbers)

    def gathered(self, vector: Tensor) -> tuple[Tensor, list[slice]]:
        """Concatenate the rows of all processes; return them and each process's slice."""
        return vector, [slice(0, vector.shape[0])]

    def most(self, number: int) -> int:
        """Return the largest of the processes' numbers: of flags, whether any is set."""
        return int(number)

    def exchange(self, taken: Tensor, given: Tensor, takes: list[int], gives: list[int]) -> None:
        """Write into `taken` what the others give: `gives` rows of `given` to each, `takes` from each."""
        del takes, gives
        taken.copy_(given)

    def objects(self, value: Any) -> list[Any]:
        """Return every process's value, in order: for what is rare, since it is pickled."""
        return [value]

    def alike(self, value: str) -> bool:
        """Say whether every process has the same string."""
        del value
        return True

    def differing(self, numbers: Mapping[str, int]) -> list[str]:
        """Return the names of the numbers that are not the same on every process, under the same names."""
        del numbers
        return []

    def agreed(self) -> AbstractContextManager[None]:
        """Run a block that communicates with nobody; raise on every process if it raised on one."""
        return _NOBODY

    def handed(self, tensor: Tensor) -> Tensor:
        """Count what this process hands to a collective, and return it."""
        return tensor

    def whole(self, tensor: Any) -> Tensor:
        """Return a tensor, gathered if it lies in parts."""
        if hasattr(tensor, "full_tensor"):
            self.handed(tensor.to_local())
            tensor = tensor.full_tensor()
        return tensor

    def spent(self) -> tuple[int, int]:
        """Return how many collectives there were since this was last asked, and the bytes handed to them."""
        return 0, 0


class Agreed(Alone):
    """Processes that do the same, on the same rows as far as they share no batch: what they tell each other.

    Each method is a collective or two, which all processes have to enter. So whatever may raise on one
    of them alone runs in `agreed`, and what data decide is decided by `most`.
    """

    def __init__(
        self,
        # process groups, one for each dimension along which the processes lie. Telling goes along
        # one after the other, and so reaches all.
        telling: Sequence[Any],
        device: torch.device,  # where what is told lies
    ) -> None:
        self.telling, self.device = tuple(telling), device
        self._collectives = self._bytes = 0

    def handed(self, tensor: Tensor) -> Tensor:
        """Be ready for a collective; count it and its bytes. Pickled objects are not counted."""
        self.settle()
        self._collectives += 1
        self._bytes += tensor.nbytes
        return tensor

    def spent(self) -> tuple[int, int]:
        """Return the counts of collectives and bytes, and reset them."""
        found = self._collectives, self._bytes
        self._collectives = self._bytes = 0
        return found

    def most(self, number: int) -> int:
        """One all-reduce of one number."""
        return int(self.largest(torch.tensor(int(number), device=self.device)))

    def largest(self, numbers: Tensor) -> Tensor:
        """One all-reduce of numbers, in place."""
        for group in self.telling:
            dist.all_reduce(self.handed(numbers), dist.ReduceOp.MAX, group=group)
        return numbers

    def objects(self, value: Any) -> list[Any]:
        """Two all-gathers of pickled values."""
        found = [value]
        self.settle()
        for group in self.telling:
            parts: list[Any] = [None] * group.size()
            dist.all_gather_object(parts, found, group=group)
            found = [each for part in parts for each in part]
        return found

    def alike(self, value: str) -> bool:
        """One all-reduce of a checksum."""
        return not self.differing({"": zlib.crc32(value.encode())})

    def differing(self, numbers: Mapping[str, int]) -> list[str]:
        """One all-reduce: where the largest is also the smallest, all are the same."""
        own = torch.tensor([*numbers.values()], dtype=torch.int64, device=self.device)
        most, least = self.largest(torch.cat([own, -own])).tensor_split(2)
        return [name for name, differs in zip(numbers, (most != -least).tolist(), strict=True) if differs]

    @contextmanager
    def agreed(self) -> Iterator[None]:
        """One flag after the block: who raised says so, and everyone raises."""
        error: BaseException | None = None
        try:
            yield
        except BaseException as found:  # an interruption, too: the others would wait
            if getattr(found, TOLD, False):  # the inner block has already broadcast the error
                raise
            error = found
        if self.most(error is not None):
            raise self._of_all(error)

    def _of_all(self, error: BaseException | None) -> BaseException:
        """Return this process's error; of one that has none, the first of the others'."""
        rank = dist.get_rank()
        told = self.objects(None if error is None else (rank, _builtin(error), _text(error)))
        if error is None:
            rank, kind, text = next(one for one in told if one is not None)
            error = getattr(builtins, kind)(text)
        note = f"This happened on process {rank} of {dist.get_world_size()}; every process raises an error."
        error.add_note(note)
        setattr(error, TOLD, True)
        return error


class Together(Agreed):
    """The processes of a torch process group, each with its own rows of a batch."""

    def __init__(
        self,
        group: Any,  # the process group
        device: torch.device,  # where what is told lies
        # process groups of those that have the same rows, and parts of the layers
        features: Sequence[Any] = (),
    ) -> None:
        super().__init__((*features, group), device)
        self.group, self.size, self.rank = group, group.size(), dist.get_rank(group)

    def summed(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """One all-reduce per type of number, however many tensors there are."""
        found = list(tensors)
        for kind in dict.fromkeys(tensor.dtype for tensor in found):
            places = [index for index, tensor in enumerate(found) if tensor.dtype == kind]
            flat = torch.cat([found[index].reshape(-1) for index in places])
            dist.all_reduce(self.handed(flat), group=self.group)
            parts = flat.split([found[index].numel() for index in places])
            for index, part in zip(places, parts, strict=True):
                found[index] = part.view(found[index].shape)
        return found

    def totals(self, *numbers: float) -> list[float]:
        """One all-reduce in double precision, in which counts stay whole."""
        (found,) = self.summed([torch.tensor(numbers, dtype=torch.float64, device=self.device)])
        listed: list[float] = found.tolist()
        return listed

    def gathered(self, vector: Tensor) -> tuple[Tensor, list[slice]]:
        """Two small all-gathers: the lengths, then the vectors, filled up to the longest."""
        lengths, kinds = zip(*self._listed(len(vector), KINDS.index(vector.dtype)), strict=True)
        if len(set(kinds)) > 1:
            names = ", ".join(str(KINDS[kind]) for kind in sorted(set(kinds)))
            msg = (
                f"loss: expected numbers of one type on every process, got {names}; give each process's "
                "inputs and targets the same types"
            )
            raise ValueError(msg)
        padded = vector.new_zeros((max(lengths), *vector.shape[1:]))
        padded[: len(vector)] = vector
        parts = zip(self._all(padded), lengths, strict=True)
        starts = [sum(lengths[:rank]) for rank in range(self.size)]
        slices = [slice(start, start + length) for start, length in zip(starts, lengths, strict=True)]
        return torch.cat([row[:length] for row, length in parts]), slices

    def _listed(self, *numbers: int) -> list[list[int]]:
        listed: list[list[int]] = torch.stack(
            self._all(torch.tensor(numbers, dtype=torch.int64, device=self.device))
        ).tolist()
        return listed

    def _all(self, own: Tensor) -> list[Tensor]:
        found = [torch.empty_like(own) for _ in range(self.size)]
        dist.all_gather(found, self.handed(own), group=self.group)
        return found

    def exchange(self, taken: Tensor, given: Tensor, takes: list[int], gives: list[int]) -> None:
        """One all-to-all of rows."""
        dist.all_to_all_single(taken, self.handed(given), takes, gives, group=self.group)


def _builtin(error: BaseException) -> str:
    """Return the closest class that every process has and that can be made of a text."""
    for kind in type(error).__mro__:
        if issubclass(kind, UnicodeError | KeyError | BaseExceptionGroup) or not issubclass(kind, Exception):
            continue
        if getattr(builtins, kind.__name__, None) is kind:
            return kind.__name__
    return "RuntimeError"


def _text(error: BaseException) -> str:
    """Return what an error says; of one that is none, such as an interruption, or says nothing, its name."""
    if isinstance(error, Exception) and str(error):
        return str(error)
    return ": ".join(part for part in (type(error).__name__, str(error)) if part)


def digest(tensors: Sequence[Tensor]) -> str:
    """Return a string that differs where tensors do: their shapes, sums and norms."""
    marks = []
    for tensor in tensors:
        tensor = tensor.detach()
        exact = torch.float64 if tensor.is_floating_point() else torch.int64
        if tensor.is_complex():
            tensor, exact = torch.view_as_real(tensor.resolve_conj()), torch.float64
        total = tensor.sum(dtype=exact).item()
        norm = tensor.norm(dtype=exact).item() if exact is torch.float64 else 0
        marks.append((tuple(tensor.shape), str(tensor.dtype), total, norm))
    return repr(marks)
