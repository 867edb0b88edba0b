r"""When Eq. 3 is the inner product of gradients, and the terms it lacks otherwise.

Every gradient here is found by differentiating a loss, never by the rule under proof.

One matrix. A loss moves with the layer's outputs by ``<G, ds>``, and ``ds = A dW`` for the rows ``A`` of
inputs at t positions: the gradient is ``G' A``, and the inner product of two of them is the trace of
``(A B') (G H')'``, the sum over pairs of positions of the product of similarities. Sizes are symbolic.
With one position this is ``alpha beta``. A bias is one more column of ``A``, of ones. A matrix that
several layers use has the sum of their gradients: each use is one more block of rows of ``G`` and ``A``,
so that uses enter as positions do, cross terms included. Different matrices add up: induction over layers.
"""

import itertools
from collections.abc import Callable

import sympy as sp

from proofs._chain import gradient_of_one_matrix
from proofs._harness import STEP, Equal, Statement, Steps, settled, width
from proofs._rewrites import becomes, plus, times
from proofs._symbols import dot, inner_product, matrix, product, total, vector

SCOPE = f"{STEP}; any widths, any activation functions and loss with a derivative"
IN, OUT = 2, 2
Layer = Callable[[int], int]


def phi(s: sp.Expr) -> sp.Expr:
    """Stand for an activation function: not linear, its slope not constant."""
    return s + s**2 / 2


def weights(depth: int, width: int) -> list[sp.Matrix]:
    """Name the entries of every layer's matrix."""
    return [matrix(f"W{layer}", width, width) for layer in range(depth)]


def outputs(matrices: list[sp.Matrix], x: sp.Matrix, nudge: list[sp.Matrix] | None = None) -> tuple:
    """Run a chain; `nudge` is added to each layer's pre-activations. Gives inputs and the last outputs."""
    inputs = []
    for layer, weight in enumerate(matrices):
        inputs.append(x)
        s = weight * x + (nudge[layer] if nudge else sp.zeros(weight.rows, 1))
        x = s.applyfunc(phi)
    return inputs, s


def feedback(matrices: list[sp.Matrix], x: sp.Matrix, y: sp.Matrix) -> list[sp.Matrix]:
    """Differentiate the loss ``<y, s^L>`` in every layer's pre-activations."""
    nudges = [vector(f"n{layer}", weight.rows) for layer, weight in enumerate(matrices)]
    loss = y.dot(outputs(matrices, x, nudges)[1])
    still = dict.fromkeys((entry for nudge in nudges for entry in nudge), 0)
    return [nudge.applyfunc(lambda entry: loss.diff(entry).subs(still)) for nudge in nudges]


def paired(depth: int, *, seen: Layer = int, signal: Layer = int) -> sp.Expr:
    """Add up alpha beta over layers, of the inputs and the feedback of the layers that are named."""
    matrices, (x, y), (p, q) = weights(depth, 2), *_samples()
    a, b = (outputs(matrices, inputs)[0] for inputs in (x, y))
    g, h = feedback(matrices, x, p), feedback(matrices, y, q)
    layers = ((seen(layer), signal(layer)) for layer in range(depth))
    return total(a[k].dot(b[k]) * g[l].dot(h[l]) for k, l in layers)


def _samples(width: int = 2) -> tuple:
    return [vector("x", width), vector("y", width)], [vector("p", width), vector("q", width)]


def losses_of(matrices: list[sp.Matrix]) -> list[sp.Expr]:
    """Give both samples' losses, to first order in the last outputs of a chain."""
    inputs, signals = _samples()
    return [g.dot(outputs(matrices, a)[1]) for a, g in zip(inputs, signals, strict=True)]


def chain_statement(depth: int) -> Equal:
    """State Eq. 3 without its minus, for a chain of layers."""
    entries = [entry for weight in weights(depth, 2) for entry in weight]
    return Equal(paired(depth), inner_product(*losses_of(weights(depth, 2)), entries))


CHAIN = Statement(
    "gradient1",
    SCOPE,
    chain_statement,
    depths=(1, 2),
    arguments=lambda depth: (weights(depth, 2), *_samples()),
)
CHAIN_MUTANTS = {
    "the printed sign": times(-1, of="lhs"),
    "the last layer's feedback everywhere, as in LAI": becomes(
        lambda depth: paired(depth, signal=lambda layer: depth - 1), of="lhs"
    ),
    "inputs of the layer below": becomes(
        lambda depth: paired(depth, seen=lambda layer: max(layer - 1, 0)), of="lhs"
    ),
}


@settled("gradient1", CHAIN, CHAIN_MUTANTS)
def prove_gradient1(statement: Statement, steps: Steps) -> None:
    """Find one matrix's gradient, its inner products column by column, then add layers."""
    gradient_of_one_matrix(steps)
    steps.base(statement, (1, 2))


def with_slopes(width: int, power: int = 1) -> sp.Expr:
    """Multiply the similarities of inputs and of feedback that has a power of the slope."""
    weight, (x, y), signals = weights(1, width)[0], *_samples(width)
    slopes = ((weight * a).applyfunc(lambda s: (1 + s) ** power) for a in (x, y))
    g, h = (up.multiply_elementwise(slope) for up, slope in zip(signals, slopes, strict=True))
    return x.dot(y) * g.dot(h)


