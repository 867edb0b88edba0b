r"""The last layer's similarity when the loss is the cross-entropy of a softmax.

With ``x_c = exp(s_c) > 0`` the loss is ``log(sum x) - log x_y``, and d/ds is ``x d/dx``: its gradient is
``p - e_y`` with ``p = x / sum x``, shown for one class with the others' sum a symbol. The product of two
such vectors, of symbolic size, expands into four, of which three pick entries.
"""

import sympy as sp

from proofs._harness import Equal, Statement, Steps, settled
from proofs._rewrites import plus
from proofs._symbols import symbolic


def statement(classes: int) -> tuple[Equal, ...]:
    """State beta in terms of probabilities and labels; both labels equal, then different."""
    relations, (x, y), (p, q) = [], arguments(classes), probabilities(classes)
    for label in range(classes):
        losses = [sp.log(sum(side)) - sp.log(side[k]) for side, k in ((x, 0), (y, label))]
        beta = sp.Add(*(x[c] * losses[0].diff(x[c]) * y[c] * losses[1].diff(y[c]) for c in range(classes)))
        claimed = p.dot(q) - (p[label] + q[0]) + int(label == 0)
        relations.append(Equal(beta, claimed))
    return tuple(relations)


def arguments(classes: int) -> tuple:
    """Name the exponentials of both samples' logits."""
    return tuple(sp.Matrix(sp.symbols(f"{name}_:{classes}", positive=True)) for name in "xy")


def probabilities(classes: int) -> list[sp.Matrix]:
    """Give both samples' probabilities."""
    return [side / sum(side) for side in arguments(classes)]


STATEMENT = Statement(
    "softmax-feedback",
    "any number of classes, any labels and logits",
    statement,
    depths=(2, 3),
    arguments=arguments,
)
MUTANTS = {
    "agreement left out": plus(-1, only=0),
    "cross terms added": plus(lambda classes: 2 * sum(side[0] for side in probabilities(classes)), only=0),
    "probabilities alone opposed": plus(lambda classes: -2 * sp.Matrix.dot(*probabilities(classes))),
}


@settled("softmax-feedback", STATEMENT, MUTANTS)
def prove_softmax_feedback(statement: Statement, steps: Steps) -> None:
    """Differentiate in one logit, then expand the product."""
    x, rest = sp.symbols("x r", positive=True)
    total = sp.log(x + rest)
    steps.identity("a class that is not the label", x * total.diff(x), x / (x + rest))
    steps.identity("the label", x * (total - sp.log(x)).diff(x), x / (x + rest) - 1)
    p, q, e, f = symbolic("p q e f")
    claimed = p.T * q - (p.T * f + e.T * q) + e.T * f
    expanded = steps.identity("expanded", (p - e).T * (q - f), claimed)

    @steps.conclude(statement)
    def each_label(count: int) -> list:
        first, second = probabilities(count)
        units = sp.eye(count)
        return [
            expanded.at({p: first, q: second, e: units[:, 0], f: units[:, label]}) for label in range(count)
        ]
