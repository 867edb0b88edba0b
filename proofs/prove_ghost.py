r"""When Eq. 3 is the inner product of gradients, and the terms it lacks otherwise.

Every gradient here is found by differentiating a loss, never by the rule under proof.

One matrix. A loss moves with the layer's outputs by ``<G, ds>``, and ``ds = A dW`` for the rows ``A`` of
inputs at t positions: the gradient is ``G' A``, and the inner product of two of them is the trace of
``(A B') (G H')'``, the sum over pairs of positions of the product of similarities. Sizes are symbolic.
With one position this is ``alpha beta``. A bias is one more column of ``A``, of ones. A matrix that
several layers use has the sum of their gradients: each use is one more block of rows of ``G`` and ``A``,
so that uses enter as positions do, cross terms included. Different matrices add up: induction over layers.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sympy as sp

from proofs._harness import STEP, Equal, Statement, Steps, width
from proofs._symbols import inner_product, matrix, vector

SCOPE = f"{STEP}; any widths, any activation functions and loss with a derivative"
POSITIONS_SCOPE = "any numbers of positions, any widths"
SHARING_SCOPE = "any number of uses, any widths"
IN, OUT = 2, 2


def phi(s: sp.Expr) -> sp.Expr:
    """Stand for an activation function: not linear, its slope not constant."""
    return s + s**2 / 2


def weights(depth: int, width: int) -> list[sp.Matrix]:
    """Name the entries of every layer's matrix."""
    return [
        sp.Matrix(width, width, sp.symbols(f"W{layer}_:{width * width}", real=True)) for layer in range(depth)
    ]


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


def chain_statement(*, sign: int = 1, source: str = "own layer", shift: int = 0) -> Statement:
    """State Eq. 3 without its minus, for a chain of layers."""

    def claim(depth: int, width: int = 2) -> Equal:
        matrices, (x, y), (p, q) = weights(depth, width), *_samples(width)
        losses = [g.dot(outputs(matrices, a)[1]) for a, g in ((x, p), (y, q))]
        entries = [entry for weight in matrices for entry in weight]
        a, b = (outputs(matrices, inputs)[0] for inputs in (x, y))
        g, h = feedback(matrices, x, p), feedback(matrices, y, q)
        total = sp.S.Zero
        for layer in range(depth):
            signal = depth - 1 if source == "last layer" else layer
            seen = max(layer - shift, 0)
            total += a[seen].dot(b[seen]) * g[signal].dot(h[signal])
        return Equal(sign * total, inner_product(*losses, entries))

    return Statement(
        slug="gradient1",
        scope=SCOPE,
        claim=claim,
        depths=(1, 2),
        arguments=lambda depth: (weights(depth, 2), *_samples(2)),
        parts={"sign": sign, "claim": claim},
    )


def _samples(width: int) -> tuple:
    return [vector("x", width), vector("y", width)], [vector("p", width), vector("q", width)]


def chain_proof(statement: Statement, steps: Steps) -> None:
    """Find one matrix's gradient, its inner products column by column, then add layers."""
    part = statement.part
    d_in, d_out = sp.symbols("d_in d_out", integer=True, positive=True)
    g, h = (sp.MatrixSymbol(name, d_out, 1) for name in "gh")
    a, moved = sp.MatrixSymbol("a", d_in, 1), sp.MatrixSymbol("V", d_out, d_in)
    steps.identity("the gradient is g a'", sp.Trace(g.T * (moved * a)), sp.Trace(moved.T * (g * a.T)))
    x, y, alpha, beta, so_far = sp.symbols("x y alpha beta s", real=True)
    column = (x * g).T * (y * h)
    steps.identity("one more column", alpha * g.T * h + column, (alpha + x * y) * (g.T * h))
    claimed = part.sign * (so_far + alpha * beta)
    steps.identity("one more layer", claimed, so_far + alpha * beta)
    relation = part.claim(2, 1)
    steps.identity("two layers of one unit", relation.lhs, relation.rhs)
    steps.base(statement, (1,))


