"""A torch model around one operation: what makes a weight, lies on the data path, or holds parameters.

Every case is the same small net, `head(operation(embed(x)))`, whose per-sample meaning is never in
doubt: the operation runs once on each sample, in a Python loop whose results are stacked. Where one
call on arguments joined along an axis gives the same, which trying it shows (see `forms`), the net makes
that call, as a user would.
"""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.compatibility.forms import LOOP, NOISE, Form, Operation, flat, form_of, real
from benchmarks.compatibility.judge import BOUND, Row, UnfitError, describe, judge, squares, unfit
from benchmarks.compatibility.torch_case import Case

WIDTH, CLASSES = 3, 2
TRAINING, VALIDATION = 3, 2
ROUNDINGS = 64


def attempt(operation: Operation, role: str, kept: Sequence[int] = ()) -> Row:
    """Build the net of a role (`weight`, `data` or `own`) around an operation, and judge it."""
    if any(argument.layout != torch.strided for argument in operation.arguments):
        return unfit("sparse arguments, which have no samples axis")
    if not operation.arguments or not all(argument.numel() for argument in operation.arguments):
        return unfit("arguments without entries")
    net: MakesWeight | OnData
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            net = MakesWeight(operation) if role == "weight" else OnData(operation, kept)
    except UnfitError as problem:
        return unfit(str(problem))
    except Exception as problem:
        return unfit(describe(problem))
    generator = torch.Generator().manual_seed(2)
    training, validation = (
        (torch.randn(n, WIDTH, generator=generator), torch.randn(n, CLASSES, generator=generator))
        for n in (TRAINING, VALIDATION)
    )
    return judge(
        Case(
            model=net,
            loss=squares,
            training=training,
            validation=validation,
            about=("embed",) if role == "data" else ("own", "module"),
            layers=net.layers,
            only=role == "own",
            bound=max(BOUND, ROUNDINGS * net.epsilon),
        )
    )


class Product(nn.Module):
    """A matrix product with a weight that comes in as an argument."""

    def forward(self, inputs: Tensor, weight: Tensor) -> Tensor:
        """Multiply."""
        return functional.linear(inputs, weight)


class MakesWeight(nn.Module):
    """The operation's result is the weight of a layer; its arguments are parameters."""

    layers: ClassVar = {"embed": ("embed", True), "product": ("own.0", False), "head": ("head", True)}

    def __init__(self, operation: Operation) -> None:
        super().__init__()
        self.run, self.module = operation.run, operation.module
        self.own = nn.ParameterList(nn.Parameter(a.detach().clone()) for a in operation.arguments)
        made, self.epsilon = flat_and_epsilon(operation.run(*self.own))
        self.rows = 2 if made.numel() % 2 == 0 else 1
        self.scale = scale_of(made) * made.numel() ** 0.5
        self.embed = nn.Linear(WIDTH, made.numel() // self.rows)
        self.product = Product()
        self.head = nn.Linear(self.rows, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        """Multiply by what the operation makes."""
        weight = flat(self.run(*self.own)).reshape(self.rows, -1)
        hidden = self.product(torch.tanh(self.embed(inputs)), weight)
        return self.head(torch.tanh(hidden / self.scale))


class OnData(nn.Module):
    """The operation lies between two layers; the arguments numbered `kept` are its parameters."""

    layers: ClassVar = {"embed": ("embed", True), "head": ("head", True)}

    def __init__(self, operation: Operation, kept: Sequence[int] = (), form: Form | None = None) -> None:
        super().__init__()
        form = form_of(operation, kept) if form is None else form
        self.operation, self.form, self.module = operation, form, operation.module
        self.data = [i for i in range(len(operation.arguments)) if i not in kept]
        self.base = [form.one(operation.arguments[i].detach()).clone() for i in self.data]
        self.own = nn.ParameterDict({str(i): nn.Parameter(operation.arguments[i].clone()) for i in kept})
        made, self.epsilon = flat_and_epsilon(self.on(self.base))
        self.scale = scale_of(made)
        self.embed = nn.Linear(WIDTH, sum(base.numel() * parts(base) for base in self.base))
        self.head = nn.Linear(made.numel(), CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        """Run the operation on each sample's arguments."""
        rows, samples = self.arguments(torch.tanh(self.embed(inputs))), len(inputs)
        if self.form is LOOP:
            hidden = torch.stack([flat(self.on(one)) for one in zip(*rows, strict=True)])
        else:
            results = self.on([self.form.join(row) for row in rows], samples)
            moved = zip(results, self.form.results, strict=True)
            hidden = torch.cat(
                [real(r).movedim(axis, 0).reshape(samples, -1).double() for r, axis in moved], 1
            )
        return self.head(torch.tanh(hidden / self.scale))

    def arguments(self, hidden: Tensor) -> list[Tensor]:
        """Return the arguments that are data, samples first, each near the suite's."""
        pieces = hidden.split([base.numel() * parts(base) for base in self.base], 1)
        return [base + NOISE * shaped(piece, base) for base, piece in zip(self.base, pieces, strict=True)]

    def on(self, data: Sequence[Tensor], samples: int | None = None) -> list[Tensor]:
        """Run the operation on its data and its parameters: of one sample, or of so many joined."""
        given = dict(zip(self.data, data, strict=True)) | {int(i): p for i, p in self.own.items()}
        others = self.form.alone.others(1) if samples is None else self.form.others(samples)
        return self.operation.run(*(given[i] for i in range(len(given))), others=others)


def parts(tensor: Tensor) -> int:
    """Return how many real numbers an entry is."""
    return 2 if tensor.is_complex() else 1


def shaped(piece: Tensor, like: Tensor) -> Tensor:
    """Return rows of real numbers, `(n, numel)`, as `(n, *shape)` of the type of `like`."""
    if like.is_complex():
        return torch.view_as_complex(piece.reshape(len(piece), *like.shape, 2))
    return piece.reshape(len(piece), *like.shape)


def flat_and_epsilon(results: Sequence[Tensor]) -> tuple[Tensor, float]:
    """Return all results as one vector, and the coarsest of their precisions."""
    if not results:
        raise UnfitError("no floating result")
    return flat(results), max(torch.finfo(result.dtype).eps for result in results)


def scale_of(made: Tensor) -> float:
    """Return a size by which results are divided, so that every operation's gradients have one order."""
    if not made.numel():
        raise UnfitError("results without entries")
    scale = float(made.detach().abs().max())
    if not scale < float("inf"):
        raise UnfitError("results are not finite")
    return scale or 1.0
