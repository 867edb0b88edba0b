r"""LAI and LLI as definitions: their other forms, and what a change of parameters does to them.

LAI is a product of two inner products, of the inputs of all layers side by side and of the last output
gradients, and so the inner product of the tables ``c g'`` of their pairwise products. That is a Gram
kernel: ``sum_zj x_z x_j K_zj`` is a sum of squares. LLI is the same for the last layer alone, and there it
is the exact inner product of that layer's gradients. Rescaling two layers by ``c`` and ``1/c`` leaves the
network and multiplies the second alpha by ``c^2``. One more layer, or one more width, adds one more
entry to the sum.
"""

from __future__ import annotations

import pytest
import sympy as sp

from proofs._harness import STEP, AtMost, Equal, Statement, Steps, width
from proofs._symbols import vector

SCOPE = f"{STEP}; any widths"
WIDTH, OUTPUTS = 2, 2


def arguments(depth: int) -> tuple:
    """Name the activations of both samples, layer by layer, and their output gradients."""
    a, b = ([vector(f"{name}{layer}_", width(WIDTH)) for layer in range(depth)] for name in "ab")
    return a, b, vector("g", width(OUTPUTS)), vector("h", width(OUTPUTS))


def definition(*, sign: int = 1, start: int = 0, joined: str = "beside") -> Statement:
    """State that Eq. 4 without its minus is one alpha of concatenations times beta, entry by entry."""

    def claim(depth: int) -> tuple[Equal, ...]:
        a, b, g, h = arguments(depth)
        if joined == "beside":
            c, d = ([entry for layer in side[start:] for entry in layer] for side in (a, b))
        else:  # added up, as in a residual stream
            c, d = (list(sum(side[1:], side[0])) for side in (a, b))
        table = sp.Add(*(x * y * p * q for x, y in zip(c, d, strict=True) for p, q in zip(g, h, strict=True)))
        alpha = sp.Add(*(x.dot(y) for x, y in zip(a, b, strict=True)))
        return (Equal(sign * alpha * g.dot(h), table),)

    return Statement(
        slug="gradient2",
        scope=SCOPE,
        claim=claim,
        depths=(1, 2, 3),
        arguments=arguments,
        parts={"sign": sign},
    )


def definition_proof(statement: Statement, steps: Steps) -> None:
    """Add one more entry of the concatenation, for outputs of symbolic size."""
    outputs = sp.Symbol("d_L", integer=True, positive=True)
    g, h = (sp.MatrixSymbol(name, outputs, 1) for name in "gh")
    x, y, alpha = sp.symbols("x y alpha", real=True)
    claimed = statement.part.sign * (alpha + x * y) * (g.T * h)
    steps.identity("one more entry", alpha * (g.T * h) + (x * g).T * (y * h), claimed)
    for depth in (1, 2):
        relation = statement.relations(depth)[0]
        steps.identity(f"{depth} layers", relation.lhs, relation.rhs)


DEFINITION = definition()
DEFINITION_MUTANTS = {
    "the printed sign": definition(sign=-1),
    "the first layer left out": definition(start=1),
    "inputs added instead of set side by side": definition(joined="added"),
}


@pytest.mark.equation("gradient2")
def prove_lai_is_one_product_of_concatenations(settle):
    """Show that LAI is a Gram kernel of tables."""
    settle(DEFINITION, definition_proof, DEFINITION_MUTANTS)


def semidefinite(*, cross: int = 2) -> Statement:
    """State that two samples' combined LAI with themselves is never negative."""
    x, y = sp.symbols("x y", real=True)

    def claim(depth: int) -> AtMost:
        a, b, g, h = arguments(depth)

        def kernel(left: tuple, right: tuple) -> sp.Expr:
            alpha = sp.Add(*(p.dot(q) for p, q in zip(left[0], right[0], strict=True)))
            return alpha * left[1].dot(right[1])

        one, two = (a, g), (b, h)
        form = x**2 * kernel(one, one) + cross * x * y * kernel(one, two) + y**2 * kernel(two, two)
        return AtMost(sp.S.Zero, form)

    a, b, g, h = arguments(1)
    equal = {entry: sp.Integer(k == 0) for v in (*a, *b, g, h) for k, entry in enumerate(v)}
    opposed = (1, {x: sp.S.One, y: sp.S.NegativeOne if cross > 0 else sp.S.One, **equal})
    return Statement(
        slug="gradient2",
        scope=SCOPE,
        claim=claim,
        depths=(1, 2),
        witness=None if cross == 2 else opposed,
        parts={"cross": cross},
    )


def semidefinite_proof(statement: Statement, steps: Steps) -> None:
    """Write the form as a sum of squares of the tables' entries; each entry is one more square."""
    x, y, a, b, g, h = sp.symbols("x y a b g h", real=True)
    one_entry = x**2 * (a * g) ** 2 + statement.part.cross * x * y * (a * g) * (b * h) + y**2 * (b * h) ** 2
    steps.nonnegative("one entry", one_entry, [(x * a * g + y * b * h) ** 2])
    a, b, g, h = arguments(1)
    squares = [
        (x * p * r + y * q * s) ** 2
        for p, q in zip(a[0], b[0], strict=True)
        for r, s in zip(g, h, strict=True)
    ]
    steps.nonnegative("one layer", statement.relations(1)[0].rhs, squares)


SEMIDEFINITE = semidefinite()
SEMIDEFINITE_MUTANTS = {
    "a larger cross term": semidefinite(cross=3),
    "more than twice subtracted": semidefinite(cross=-3),
}


