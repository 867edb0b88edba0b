r"""Layer weights: which ones the printed bound allows, and what each way of choosing them minimises.

Weights act layer by layer, so that worst cases add up over layers and validation samples, and one
term is enough. Least squares are shown for matrices of symbolic size.
"""

import itertools
import random

import sympy as sp

from proofs._chain import bounded_product
from proofs._harness import MEANING, AtMost, Equal, Statement, Steps, settled, under, within
from proofs._rewrites import becomes, each, every, plus, put, times, without
from proofs._symbols import combined, dot, matrix, numbers, parts_of, symbolic, total, transposed, vector

T, s, r, h = sp.symbols("T s r h", nonnegative=True)
d = sp.symbols("d", positive=True)
m, w, x = sp.symbols("m w x", real=True)


def admissible(depth: int) -> tuple[AtMost, ...]:
    """State that the printed bound T holds for weights in [0, T] and fails for others, worst ratio for worst.

    A ratio is ``s T`` and a weight inside ``r T``, with s and r from 0 to 1; d is how far a weight
    lies outside.
    """
    below, above = -d, T + d
    return (
        AtMost(s * T - r * T, T),
        AtMost(r * T - s * T, T),
        AtMost(T, sp.Max(abs(0 - below), abs(T - below)), strict=True),
        AtMost(T, sp.Max(abs(0 - above), abs(T - above)), strict=True),
    )


def minimax(depth: int) -> tuple[AtMost, ...]:
    """State that the middle keeps the bound for every ratio, and that no weight has a smaller worst case."""
    away = m + 2 * h * s - (m + h)
    return *within(abs(x) * h, x * away), AtMost(h, sp.Max(abs(m - w), abs(m + 2 * h - w)))


def fit_names(layers: int) -> tuple:
    """Name the layers' columns and the aims, of three pairs, the weights, and what is added to them."""
    columns = [numbers(f"x{k}_", 3)[0] for k in range(layers)]
    return columns, *numbers("y", 3), *numbers("w d", layers)


def residual(columns: list, y: list, weights: list) -> list:
    """Give what weights leave of the aims."""
    return [a - b for a, b in zip(y, combined(weights, columns), strict=True)]


def least_squares(layers: int) -> Equal:
    """State by how much any other weights fit worse than those that solve the normal equations."""
    columns, y, w, d = fit_names(layers)
    moved = residual(columns, y, [a + b for a, b in zip(w, d, strict=True)])
    rows = moved, residual(columns, y, w), residual(columns, [0, 0, 0], d)
    first, second, third = (dot(row, row) for row in rows)
    return Equal(third, first - second)


def normal_equations(layers: int) -> tuple[Equal, ...]:
    """State the normal equations."""
    columns, y, w, _ = fit_names(layers)
    left = residual(columns, y, w)
    return under(MEANING, (Equal(dot(x, left), 0) for x in columns))


def draw_fit(draw: random.Random, layers: int) -> dict:
    """Draw aims that are fitted, and add what is orthogonal to all columns."""
    columns, y, w, d = fit_names(layers)
    values = {s: sp.Rational(draw.randint(-4, 4), 2) for s in (*w, *d, *(x for c in columns for x in c))}
    drawn = [sp.Matrix([values[x] for x in c]) for c in columns]
    other = sp.Matrix([1, 2, draw.randint(-2, 2)]) if layers == 1 else drawn[1]
    fitted = sum((values[a] * x for a, x in zip(w, drawn, strict=True)), sp.zeros(3, 1))
    return values | dict(zip(y, fitted + drawn[0].cross(other), strict=True))


def pair_names(pairs: int) -> tuple:
    """Name the pairs' alphas and similarities, the last ones, and the weight."""
    return *numbers("a beta last", pairs), w


def best(pairs: int, power: int = 2) -> sp.Expr:
    """Give the weight that fits best."""
    a, beta, last, _ = pair_names(pairs)
    return dot(*[a] * power, beta, last) / dot(a, a, last, last)


def worse(pairs: int, weight: sp.Expr) -> sp.Expr:
    """Give by how much w fits worse than a weight, if that fits best."""
    a, _, last, _ = pair_names(pairs)
    return dot(a, a, last, last) * (w - weight) ** 2


def decoupled(pairs: int) -> Equal:
    """State by how much another weight of one layer fits worse; alphas weigh the pairs."""
    rows = list(zip(*pair_names(pairs)[:3], strict=True))
    misfits = (total(a**2 * (y - v * z) ** 2 for a, y, z in rows) for v in (w, best(pairs)))
    return Equal(worse(pairs, best(pairs)), next(misfits) - next(misfits))


