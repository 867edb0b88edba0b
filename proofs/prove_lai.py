r"""LAI and LLI as definitions: their other forms, and what a change of parameters does to them.

LAI is a product of two inner products, of the inputs of all layers side by side and of the last output
gradients, and so the inner product of the tables ``c g'`` of their pairwise products. That is a Gram
kernel: ``sum_zj x_z x_j K_zj`` is a sum of squares. LLI is the same for the last layer alone, and there it
is the exact inner product of that layer's gradients. Rescaling two layers by ``c`` and ``1/c`` leaves the
network and multiplies the second alpha by ``c^2``. One more layer, or one more width, adds one more
entry to the sum.
"""

import itertools

import sympy as sp

from proofs._chain import gradient_of_one_matrix
from proofs._harness import STEP, AtMost, Equal, Statement, Steps, settled, width
from proofs._rewrites import at, becomes, each, every, plus, put, times
from proofs._symbols import dot, inner_product, layers, matrix, side_by_side, symbolic, total, vector

SCOPE = f"{STEP}; any widths"
WIDTH, OUTPUTS = 2, 2


def arguments(depth: int) -> tuple:
    """Name the activations of both samples, layer by layer, and their output gradients."""
    return *layers("a b", depth, width(WIDTH)), vector("g", width(OUTPUTS)), vector("h", width(OUTPUTS))


def definition(depth: int) -> tuple[Equal, ...]:
    """State that Eq. 4 without its minus is one alpha of concatenations times beta, entry by entry."""
    a, b, g, h = arguments(depth)
    c, d = ([entry for layer in side for entry in layer] for side in (a, b))
    table = total(dot(c, d, [p * q] * len(c)) for p, q in zip(g, h, strict=True))
    return (Equal(side_by_side(a, b) * g.dot(h), table),)


def inputs_added(depth: int) -> sp.Expr:
    """Add the inputs of all layers up, as in a residual stream."""
    a, b, g, h = arguments(depth)
    return sum(a[1:], a[0]).dot(sum(b[1:], b[0])) * g.dot(h)


DEFINITION = Statement("gradient2", SCOPE, definition, depths=(1, 2, 3), arguments=arguments)
DEFINITION_MUTANTS = {
    "the printed sign": times(-1, of="lhs"),
    "the first layer left out": put(lambda depth: dict.fromkeys(arguments(depth)[0][0], sp.S.Zero)),
    "inputs added instead of set side by side": becomes(inputs_added),
}


@settled("gradient2", DEFINITION, DEFINITION_MUTANTS)
def prove_lai_is_one_product_of_concatenations(statement: Statement, steps: Steps) -> None:
    """Add one more entry of the concatenation, for outputs of symbolic size."""
    gradient_of_one_matrix(steps)
    steps.base(statement, (1, 2))


x, y = sp.symbols("x y", real=True)
scale = sp.Symbol("c", positive=True)


def kernel(left: tuple, right: tuple) -> sp.Expr:
    """Give LAI's kernel of two samples' activations and output gradients."""
    return side_by_side(left[0], right[0]) * left[1].dot(right[1])


def cross_term(depth: int) -> sp.Expr:
    """Give half of what the form has of both samples."""
    a, b, g, h = arguments(depth)
    return x * y * kernel((a, g), (b, h))


def semidefinite(depth: int) -> AtMost:
    """State that two samples' combined LAI with themselves is never negative."""
    a, b, g, h = arguments(depth)
    own = x**2 * kernel((a, g), (a, g)) + y**2 * kernel((b, h), (b, h))
    return AtMost(sp.S.Zero, own + 2 * cross_term(depth))


def equal_samples(sign: int) -> tuple:
    """Combine two samples that are the same, with weights of this sign."""
    a, b, g, h = arguments(1)
    return 1, {x: 1, y: sign} | {entry: int(k == 0) for v in (*a, *b, g, h) for k, entry in enumerate(v)}


SEMIDEFINITE = Statement("gradient2", SCOPE, semidefinite, depths=(1, 2))
SEMIDEFINITE_MUTANTS = {
    "a larger cross term": every(plus(cross_term), at(*equal_samples(-1))),
    "more than twice subtracted": every(plus(lambda depth: -5 * cross_term(depth)), at(*equal_samples(1))),
}