CHAIN = chain_statement()
CHAIN_MUTANTS = {
    "the printed sign": chain_statement(sign=-1),
    "the last layer's feedback everywhere, as in LAI": chain_statement(source="last layer"),
    "inputs of the layer below": chain_statement(shift=1),
}


@pytest.mark.equation("gradient1")
def prove_gradient1(settle):
    """Show that alpha times beta, summed over layers, is the gradients' inner product."""
    settle(CHAIN, chain_proof, CHAIN_MUTANTS)


def slope_statement(*, power: int = 1) -> Statement:
    """State the product for feedback behind the activation function, slopes put in."""

    def claim(width: int) -> Equal:
        weight, (x, y), (p, q) = weights(1, width)[0], *_samples(width)
        losses = [g.dot((weight * a).applyfunc(phi)) for a, g in ((x, p), (y, q))]
        slopes = [(weight * a).applyfunc(lambda s: 1 + s) for a in (x, y)]
        g, h = (
            behind.multiply_elementwise(slope.applyfunc(lambda s: s**power))
            for behind, slope in zip((p, q), slopes, strict=True)
        )
        return Equal(x.dot(y) * g.dot(h), inner_product(*losses, list(weight)))

    return Statement(
        slug="ghost-pre-activation",
        scope=SCOPE,
        claim=claim,
        depths=(1, 2),
        arguments=lambda width: (weights(1, width)[0], *_samples(width)),
        parts={"power": power},
    )


def slope_proof(statement: Statement, steps: Steps) -> None:
    """Use the slope once a sample in each entry of the gradient; entries then add up."""
    steps_, a, b, g, h, p, q, w, rest, top = sp.symbols("d a b g h p q w r t", real=True)
    nudged = g * (top + p * ((w + steps_) * a - w * a) + rest * ((w + steps_) * a - w * a) ** 2)
    steps.identity("one entry", nudged.diff(steps_).subs(steps_, 0), g * p * a)
    power = statement.part.power
    steps.identity("two samples", (g * p**power) * (h * q**power) * a * b, (g * p * a) * (h * q * b))
    relation = statement.relations(1)[0]
    steps.identity("one unit", relation.lhs, relation.rhs)


SLOPES = slope_statement()
SLOPES_MUTANTS = {
    "the activation neglected": slope_statement(power=0),
    "the slope squared": slope_statement(power=2),
}


@pytest.mark.equation("ghost-pre-activation")
def prove_ghost_pre_activation(settle):
    """Show that the product is exact once the slope is in the feedback."""
    settle(SLOPES, slope_proof, SLOPES_MUTANTS)


Pairing = Callable[[sp.Matrix, sp.Matrix, sp.Matrix, sp.Matrix], sp.Expr]


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


def position_statement(slug: str, *, pairing: Pairing = every_pair, bias: str = "none") -> Statement:
    """State the product of one matrix's gradients, with a bias or without."""

    def claim(positions: int) -> Equal:
        a, b, g, h = position_arguments(positions)
        weight, offset = weights(1, width(IN))[0], vector("c", width(OUT))
        losses = [
            sp.Add(*(up.row(t).dot(weight * down.row(t).T + offset) for t in range(positions)))
            for down, up in ((a, g), (b, h))
        ]
        entries = [*weight, *(offset if bias != "none" else [])]
        extra = {"none": 0, "forgotten": 0, "ones": every_pair, "once": 1}[bias]
        if callable(extra):
            ones = sp.ones(positions, 1)
            extra = extra(ones, ones, g, h)
        return Equal(pairing(a, b, g, h) + extra, inner_product(*losses, entries))

    return Statement(
        slug=slug,
        scope=POSITIONS_SCOPE,
        claim=claim,
        depths=(1, 2, 3),
        arguments=position_arguments,
        parts={"pairing": pairing, "bias": bias},
    )


def position_arguments(positions: int) -> tuple:
    """Name both samples' inputs and output gradients at every position."""
    return (
        *(matrix(n, positions, width(IN)) for n in "ab"),
        *(matrix(n, positions, width(OUT)) for n in "gh"),
    )


