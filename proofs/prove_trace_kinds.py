r"""Ghost for parameters that are no dense layer: a convolution, an embedding table, a gain.

Every gradient here is found by differentiating a loss that sees the layer's outputs through ``<g, .>``.

A convolution's output at a position is its kernel times the patch below, so that it is one matrix used on
patches, position by position; one more pair of positions is one more product of two similarities. Reading
row i of a table is that matrix times the i-th unit vector, and unit vectors have similarity 1 or 0; if the
table is also a layer's matrix, its gradient has the layer's ``g a'`` beside, and the product of ``h e_i'``
(of symbolic size) with it is ``<h, a> g_i``. A gain multiplies each coordinate alone: its gradient there
is ``sum_t g x``, and one more position is one more term of that sum.
"""

import itertools

import sympy as sp

from proofs._harness import Equal, Statement, settled, width
from proofs._rewrites import becomes, plus, times
from proofs._symbols import dot, inner_product, matrix, total

CONVOLUTION_SCOPE = "any kernel, stride, padding and number of channels; numbers on one axis of space"
EMBEDDING_SCOPE = "any table, any number of positions and of uses; numbers on three rows"
GAIN_SCOPE = "any width, any number of positions"
KERNEL, ROWS, WIDTH = 2, 3, 2


def patches(positions: int, window: int = KERNEL, *, every: bool = True) -> sp.Expr:
    """Add up the products of the similarities of patches and of feedback, over pairs of positions."""
    x, y, g, h = convolution_arguments(positions)
    pairs = itertools.product(range(positions), repeat=2)
    kept = ((t, u) for t, u in pairs if every or t == u)
    return total(dot(x[t : t + window], y[u : u + window]) * g.row(t).dot(h.row(u)) for t, u in kept)


def convolution(positions: int) -> Equal:
    """State the product for a kernel of two offsets, two channels out, one in."""
    x, y, g, h = convolution_arguments(positions)
    kernel = matrix("w", 2, KERNEL)
    losses = [
        total(feedback.row(t).dot(kernel * sp.Matrix(signal[t : t + KERNEL])) for t in range(positions))
        for signal, feedback in ((x, g), (y, h))
    ]
    return Equal(patches(positions), inner_product(*losses, list(kernel)))


def convolution_arguments(positions: int) -> tuple:
    """Name both samples' signals and the gradients of their output maps."""
    signals = (matrix(name, positions + KERNEL - 1, 1) for name in "xy")
    return *signals, *(matrix(name, positions, 2) for name in "gh")


CONVOLUTION = Statement(
    "convolution-gradient", CONVOLUTION_SCOPE, convolution, depths=(1, 2, 3), arguments=convolution_arguments
)
CONVOLUTION_MUTANTS = {
    "each position with itself": becomes(lambda positions: patches(positions, every=False), of="lhs"),
    "pixels for patches": becomes(lambda positions: patches(positions, 1), of="lhs"),
}


@settled("convolution-gradient", CONVOLUTION, CONVOLUTION_MUTANTS)
def prove_convolution_gradient() -> None:
    """Take the kernel as one matrix, used at one more position."""


def embedding(positions: int) -> tuple[Equal, ...]:
    """State the product for a table read at several positions, alone and tied to a layer."""
    g, h, a, b, up, down = embedding_arguments(positions)
    table = matrix("E", width(ROWS), width(WIDTH))
    relations = []
    for ids in ((0,) * positions, tuple(t % width(ROWS) for t in range(positions))):
        others = ids[::-1]
        reads = [
            sp.Add(*(feedback.row(t).dot(table.row(i)) for t, i in enumerate(places)))
            for feedback, places in ((g, ids), (h, others))
        ]
        pairs = list(itertools.product(enumerate(ids), enumerate(others)))
        alone = sp.Add(*(g.row(t).dot(h.row(u)) for (t, i), (u, k) in pairs if i == k))
        relations.append(Equal(alone, inner_product(*reads, list(table))))
        uses = [up.dot(table * a), down.dot(table * b)]
        mixed = sp.Add(*(g.row(t).dot(b.T) * down[i] for t, i in enumerate(ids)))
        mixed += sp.Add(*(h.row(u).dot(a.T) * up[k] for u, k in enumerate(others)))
        tied = [read + use for read, use in zip(reads, uses, strict=True)]
        whole = alone + mixed + a.dot(b) * up.dot(down)
        relations.append(Equal(whole, inner_product(*tied, list(table))))
    return tuple(relations)