def gradient_names(count: int) -> tuple:
    """Name both samples' gradients and the model's operator."""
    return *([vector(f"{name}{i}", 2) for i in range(count)] for name in "gh"), matrix("M", 2, 2)


def moment(vectors: list) -> sp.Matrix:
    """Give the second moment of equally likely vectors."""
    return sum((v * v.T for v in vectors), sp.zeros(2)) / len(vectors)


def product_of_moments(count: int) -> sp.Matrix:
    """Multiply both second moments."""
    of_z, of_j, _ = gradient_names(count)
    return moment(of_j) * moment(of_z)


def weight_of(count: int, both: sp.Matrix) -> sp.Expr:
    """Give the model's weight by the product of both second moments."""
    return (gradient_names(count)[2] * both).trace() / both.trace()


def model(count: int) -> Equal:
    """State that the model's weight is the slope over independent gradients."""
    of_z, of_j, product = gradient_names(count)
    pairs = list(itertools.product(of_z, of_j))
    mixed = total((g.T * product * h)[0] * g.dot(h) for g, h in pairs)
    square = total(g.dot(h) ** 2 for g, h in pairs)
    return Equal(weight_of(count, product_of_moments(count)), mixed / square)


def not_orthogonal(count: int) -> tuple[AtMost, ...]:
    """State that the gradients are not all orthogonal."""
    of_z, of_j, _ = gradient_names(count)
    square = sum(g.dot(h) ** 2 for g in of_z for h in of_j)
    return under(r"$\tr(S_j S_z) \ne 0$", (AtMost(0, square, strict=True),))


STATEMENT = Statement(
    "admissible-weights",
    "any depth, any rate; one layer, as layers' terms add up",
    admissible,
    given=lambda depth: under(MEANING, (AtMost(s, 1), AtMost(r, 1))),
    arguments=lambda depth: (s, r, T, d),
)
MUTANTS = {
    "no bound at all": times(0, only=0),
    "weights above the ratio's end": put({r * T: T + r}, only=1, of="lhs"),
    "weights outside that are inside": each("d", lambda d: -d, only=2),
}
MINIMAX = Statement(
    "minimax-weights",
    "any depth, any number of validation samples; one layer, as layers' terms add up",
    minimax,
    given=lambda depth: under(MEANING, (AtMost(s, 1),)),
    arguments=lambda depth: (m, h, s, w, x),
)
MINIMAX_MUTANTS = {
    "a third of the way": plus(x * h / 3, only=0, of="lhs"),
    "no error at all": times(0, only=0),
    "ratios beyond their bounds": plus(x * h, only=0, of="lhs"),
}
LEAST_SQUARES = Statement(
    "calibrated-least-squares",
    "any depth, any number of pairs",
    least_squares,
    given=normal_equations,
    depths=(1, 2),
    arguments=fit_names,
    sample=draw_fit,
)
LEAST_SQUARES_MUTANTS = {
    "twice the distance": times(2, of="lhs"),
    "any weights": without(MEANING),
    "the fit added": every(each("w", lambda w: -w), each("d", lambda d: -d)),
}
DECOUPLED = Statement(
    "calibrated-decoupled",
    "any number of pairs, each layer by itself",
    decoupled,
    depths=(1, 2, 3),
    arguments=pair_names,
)
DECOUPLED_MUTANTS = {
    "twice the weight": becomes(lambda pairs: worse(pairs, 2 * best(pairs)), of="lhs"),
    "alpha not squared": becomes(lambda pairs: worse(pairs, best(pairs, 1)), of="lhs"),
    "twice the distance": times(2, of="lhs"),
}
MODEL = Statement(
    "calibrated-model",
    "any width, any law of independent gradients with second moments",
    model,
    given=not_orthogonal,
    depths=(1, 2),
    arguments=gradient_names,
)
MODEL_MUTANTS = {
    "moments exchanged": becomes(lambda count: weight_of(count, product_of_moments(count).T), of="lhs"),
    "transposed": put(transposed(matrix("M", 2, 2)), of="lhs"),
    "without the validation moment": becomes(
        lambda count: weight_of(count, moment(gradient_names(count)[1])), of="lhs"
    ),
}


