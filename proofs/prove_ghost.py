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

from proofs._harness import STEP, Equal, Statement, Steps, settled, width
from proofs._rewrites import becomes, plus, times
from proofs._symbols import inner_product, matrix, vector

SCOPE = f"{STEP}; any widths, any activation functions and loss with a derivative"
POSITIONS_SCOPE = "any numbers of positions, any widths"
SHARING_SCOPE = "any number of uses, any widths"
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
    matrices, (x, y), (p, q) = weights(depth, 2), *_samples(2)
    a, b = (outputs(matrices, inputs)[0] for inputs in (x, y))
    g, h = feedback(matrices, x, p), feedback(matrices, y, q)
    layers = ((seen(layer), signal(layer)) for layer in range(depth))
    return sp.Add(*(a[k].dot(b[k]) * g[l].dot(h[l]) for k, l in layers))


def chain_statement(depth: int) -> Equal:
    """State Eq. 3 without its minus, for a chain of layers."""
    matrices, (x, y), (p, q) = weights(depth, 2), *_samples(2)
    losses = [g.dot(outputs(matrices, a)[1]) for a, g in ((x, p), (y, q))]
    entries = [entry for weight in matrices for entry in weight]
    return Equal(paired(depth), inner_product(*losses, entries))


def _samples(width: int) -> tuple:
    return [vector("x", width), vector("y", width)], [vector("p", width), vector("q", width)]


