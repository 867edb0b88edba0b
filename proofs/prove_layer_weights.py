r"""Layer weights: which ones the printed bound allows, and what each way of choosing them minimises.

Weights act layer by layer, so that worst cases add up over layers and validation samples, and one
term is enough. Least squares are shown for matrices of symbolic size.
"""

from __future__ import annotations

import random

import pytest
import sympy as sp

from proofs._harness import MEANING, AtMost, Equal, Statement, Steps, under
from proofs._symbols import parts_of, total

T = sp.symbols("T", nonnegative=True)


def admissible(*, top: int = 1, inside: bool = True, beyond: int = 1) -> Statement:
    """State that the printed bound T holds for weights in [0, T] and fails for others, worst ratio for worst.

    A ratio is ``s T`` and a weight inside ``r T``, with s and r from 0 to 1; d is how far a weight
    lies outside.
    """
    s, r = sp.symbols("s r", nonnegative=True)
    d = sp.symbols("d", positive=True)

    def claim(depth: int) -> tuple[AtMost, ...]:
        weight = r * T if inside else T + r
        below, above = -beyond * d, T + beyond * d
        return (
            AtMost(s * T - weight, top * T),
            AtMost(weight - s * T, top * T),
            AtMost(T, sp.Max(abs(0 - below), abs(T - below)), strict=True),
            AtMost(T, sp.Max(abs(0 - above), abs(T - above)), strict=True),
        )

    def sample(draw: random.Random, depth: int) -> dict:
        size = sp.Rational(draw.randint(1, 8), 4)
        return {s: sp.Rational(draw.randint(0, 4), 4), r: sp.Rational(draw.randint(0, 4), 4), T: size} | {
            d: size * sp.Rational(draw.randint(1, 4), 8)
        }

    return Statement(
        slug="admissible-weights",
        scope="any depth, any rate; one layer, as layers' terms add up",
        claim=claim,
        given=lambda depth: under(MEANING, (AtMost(s, 1), AtMost(r, 1))),
        arguments=lambda depth: (s, r, T, d),
        sample=sample,
        parts={"top": top, "inside": inside, "beyond": beyond},
    )


def admissible_proof(statement: Statement, steps: Steps) -> None:
    """Inside: T = b + e = w + f. Outside: at the far end of the ratios the error is T + d."""
    part = statement.part
    b, w, e, f = sp.symbols("b w e f", nonnegative=True)
    d = sp.symbols("d", positive=True)
    size = b + e
    beyond = sp.Integer(0) if part.inside else size
    lemmas = [
        steps.nonnegative("ratio above the weight", part.top * size - (b - w - beyond), [e, w, beyond]),
        steps.nonnegative("weight above the ratio", part.top * (w + f) - (w + beyond - b), [f, b]),
        steps.nonnegative("a negative weight, at the largest ratio", T - (-part.beyond * d) - T, [d]),
        steps.nonnegative("a weight above T, at the ratio 0", (T + part.beyond * d) - 0 - T, [d]),
    ]
    s, r, _, outside = statement.arguments(1)
    values = {b: s * T, e: T - s * T, w: r * T, f: T - r * T, d: outside}
    steps.conclude(statement, lambda depth: [lemma.at(values) for lemma in lemmas], depths=(1,))


def minimax(*, share: int = 2, reach: int = 1, inside: bool = True) -> Statement:
    """State that the middle keeps the bound for every ratio, and that no weight has a smaller worst case."""
    m, w, x = sp.symbols("m w x", real=True)
    h, s = sp.symbols("h s", nonnegative=True)
    middle = m + 2 * h / share

    def claim(depth: int) -> tuple[AtMost, ...]:
        ratio = m + 2 * h * s + (0 if inside else h)
        bound = abs(x) * reach * h
        return (
            AtMost(x * (ratio - middle), bound),
            AtMost(-x * (ratio - middle), bound),
            AtMost(h, sp.Max(abs(m - w), abs(m + 2 * h - w))),
        )

    def sample(draw: random.Random, depth: int) -> dict:
        return {s: sp.Rational(draw.randint(0, 4), 4), h: sp.Rational(draw.randint(1, 8), 4)}

    return Statement(
        slug="minimax-weights",
        scope="any depth, any number of validation samples; one layer, as layers' terms add up",
        claim=claim,
        given=lambda depth: under(MEANING, (AtMost(s, 1),)),
        arguments=lambda depth: (m, h, s, w, x),
        sample=sample,
        parts={"share": share, "reach": reach, "shift": 0 if inside else 1},
    )