@settled("admissible-weights", STATEMENT, MUTANTS)
def prove_admissible_weights(statement: Statement, steps: Steps) -> None:
    """Inside: T = b + e = w + f. Outside: at the far end of the ratios the error is T + d."""
    b, w, e, f = sp.symbols("b w e f", nonnegative=True)
    lemmas = [
        steps.nonnegative("ratio above the weight", b + e - (b - w), [e, w]),
        steps.nonnegative("weight above the ratio", w + f - (w - b), [f, b]),
        steps.nonnegative("a negative weight, at the largest ratio", T + d - T, [d]),
        steps.nonnegative("a weight above T, at the ratio 0", T + d - T, [d]),
    ]
    values = {b: s * T, e: T - s * T, w: r * T, f: T - r * T}
    steps.conclude(statement, lambda depth: [lemma.at(values) for lemma in lemmas], depths=(1,))


@settled("minimax-weights", MINIMAX, MINIMAX_MUTANTS)
def prove_minimax_weights(statement: Statement, steps: Steps) -> None:
    """Bound the distance of the ratio ``m + 2 h s`` from the middle, and put a weight d away from it."""
    d = sp.Symbol("d", nonnegative=True)
    lemmas, values = bounded_product(steps)
    larger = steps.nonnegative("a larger weight, at m", (m + h + d - m) - h, [d])
    smaller = steps.nonnegative("a smaller weight, at M", (m + 2 * h - (m + h - d)) - h, [d])
    over, under = parts_of(w - m - h)
    both = larger.at({d: over}) + smaller.at({d: under})
    inside = values(x, abs(x), 2 * h * s - h, h)
    steps.conclude(statement, lambda depth: [*(one.at(inside) for one in lemmas), both], depths=(1,))


@settled("calibrated-least-squares", LEAST_SQUARES, LEAST_SQUARES_MUTANTS)
def prove_least_squares_weights(statement: Statement, steps: Steps) -> None:
    """Expand the misfit of w + d around the residual r of w; the normal equations take the mixed part."""
    x, r, d = symbolic("X:PL r:P d:L")
    moved = r - x * d
    squares = sp.Trace(moved.T * moved) - sp.Trace(r.T * r)
    mixed, change = sp.Trace(d.T * x.T * r), sp.Trace((x * d).T * (x * d))
    expanded = steps.identity("expansion", change, squares + 2 * mixed)

    @steps.conclude(statement, depths=statement.depths)
    def of_the_fit(layers: int):
        columns, y, weights, moved = statement.arguments(layers)
        design = sp.Matrix(columns).T
        misfit = sp.Matrix(y) - design * sp.Matrix(weights)
        return expanded.at({x: design, r: misfit, d: sp.Matrix(moved)})


@settled("calibrated-decoupled", DECOUPLED, DECOUPLED_MUTANTS)
def prove_decoupled_weights(statement: Statement, steps: Steps) -> None:
    """Write the misfit as A - 2 w B + w^2 D; one more pair adds to each of the three."""
    A, B = sp.symbols("A B", real=True)
    D, a = sp.Symbol("D", real=True, nonzero=True), sp.Symbol("a", positive=True)
    lowest = B / D
    difference = (A - 2 * w * B + w**2 * D) - (A - 2 * lowest * B + lowest**2 * D)
    parabola = steps.identity("a parabola", D * (w - lowest) ** 2, difference)
    y, z = sp.symbols("y z", real=True)
    parts = a**2 * y**2 - 2 * w * a**2 * y * z + w**2 * a**2 * z**2
    steps.identity("one more pair", a**2 * (y - w * z) ** 2, parts)

    @steps.conclude(statement)
    def all_pairs(pairs: int):
        a, beta, last, _ = pair_names(pairs)
        pairs_of = {A: (beta, beta), B: (beta, last), D: (last, last)}
        return parabola.at({symbol: dot(a, a, *rows) for symbol, rows in pairs_of.items()})


@settled("calibrated-model", MODEL, MODEL_MUTANTS)
def prove_model_weights(statement: Statement, steps: Steps) -> None:
    """Turn each product round as a trace; expectations then act on ``g g'`` and ``h h'`` one by one."""
    g, h, M = symbolic("g h M")
    both = h * h.T * (g * g.T)
    mixed = steps.identity("the mixed moment", sp.Trace(M * both), sp.Trace(g.T * M * h * h.T * g))
    square = steps.identity("the square", sp.Trace(both), sp.Trace(g.T * h * h.T * g))

    @steps.conclude(statement, depths=statement.depths)
    def on_average(count: int):
        of_z, of_j, operator = statement.arguments(count)
        drawn = [{g: x, h: y} for x in of_z for y in of_j]
        return total(mixed.at({M: operator, **pair}) for pair in drawn) / total(map(square.at, drawn))