CHAIN = Statement(
    "gradient1",
    SCOPE,
    chain_statement,
    depths=(1, 2),
    arguments=lambda depth: (weights(depth, 2), *_samples(2)),
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
    d_in, d_out = sp.symbols("d_in d_out", integer=True, positive=True)
    g, h = (sp.MatrixSymbol(name, d_out, 1) for name in "gh")
    a, moved = sp.MatrixSymbol("a", d_in, 1), sp.MatrixSymbol("V", d_out, d_in)
    steps.identity("the gradient is g a'", sp.Trace(g.T * (moved * a)), sp.Trace(moved.T * (g * a.T)))
    x, y, alpha = sp.symbols("x y alpha", real=True)
    column = (x * g).T * (y * h)
    steps.identity("one more column", alpha * g.T * h + column, (alpha + x * y) * (g.T * h))
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
def prove_ghost_pre_activation(statement: Statement, steps: Steps) -> None:
    """Use the slope once a sample in each entry of the gradient; entries then add up."""
    steps_, a, b, g, h, p, q, w, rest, top = sp.symbols("d a b g h p q w r t", real=True)
    nudged = g * (top + p * ((w + steps_) * a - w * a) + rest * ((w + steps_) * a - w * a) ** 2)
    steps.identity("one entry", nudged.diff(steps_).subs(steps_, 0), g * p * a)
    steps.identity("two samples", (g * p) * (h * q) * a * b, (g * p * a) * (h * q * b))
    steps.base(statement, (1,))


def every_pair(a: sp.Matrix, b: sp.Matrix, g: sp.Matrix, h: sp.Matrix) -> sp.Expr:
    """Add up alpha beta over every pair of positions."""
    return sp.Add(*(x * y for x, y in zip(a * b.T, g * h.T, strict=True)))


def equal_positions(a: sp.Matrix, b: sp.Matrix, g: sp.Matrix, h: sp.Matrix) -> sp.Expr:
    """Add up alpha beta over positions, each with itself."""
    return sp.Add(*((a * b.T)[t, t] * (g * h.T)[t, t] for t in range(a.rows)))


def pooled(a: sp.Matrix, b: sp.Matrix, g: sp.Matrix, h: sp.Matrix) -> sp.Expr:
    """Multiply the similarities of sums over positions."""
    return sp.Add(*(a * b.T)) * sp.Add(*(g * h.T))


def flattened(a: sp.Matrix, b: sp.Matrix, g: sp.Matrix, h: sp.Matrix) -> sp.Expr:
    """Multiply the similarities of all positions side by side."""
    return (a * b.T).trace() * (g * h.T).trace()


def position_statement(slug: str, *, bias: bool) -> Statement:
    """State the product of one matrix's gradients, with a bias or without."""

    def claim(positions: int) -> Equal:
        a, b, g, h = position_arguments(positions)
        weight, offset = weights(1, width(IN))[0], vector("c", width(OUT))
        losses = [
            sp.Add(*(up.row(t).dot(weight * down.row(t).T + offset) for t in range(positions)))
            for down, up in ((a, g), (b, h))
        ]
        entries = [*weight, *(offset if bias else [])]
        found = every_pair(a, b, g, h) + (offsets(positions) if bias else 0)
        return Equal(found, inner_product(*losses, entries))

    return Statement(slug, POSITIONS_SCOPE, claim, depths=(1, 2, 3), arguments=position_arguments)


def offsets(positions: int) -> sp.Expr:
    """Give the bias's part: every alpha is one."""
    _, _, g, h = position_arguments(positions)
    return sp.Add(*(g * h.T))


def position_arguments(positions: int) -> tuple:
    """Name both samples' inputs and output gradients at every position."""
    return (
        *(matrix(n, positions, width(IN)) for n in "ab"),
        *(matrix(n, positions, width(OUT)) for n in "gh"),
    )


POSITIONS = position_statement("ghost-positions", bias=False)
POSITIONS_MUTANTS = {
    "sums over positions": becomes(lambda count: pooled(*position_arguments(count)), of="lhs"),
    "positions side by side": becomes(lambda count: flattened(*position_arguments(count)), of="lhs"),
    "each position with itself": becomes(lambda count: equal_positions(*position_arguments(count)), of="lhs"),
}


BIAS = position_statement("ghost-bias", bias=True)
BIAS_MUTANTS = {
    "forgotten": plus(lambda count: -offsets(count), of="lhs"),
    "counted as one number": plus(lambda count: 1 - offsets(count), of="lhs"),
    "pooled": becomes(lambda count: pooled(*position_arguments(count)) + offsets(count), of="lhs"),
}


@settled("ghost-positions", POSITIONS, POSITIONS_MUTANTS)
@settled("ghost-bias", BIAS, BIAS_MUTANTS)
def prove_ghost_positions(statement: Statement, steps: Steps) -> None:
    """Compare traces of symbolic size; entries of the two Grams are the similarities."""
    t, u, d_in, d_out = sp.symbols("t u d_in d_out", integer=True, positive=True)
    a, b = sp.MatrixSymbol("A", t, d_in), sp.MatrixSymbol("B", u, d_in)
    g, h = sp.MatrixSymbol("G", t, d_out), sp.MatrixSymbol("H", u, d_out)
    ones, others = sp.MatrixSymbol("u", t, 1), sp.MatrixSymbol("v", u, 1)
    moved = sp.MatrixSymbol("V", d_out, d_in)
    steps.identity("the gradient is G' A", sp.Trace(g.T * (a * moved.T)), sp.Trace(moved.T * (g.T * a)))
    built = sp.Trace((g.T * a).T * (h.T * b))
    steps.identity("pairs of positions", built, sp.Trace((a * b.T) * (g * h.T).T))
    offset = sp.Trace((g.T * ones).T * (h.T * others))
    steps.identity("a column of ones", offset, sp.Trace((ones * others.T) * (g * h.T).T))
    steps.base(statement, (1, 2))


def shared_uses(uses: int, cross: int = 1) -> sp.Expr:
    """Add up alpha beta over pairs of uses of one matrix, those of different uses with a factor."""
    names, shared = weights(uses, 2), weights(1, 2)[0]
    tied = dict(zip((e for other in names for e in other), [*shared] * uses, strict=True))
    (x, y), (p, q) = _samples(2)
    a, b = (outputs([shared] * uses, inputs)[0] for inputs in (x, y))
    g, h = ([v.subs(tied) for v in feedback(names, s, w)] for s, w in ((x, p), (y, q)))
    pairs = itertools.product(range(uses), repeat=2)
    return sp.Add(*((1 if k == l else cross) * a[l].dot(b[k]) * g[l].dot(h[k]) for l, k in pairs))


def sharing_statement(uses: int) -> Equal:
    """State the product for one matrix that every layer of a chain uses."""
    shared, (x, y), (p, q) = weights(1, 2)[0], *_samples(2)
    losses = [g.dot(outputs([shared] * uses, a)[1]) for a, g in ((x, p), (y, q))]
    return Equal(shared_uses(uses), inner_product(*losses, list(shared)))


SHARING = Statement(
    "ghost-sharing",
    SHARING_SCOPE,
    sharing_statement,
    depths=(1, 2),
    arguments=lambda uses: (weights(1, 2)[0], *_samples(2)),
)
SHARING_MUTANTS = {
    "the sum over layers": becomes(lambda uses: shared_uses(uses, 0), of="lhs"),
    "cross terms subtracted": becomes(lambda uses: shared_uses(uses, -1), of="lhs"),
}


@settled("ghost-sharing", SHARING, SHARING_MUTANTS)
def prove_ghost_sharing(statement: Statement, steps: Steps) -> None:
    """Add one more use to gradients of symbolic size: its square and both cross terms."""
    d_in, d_out = sp.symbols("d_in d_out", integer=True, positive=True)
    so_far, other = (sp.MatrixSymbol(name, d_out, d_in) for name in ("S", "T"))
    a, b = (sp.MatrixSymbol(name, d_in, 1) for name in "ab")
    g, h = (sp.MatrixSymbol(name, d_out, 1) for name in "gh")
    joined = sp.Trace((so_far + g * a.T).T * (other + h * b.T))
    parts = sp.Trace(so_far.T * other) + sp.Trace((g * a.T).T * (h * b.T))
    mixed = sp.Trace(so_far.T * (h * b.T)) + sp.Trace((g * a.T).T * other)
    steps.identity("one more use", joined, parts + mixed)
    steps.base(statement, (1, 2))