def minimax_proof(statement: Statement, steps: Steps) -> None:
    """With 1 = s + t the ratio is m + 2 h s; the weight is the middle, or d away from it."""
    part = statement.part
    m = sp.symbols("m", real=True)
    h, s, t, up, down, d = sp.symbols("h s t u v d", nonnegative=True)
    one = s + t
    away = (m * one + 2 * h * s + part.shift * h * one) - (m * one + 2 * h / part.share * one)
    most = (up + down) * part.reach * h * one
    lemmas = []
    for name, sign in (("from above", 1), ("from below", -1)):
        ends = (t, s) if sign == 1 else (s, t)
        slack = most - sign * (up - down) * away
        lemmas.append(steps.nonnegative(name, slack, [2 * up * h * ends[0], 2 * down * h * ends[1]]))
    larger = steps.nonnegative("a larger weight, at m", (m + h + d - m) - h, [d])
    smaller = steps.nonnegative("a smaller weight, at M", (m + 2 * h - (m + h - d)) - h, [d])
    *_, share, weight, x = statement.arguments(1)
    values = {t: 1 - share, **dict(zip((up, down), parts_of(x), strict=True))}
    over, under = parts_of(weight - m - h)
    both = larger.at({d: over}) + smaller.at({d: under})
    steps.conclude(statement, lambda depth: [*(one.at(values) for one in lemmas), both], depths=(1,))


def least_squares(*, factor: int = 1, normal: bool = True, sign: int = -1) -> Statement:
    """State by how much any other weights fit worse than those that solve the normal equations."""

    def names(layers: int) -> tuple:  # three pairs
        columns = [list(sp.symbols(f"x{k}_:3", real=True)) for k in range(layers)]
        sizes = (("y", 3), ("w", layers), ("d", layers))
        return columns, *(list(sp.symbols(f"{name}:{size}", real=True)) for name, size in sizes)

    def residual(columns: list, y: list, weights: list) -> list:
        return [y[i] + sign * sum(w * x[i] for w, x in zip(weights, columns, strict=True)) for i in range(3)]

    def claim(layers: int) -> Equal:
        columns, y, w, d = names(layers)
        moved = residual(columns, y, [a + b for a, b in zip(w, d, strict=True)])
        best = residual(columns, y, w)
        change = residual(columns, [0, 0, 0], d)
        squares = (sum(r**2 for r in row) for row in (moved, best, change))
        first, second, third = squares
        return Equal(factor * third, first - second)

    def given(layers: int) -> tuple[Equal, ...]:
        columns, y, w, _ = names(layers)
        left = [y[i] - sum(a * x[i] for a, x in zip(w, columns, strict=True)) for i in range(3)]
        equations = (Equal(sum(x[i] * left[i] for i in range(3)), 0) for x in columns)
        return under(MEANING, equations) if normal else ()

    def sample(draw: random.Random, layers: int) -> dict:
        columns, y, w, d = names(layers)
        values = {s: sp.Rational(draw.randint(-4, 4), 2) for s in (*w, *d, *(x for c in columns for x in c))}
        drawn = [sp.Matrix([values[x] for x in c]) for c in columns]
        other = sp.Matrix([1, 2, draw.randint(-2, 2)]) if layers == 1 else drawn[1]
        orthogonal = drawn[0].cross(other) if normal else sp.Matrix([1, draw.randint(1, 3), -1])
        fitted = sum((values[a] * x for a, x in zip(w, drawn, strict=True)), sp.zeros(3, 1))
        return values | dict(zip(y, fitted + orthogonal, strict=True))

    return Statement(
        slug="calibrated-least-squares",
        scope="any depth, any number of pairs",
        claim=claim,
        given=given,
        depths=(1, 2),
        arguments=names,
        sample=sample,
        parts={"factor": factor, "sign": sign, "normal": normal},
    )