def position_proof(statement: Statement, steps: Steps) -> None:
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
    for positions in (1, 2):
        relation = statement.relations(positions)[0]
        steps.identity(f"{positions} positions", relation.lhs, relation.rhs)


POSITIONS = position_statement("ghost-positions")
POSITIONS_MUTANTS = {
    "sums over positions": position_statement("ghost-positions", pairing=pooled),
    "positions side by side": position_statement("ghost-positions", pairing=flattened),
    "each position with itself": position_statement("ghost-positions", pairing=equal_positions),
}


@pytest.mark.equation("ghost-positions")
def prove_ghost_positions(settle):
    """Show that one matrix at many positions needs every pair of them."""
    settle(POSITIONS, position_proof, POSITIONS_MUTANTS)


BIAS = position_statement("ghost-bias", bias="ones")
BIAS_MUTANTS = {
    "forgotten": position_statement("ghost-bias", bias="forgotten"),
    "counted as one number": position_statement("ghost-bias", bias="once"),
    "pooled": position_statement("ghost-bias", bias="ones", pairing=pooled),
}


@pytest.mark.equation("ghost-bias")
def prove_ghost_bias(settle):
    """Show that a bias adds one to every alpha."""
    settle(BIAS, position_proof, BIAS_MUTANTS)


def sharing_statement(*, cross: int = 1) -> Statement:
    """State the product for one matrix that every layer of a chain uses."""

    def claim(uses: int, width: int = 2) -> Equal:
        names, shared = weights(uses, width), weights(1, width)[0]
        tied = dict(zip((e for other in names for e in other), [*shared] * uses, strict=True))
        (x, y), (p, q) = _samples(width)
        losses = [g.dot(outputs([shared] * uses, a)[1]) for a, g in ((x, p), (y, q))]
        a, b = (outputs([shared] * uses, inputs)[0] for inputs in (x, y))
        g, h = ([v.subs(tied) for v in feedback(names, s, w)] for s, w in ((x, p), (y, q)))
        total = sp.Add(
            *(
                (cross if k != l else 1) * a[l].dot(b[k]) * g[l].dot(h[k])
                for l in range(uses)
                for k in range(uses)
            )
        )
        return Equal(total, inner_product(*losses, list(shared)))

    return Statement(
        slug="ghost-sharing",
        scope=SHARING_SCOPE,
        claim=claim,
        depths=(1, 2),
        arguments=lambda uses: (weights(1, 2)[0], *_samples(2)),
        parts={"cross": cross, "claim": claim},
    )


def sharing_proof(statement: Statement, steps: Steps) -> None:
    """Add one more use to gradients of symbolic size: its square and both cross terms."""
    d_in, d_out = sp.symbols("d_in d_out", integer=True, positive=True)
    so_far, other = (sp.MatrixSymbol(name, d_out, d_in) for name in ("S", "T"))
    a, b = (sp.MatrixSymbol(name, d_in, 1) for name in "ab")
    g, h = (sp.MatrixSymbol(name, d_out, 1) for name in "gh")
    cross = statement.part.cross
    joined = sp.Trace((so_far + g * a.T).T * (other + h * b.T))
    parts = sp.Trace(so_far.T * other) + sp.Trace((g * a.T).T * (h * b.T))
    mixed = sp.Trace(so_far.T * (h * b.T)) + sp.Trace((g * a.T).T * other)
    steps.identity("one more use", joined, parts + cross * mixed)
    relation = statement.part.claim(2, 1)
    steps.identity("two uses of one unit", relation.lhs, relation.rhs)
    steps.base(statement, (1,))


SHARING = sharing_statement()
SHARING_MUTANTS = {
    "the sum over layers": sharing_statement(cross=0),
    "cross terms subtracted": sharing_statement(cross=-1),
}


@pytest.mark.equation("ghost-sharing")
def prove_ghost_sharing(settle):
    """Show that a shared matrix needs every pair of its uses."""
    settle(SHARING, sharing_proof, SHARING_MUTANTS)