@settled("gradient2", SEMIDEFINITE, SEMIDEFINITE_MUTANTS)
def prove_lai_is_positive_semidefinite(statement: Statement, steps: Steps) -> None:
    """Write the form as a sum of squares of the tables' entries; each entry is one more square."""
    x, y, a, b, g, h = sp.symbols("x y a b g h", real=True)
    one_entry = x**2 * (a * g) ** 2 + 2 * x * y * (a * g) * (b * h) + y**2 * (b * h) ** 2
    steps.nonnegative("one entry", one_entry, [(x * a * g + y * b * h) ** 2])
    a, b, g, h = arguments(1)
    entries = itertools.product(zip(a[0], b[0], strict=True), zip(g, h, strict=True))
    squares = [(x * p * r + y * q * s) ** 2 for (p, q), (r, s) in entries]
    steps.nonnegative("one layer", statement.relations(1)[0].rhs, squares)


def network(width: int) -> tuple:
    """Name both samples' inputs and output gradients, and two layers' weights."""
    return *(vector(f"{name}_", width) for name in "xygh"), *(matrix(name, width, width) for name in "VW")


def rescaled(width: int) -> tuple[Equal, Equal]:
    """State what ``W1 -> c W1, W2 -> W2 / c`` does in a linear network of two layers."""
    x, y, g, h, first, second = network(width)
    changed, back = scale * first, second / scale
    alpha = x.dot(y) + (changed * x).dot(changed * y)
    claimed = x.dot(y) + scale**2 * (first * x).dot(first * y)
    return (Equal(back * (changed * x), second * (first * x)), Equal(alpha * g.dot(h), claimed * g.dot(h)))


RESCALED = Statement("gradient2", "any widths, two linear layers", rescaled, depths=(1, 2))
RESCALED_MUTANTS = {
    "invariant after all": each("c", 1, only=1),
    "scaled once": put({scale**2: scale}, only=1),
    "not scaled back": times(scale**2, only=0, of="lhs"),
}


@settled("gradient2", RESCALED, RESCALED_MUTANTS)
def prove_lai_changes_with_the_parametrisation(statement: Statement, steps: Steps) -> None:
    """Compare the outputs and the second alpha for matrices of symbolic size."""
    first, second, x, y = symbolic("V:mn W:om x:n y:n")
    c = scale
    outputs = steps.identity("outputs", second / c * (c * first * x), second * first * x)
    alpha = sp.Trace((c * first * x).T * (c * first * y))
    claimed = c**2 * sp.Trace((first * x).T * (first * y))
    similarity = steps.identity("second alpha", alpha, claimed)

    @steps.conclude(statement)
    def of_the_network(width: int) -> list:
        a, b, up, other, lower, upper = network(width)
        last = {first: lower, x: a}
        whole = (similarity.at({**last, y: b}) + a.dot(b)) * up.dot(other)
        return [outputs.at({**last, second: upper}), whole]


def last_layer(depth: int) -> Equal:
    """State that LLI is the inner product of the last layer's gradients."""
    a, b, g, h = arguments(depth)
    weight = matrix("W", width(OUTPUTS), width(WIDTH))
    exact = inner_product(*(up.dot(weight * down[-1]) for up, down in ((g, a), (h, b))), list(weight))
    return Equal(of_layers(depth, slice(-1, None)), exact)


def of_layers(depth: int, seen: slice) -> sp.Expr:
    """Multiply beta with the alphas of some layers."""
    a, b, g, h = arguments(depth)
    return kernel((a[seen], g), (b[seen], h))


LAST = Statement(
    "lli",
    f"{STEP}; any widths, any loss with a derivative",
    last_layer,
    depths=(1, 2, 3),
    arguments=arguments,
)
LAST_MUTANTS = {
    "the printed sign": times(-1, of="lhs"),
    "the first layer": becomes(lambda depth: of_layers(depth, slice(1)), of="lhs"),
    "all layers, as in LAI": becomes(lambda depth: of_layers(depth, slice(None)), of="lhs"),
}


@settled("lli", LAST, LAST_MUTANTS)
def prove_lli_is_exact_for_the_last_layer(statement: Statement, steps: Steps) -> None:
    """Find the gradient of one matrix, and its inner products column by column."""
    gradient_of_one_matrix(steps)
    steps.base(statement, (1, 2))