def least_squares_proof(statement: Statement, steps: Steps) -> None:
    """Expand the misfit of w + d around the residual r of w; the normal equations take the mixed part."""
    part = statement.part
    pairs, layers = sp.symbols("P L", integer=True, positive=True)
    x = sp.MatrixSymbol("X", pairs, layers)
    r, d = sp.MatrixSymbol("r", pairs, 1), sp.MatrixSymbol("d", layers, 1)
    moved = r + part.sign * x * d
    squares = sp.Trace(moved.T * moved) - sp.Trace(r.T * r)
    mixed, change = sp.Trace(d.T * x.T * r), sp.Trace((x * d).T * (x * d))
    expanded = steps.identity("expansion", change, squares - 2 * part.sign * mixed)
    left, square = sp.symbols("m q", real=True)
    taken = left * (0 if part.normal and part.sign == -1 else 1)
    steps.identity("normal equations", 2 * part.sign * taken + square, part.factor * square)

    def of_the_fit(layers: int):
        columns, y, weights, moved = statement.arguments(layers)
        design = sp.Matrix(columns).T
        misfit = sp.Matrix(y) - design * sp.Matrix(weights)
        return expanded.at({x: design, r: misfit, d: sp.Matrix(moved)})

    steps.conclude(statement, of_the_fit, depths=statement.depths)


def decoupled(*, weight: int = 1, power: int = 2, factor: int = 1) -> Statement:
    """State by how much another weight of one layer fits worse; alphas weigh the pairs."""

    def names(pairs: int) -> tuple:
        a, beta, last = (list(sp.symbols(f"{name}:{pairs}", real=True)) for name in ("a", "beta", "last"))
        return a, beta, last, sp.symbols("w", real=True)

    def moments(a: list, beta: list, last: list) -> tuple:
        rows = list(zip(a, beta, last, strict=True))
        return tuple(
            sp.Add(*(x**p * f for x, p, f in triples))
            for triples in (
                [(x, 2, y**2) for x, y, _ in rows],
                [(x, power, y * z) for x, y, z in rows],
                [(x, 2, z**2) for x, _, z in rows],
            )
        )

    def claim(pairs: int) -> Equal:
        a, beta, last, w = names(pairs)
        _, mixed, square = moments(a, beta, last)
        best = weight * mixed / square

        def misfit(v: sp.Expr) -> sp.Expr:
            return sp.Add(*(x**2 * (y - v * z) ** 2 for x, y, z in zip(a, beta, last, strict=True)))

        return Equal(factor * square * (w - best) ** 2, misfit(w) - misfit(best))

    def sample(draw: random.Random, pairs: int) -> dict:
        a, beta, last, w = names(pairs)
        return {s: sp.Rational(draw.randint(1, 9), 4) for s in (*a, *beta, *last, w)}

    return Statement(
        slug="calibrated-decoupled",
        scope="any number of pairs, each layer by itself",
        claim=claim,
        depths=(1, 2, 3),
        arguments=names,
        sample=sample,
        parts={"weight": weight, "power": power, "factor": factor},
    )


def decoupled_proof(statement: Statement, steps: Steps) -> None:
    """Write the misfit as A - 2 w B + w^2 D; one more pair adds to each of the three."""
    part = statement.part
    w, A, B = sp.symbols("w A B", real=True)
    D, a = sp.Symbol("D", real=True, nonzero=True), sp.Symbol("a", positive=True)
    best = part.weight * B / D
    difference = (A - 2 * w * B + w**2 * D) - (A - 2 * best * B + best**2 * D)
    parabola = steps.identity("a parabola", part.factor * D * (w - best) ** 2, difference)
    y, z = sp.symbols("y z", real=True)
    parts = a**2 * y**2 - 2 * w * a**part.power * y * z + w**2 * a**2 * z**2
    steps.identity("one more pair", a**2 * (y - w * z) ** 2, parts)

    def all_pairs(pairs: int):
        *rows, weight = statement.arguments(pairs)
        rows = list(zip(*rows, strict=True))
        values = {A: total(x**2 * b**2 for x, b, _ in rows), B: total(x**2 * b * c for x, b, c in rows)}
        return parabola.at({w: weight, D: total(x**2 * c**2 for x, _, c in rows), **values})

    steps.conclude(statement, all_pairs)