@pytest.mark.equation("gradient2")
def prove_lai_is_positive_semidefinite(settle):
    """Show that LAI's quadratic form is a sum of squares."""
    settle(SEMIDEFINITE, semidefinite_proof, SEMIDEFINITE_MUTANTS)


def rescaled(*, power: int = 2, other: int = -1) -> Statement:
    """State what ``W1 -> c W1, W2 -> W2 / c`` does in a linear network of two layers."""
    scale = sp.Symbol("c", positive=True)

    def names(width: int) -> tuple:
        weights = (
            sp.Matrix(width, width, sp.symbols(f"{name}_:{width * width}", real=True)) for name in "VW"
        )
        return *(vector(f"{name}_", width) for name in "xygh"), *weights

    def claim(width: int) -> tuple[Equal, Equal]:
        x, y, g, h, first, second = names(width)
        changed, back = scale * first, second * scale**other
        alpha = x.dot(y) + (changed * x).dot(changed * y)
        claimed = x.dot(y) + scale**power * (first * x).dot(first * y)
        return (
            Equal(back * (changed * x), second * (first * x)),
            Equal(alpha * g.dot(h), claimed * g.dot(h)),
        )

    return Statement(
        slug="gradient2",
        scope="any widths, two linear layers",
        claim=claim,
        depths=(1, 2),
        parts={"power": power, "other": other, "c": scale, "names": names},
    )


def rescaled_proof(statement: Statement, steps: Steps) -> None:
    """Compare the outputs and the second alpha for matrices of symbolic size."""
    part = statement.part
    n, m, o = sp.symbols("n m o", integer=True, positive=True)
    first, second = sp.MatrixSymbol("V", m, n), sp.MatrixSymbol("W", o, m)
    x, y = (sp.MatrixSymbol(name, n, 1) for name in "xy")
    c = part.c
    outputs = steps.identity("outputs", (second * c**part.other) * (c * first * x), second * first * x)
    alpha = sp.Trace((c * first * x).T * (c * first * y))
    claimed = c**part.power * sp.Trace((first * x).T * (first * y))
    similarity = steps.identity("second alpha", alpha, claimed)

    def of_the_network(width: int) -> list:
        a, b, up, other, lower, upper = part.names(width)
        last = {first: lower, x: a}
        whole = (similarity.at({**last, y: b}) + a.dot(b)) * up.dot(other)
        return [outputs.at({**last, second: upper}), whole]

    steps.conclude(statement, of_the_network)


RESCALED = rescaled()
RESCALED_MUTANTS = {
    "invariant after all": rescaled(power=0),
    "scaled once": rescaled(power=1),
    "not scaled back": rescaled(other=1),
}


@pytest.mark.equation("gradient2")
def prove_lai_changes_with_the_parametrisation(settle):
    """Show that rescaling layers keeps the network and changes LAI."""
    settle(RESCALED, rescaled_proof, RESCALED_MUTANTS)


def last_layer(*, sign: int = 1, layers: str = "last") -> Statement:
    """State that LLI is the inner product of the last layer's gradients."""

    def claim(depth: int) -> Equal:
        a, b, g, h = arguments(depth)
        matrix = sp.Matrix(width(OUTPUTS), width(WIDTH), sp.symbols(f"W:{width(OUTPUTS) * width(WIDTH)}"))
        losses = [up.dot(matrix * down[-1]) for up, down in ((g, a), (h, b))]
        exact = sp.Add(*(losses[0].diff(entry) * losses[1].diff(entry) for entry in matrix))
        seen = {"last": slice(-1, None), "first": slice(1), "all": slice(None)}[layers]
        alpha = sp.Add(*(x.dot(y) for x, y in zip(a[seen], b[seen], strict=True)))
        return Equal(sign * alpha * g.dot(h), exact)

    return Statement(
        slug="lli",
        scope=f"{STEP}; any widths, any loss with a derivative",
        claim=claim,
        depths=(1, 2, 3),
        arguments=arguments,
        parts={"sign": sign},
    )


def last_layer_proof(statement: Statement, steps: Steps) -> None:
    """Find the gradient of one matrix, and its inner products column by column."""
    outputs, width = sp.symbols("d_L d", integer=True, positive=True)
    g, h = (sp.MatrixSymbol(name, outputs, 1) for name in "gh")
    a, moved = sp.MatrixSymbol("a", width, 1), sp.MatrixSymbol("V", outputs, width)
    steps.identity("the gradient is g a'", sp.Trace(g.T * (moved * a)), sp.Trace(moved.T * (g * a.T)))
    x, y, alpha = sp.symbols("x y alpha", real=True)
    claimed = statement.part.sign * (alpha + x * y) * (g.T * h)
    steps.identity("one more column", alpha * (g.T * h) + (x * g).T * (y * h), claimed)
    for depth in (1, 2):
        relation = statement.relations(depth)[0]
        steps.identity(f"{depth} layers", relation.lhs, relation.rhs)


LAST = last_layer()
LAST_MUTANTS = {
    "the printed sign": last_layer(sign=-1),
    "the first layer": last_layer(layers="first"),
    "all layers, as in LAI": last_layer(layers="all"),
}


@pytest.mark.equation("lli")
def prove_lli_is_exact_for_the_last_layer(settle):
    """Show that the last layer's product is its gradients' inner product."""
    settle(LAST, last_layer_proof, LAST_MUTANTS)