def slope_statement(width: int) -> Equal:
    """State the product for feedback behind the activation function, slopes put in."""
    weight, (x, y), (p, q) = weights(1, width)[0], *_samples(width)
    losses = [g.dot((weight * a).applyfunc(phi)) for a, g in ((x, p), (y, q))]
    return Equal(with_slopes(width), inner_product(*losses, list(weight)))


SLOPES = Statement(
    "ghost-pre-activation",
    SCOPE,
    slope_statement,
    depths=(1, 2),
    arguments=lambda width: (weights(1, width)[0], *_samples(width)),
)
SLOPES_MUTANTS = {
    "the activation neglected": becomes(lambda width: with_slopes(width, 0), of="lhs"),
    "the slope squared": becomes(lambda width: with_slopes(width, 2), of="lhs"),
}


@settled("ghost-pre-activation", SLOPES, SLOPES_MUTANTS)
def prove_ghost_pre_activation() -> None:
    """Use the slope once a sample in each entry of the gradient; entries then add up."""


def position_arguments(positions: int) -> tuple:
    """Name both samples' inputs and output gradients at every position."""
    sizes = zip("abgh", (IN, IN, OUT, OUT), strict=True)
    return tuple(matrix(name, positions, width(size)) for name, size in sizes)


def grams(positions: int) -> tuple[sp.Matrix, sp.Matrix]:
    """Give the similarities of every pair of positions: of inputs and of output gradients."""
    a, b, g, h = position_arguments(positions)
    return a * b.T, g * h.T


def position_statement(slug: str, *, bias: bool) -> Statement:
    """State the product of one matrix's gradients, with a bias or without."""

    def claim(positions: int) -> Equal:
        a, b, g, h = position_arguments(positions)
        weight, offset = weights(1, width(IN))[0], vector("c", width(OUT))
        losses = [
            total(up.row(t).dot(weight * down.row(t).T + offset) for t in range(positions))
            for down, up in ((a, g), (b, h))
        ]
        alpha, beta = grams(positions)
        entries = [*weight, *(offset if bias else [])]
        return Equal(dot(alpha, beta) + (total(beta) if bias else 0), inner_product(*losses, entries))

    return Statement(
        slug,
        "any numbers of positions, any widths",
        claim,
        depths=(1, 2, 3),
        arguments=position_arguments,
    )


POSITIONS = position_statement("ghost-positions", bias=False)
POSITIONS_MUTANTS = {
    "sums over positions": becomes(lambda count: product(map(total, grams(count))), of="lhs"),
    "positions side by side": becomes(lambda count: product(map(sp.trace, grams(count))), of="lhs"),
    "each position with itself": becomes(
        lambda count: dot(*(gram.diagonal() for gram in grams(count))), of="lhs"
    ),
}
BIAS = position_statement("ghost-bias", bias=True)
BIAS_MUTANTS = {
    "forgotten": plus(lambda count: -total(grams(count)[1]), of="lhs"),
    "counted as one number": plus(lambda count: 1 - total(grams(count)[1]), of="lhs"),
    "pooled": becomes(lambda count: product(map(total, grams(count))) + total(grams(count)[1]), of="lhs"),
}


@settled("ghost-positions", POSITIONS, POSITIONS_MUTANTS)
@settled("ghost-bias", BIAS, BIAS_MUTANTS)
def prove_ghost_positions() -> None:
    """Compare traces of symbolic size; entries of the two Grams are the similarities."""


def shared_uses(uses: int, cross: int = 1) -> sp.Expr:
    """Add up alpha beta over pairs of uses of one matrix, those of different uses with a factor."""
    names, shared = weights(uses, 2), weights(1, 2)[0]
    tied = dict(zip((e for other in names for e in other), [*shared] * uses, strict=True))
    (x, y), (p, q) = _samples()
    a, b = (outputs([shared] * uses, inputs)[0] for inputs in (x, y))
    g, h = ([v.subs(tied) for v in feedback(names, s, w)] for s, w in ((x, p), (y, q)))
    pairs = itertools.product(range(uses), repeat=2)
    return total((1 if k == l else cross) * a[l].dot(b[k]) * g[l].dot(h[k]) for l, k in pairs)


def sharing_statement(uses: int) -> Equal:
    """State the product for one matrix that every layer of a chain uses."""
    (shared,) = weights(1, 2)
    return Equal(shared_uses(uses), inner_product(*losses_of([shared] * uses), list(shared)))


SHARING = Statement(
    "ghost-sharing",
    "any number of uses, any widths",
    sharing_statement,
    depths=(1, 2),
    arguments=lambda uses: (weights(1, 2)[0], *_samples()),
)
SHARING_MUTANTS = {
    "the sum over layers": becomes(lambda uses: shared_uses(uses, 0), of="lhs"),
    "cross terms subtracted": becomes(lambda uses: shared_uses(uses, -1), of="lhs"),
}


@settled("ghost-sharing", SHARING, SHARING_MUTANTS)
def prove_ghost_sharing() -> None:
    """Add one more use to gradients of symbolic size: its square and both cross terms."""