def model(*, swapped: bool = False, transposed: bool = False, moment: bool = True) -> Statement:
    """State that the model's weight is the slope over independent gradients."""
    width = 2

    def names(count: int) -> tuple:
        of_z, of_j = (
            [sp.Matrix(sp.symbols(f"{name}{i}_:{width}", real=True)) for i in range(count)] for name in "gh"
        )
        return of_z, of_j, sp.Matrix(width, width, sp.symbols(f"M:{width * width}", real=True))

    def second(vectors: list) -> sp.Matrix:
        total = sp.zeros(width)
        for v in vectors:
            total += v * v.T / len(vectors)
        return total

    def claim(count: int) -> Equal:
        of_z, of_j, product = names(count)
        used = product.T if transposed else product
        S_z = second(of_z) if moment else sp.eye(width)
        both = S_z * second(of_j) if swapped else second(of_j) * S_z
        mixed = sum(((g.T * product * h)[0] * g.dot(h) for g in of_z for h in of_j), sp.Integer(0))
        square = sum((g.dot(h) ** 2 for g in of_z for h in of_j), sp.Integer(0))
        return Equal((used * both).trace() / both.trace(), mixed / square)

    def given(count: int) -> tuple[AtMost]:
        of_z, of_j, _ = names(count)
        moment = AtMost(0, sum(g.dot(h) ** 2 for g in of_z for h in of_j), strict=True)
        return under(r"$\tr(S_j S_z) \ne 0$", (moment,))

    def sample(draw: random.Random, count: int) -> dict:
        of_z, of_j, product = names(count)
        return {s: sp.Integer(draw.randint(-3, 5)) for m in (*of_z, *of_j, product) for s in m} | {
            v[0]: sp.Integer(draw.randint(1, 5)) for v in (*of_z, *of_j)
        }

    return Statement(
        slug="calibrated-model",
        scope="any width, any law of independent gradients with second moments",
        claim=claim,
        given=given,
        depths=(1, 2),
        arguments=names,
        sample=sample,
        parts={"swapped": swapped, "transposed": transposed, "moment": moment},
    )


def model_proof(statement: Statement, steps: Steps) -> None:
    """Turn each product round as a trace; expectations then act on ``g g'`` and ``h h'`` one by one."""
    part = statement.part
    d = sp.symbols("d", integer=True, positive=True)
    g, h = (sp.MatrixSymbol(name, d, 1) for name in "gh")
    M = sp.MatrixSymbol("M", d, d)
    used = M.T if part.transposed else M
    of_z = g * g.T if part.moment else sp.Identity(d)
    both = of_z * (h * h.T) if part.swapped else (h * h.T) * of_z
    mixed = steps.identity("the mixed moment", sp.Trace(used * both), sp.Trace(g.T * M * h * h.T * g))
    square = steps.identity("the square", sp.Trace(both), sp.Trace(g.T * h * h.T * g))

    def on_average(count: int):
        of_z, of_j, operator = statement.arguments(count)
        drawn = [{g: x, h: y} for x in of_z for y in of_j]
        return total(mixed.at({M: operator, **pair}) for pair in drawn) / total(map(square.at, drawn))

    steps.conclude(statement, on_average, depths=statement.depths)


STATEMENT = admissible()
MUTANTS = {
    "no bound at all": admissible(top=0),
    "weights above the ratio's end": admissible(inside=False),
    "weights outside that are inside": admissible(beyond=-1),
}
MINIMAX = minimax()
MINIMAX_MUTANTS = {
    "a third of the way": minimax(share=3),
    "no error at all": minimax(reach=0),
    "ratios beyond their bounds": minimax(inside=False),
}
LEAST_SQUARES = least_squares()
LEAST_SQUARES_MUTANTS = {
    "twice the distance": least_squares(factor=2),
    "any weights": least_squares(normal=False),
    "the fit added": least_squares(sign=1),
}
DECOUPLED = decoupled()
DECOUPLED_MUTANTS = {
    "twice the weight": decoupled(weight=2),
    "alpha not squared": decoupled(power=1),
    "twice the distance": decoupled(factor=2),
}
MODEL = model()
MODEL_MUTANTS = {
    "moments exchanged": model(swapped=True),
    "transposed": model(transposed=True),
    "without the validation moment": model(moment=False),
}


@pytest.mark.equation("admissible-weights")
def prove_admissible_weights(settle):
    settle(STATEMENT, admissible_proof, MUTANTS)


@pytest.mark.equation("minimax-weights")
def prove_minimax_weights(settle):
    settle(MINIMAX, minimax_proof, MINIMAX_MUTANTS)


@pytest.mark.equation("calibrated-least-squares")
def prove_least_squares_weights(settle):
    settle(LEAST_SQUARES, least_squares_proof, LEAST_SQUARES_MUTANTS)


@pytest.mark.equation("calibrated-decoupled")
def prove_decoupled_weights(settle):
    settle(DECOUPLED, decoupled_proof, DECOUPLED_MUTANTS)


@pytest.mark.equation("calibrated-model")
def prove_model_weights(settle):
    settle(MODEL, model_proof, MODEL_MUTANTS)