def embedding_arguments(positions: int) -> tuple:
    """Name the gradients of what was read, and the tied layer's inputs and output gradients."""
    reads = (matrix(name, positions, width(WIDTH)) for name in "gh")
    inputs, outputs = (matrix(n, width(WIDTH), 1) for n in "ab"), (matrix(n, width(ROWS), 1) for n in "uv")
    return *reads, *inputs, *outputs


def all_reads(positions: int) -> sp.Expr:
    """Multiply every two reads, of whatever rows."""
    g, h, *_ = embedding_arguments(positions)
    return total(g * h.T)


def crossed(positions: int) -> sp.Expr:
    """Multiply reads of row 0 with the tied layer's gradients."""
    g, h, a, b, up, down = embedding_arguments(positions)
    ones = sp.ones(1, positions)
    return (ones * g * b)[0] * down[0] + (ones * h * a)[0] * up[0]


EMBEDDING = Statement(
    "embedding-gradient", EMBEDDING_SCOPE, embedding, depths=(1, 2, 3), arguments=embedding_arguments
)
EMBEDDING_MUTANTS = {
    "ids not compared": becomes(all_reads, only=2, of="lhs"),
    "cross terms of the tied layer left out": plus(lambda positions: -crossed(positions), only=1, of="lhs"),
    "cross terms subtracted": plus(lambda positions: -2 * crossed(positions), only=1, of="lhs"),
}


@settled("embedding-gradient", EMBEDDING, EMBEDDING_MUTANTS)
def prove_embedding_gradient() -> None:
    """Read one row as a product with a unit vector, for a table of symbolic size."""


def gain(positions: int) -> tuple[Equal, Equal]:
    """State the product for a gain and an offset."""
    x, y, g, h = gain_arguments(positions)
    gamma, offset = matrix("gamma", 1, width(WIDTH)), matrix("beta", 1, width(WIDTH))
    losses = [
        total(up.row(t).dot(down.row(t).multiply_elementwise(gamma) + offset) for t in range(positions))
        for down, up in ((x, g), (y, h))
    ]
    ones = sp.ones(1, positions)
    product = (ones * g.multiply_elementwise(x)).dot(ones * h.multiply_elementwise(y))
    return (
        Equal(product, inner_product(*losses, list(gamma))),
        Equal((ones * g).dot(ones * h), inner_product(*losses, list(offset))),
    )


def gain_arguments(positions: int) -> tuple:
    """Name both samples' normalised inputs and the gradients of the outputs."""
    return tuple(matrix(name, positions, width(WIDTH)) for name in "xygh")


def all_coordinates(positions: int) -> sp.Expr:
    """Multiply the similarities of all coordinates."""
    x, y, g, h = gain_arguments(positions)
    return (x * y.T).trace() * (g * h.T).trace()


GAIN = Statement("gain-gradient", GAIN_SCOPE, gain, depths=(1, 2), arguments=gain_arguments)
GAIN_MUTANTS = {
    "alpha times beta": becomes(all_coordinates, only=0, of="lhs"),
    "the printed sign": times(-1, only=0, of="lhs"),
}


@settled("gain-gradient", GAIN, GAIN_MUTANTS)
def prove_gain_gradient() -> None:
    """Differentiate one coordinate at one more position, then compare two positions."""
