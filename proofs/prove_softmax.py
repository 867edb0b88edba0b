r"""The last layer's similarity when the loss is the cross-entropy of a softmax.

With ``x_c = exp(s_c) > 0`` the loss is ``log(sum x) - log x_y``, and d/ds is ``x d/dx``: its gradient is
``p - e_y`` with ``p = x / sum x``, shown for one class with the others' sum a symbol. The product of two
such vectors, of symbolic size, expands into four, of which three pick entries.
"""

from __future__ import annotations

import pytest
import sympy as sp

from proofs._harness import Equal, Statement, Steps

SCOPE = "any number of classes, any labels and logits"


def statement(*, agreement: int = 1, cross: int = -1, similarity: int = 1) -> Statement:
    """State beta in terms of probabilities and labels; both labels equal, then different."""

    def claim(classes: int) -> tuple[Equal, ...]:
        relations = []
        for label in range(classes):
            x, y = arguments(classes)
            p, q = x / sum(x), y / sum(y)
            losses = [sp.log(sum(side)) - sp.log(side[k]) for side, k in ((x, 0), (y, label))]
            beta = sp.Add(
                *(x[c] * losses[0].diff(x[c]) * y[c] * losses[1].diff(y[c]) for c in range(classes))
            )
            claimed = similarity * p.dot(q) + cross * (p[label] + q[0]) + agreement * int(label == 0)
            relations.append(Equal(beta, claimed))
        return tuple(relations)

    return Statement(
        slug="softmax-feedback",
        scope=SCOPE,
        claim=claim,
        depths=(2, 3),
        arguments=arguments,
        parts={"agreement": agreement, "cross": cross, "similarity": similarity},
    )


def arguments(classes: int) -> tuple:
    """Name the exponentials of both samples' logits."""
    return tuple(sp.Matrix(sp.symbols(f"{name}_:{classes}", positive=True)) for name in "xy")


def proof(statement: Statement, steps: Steps) -> None:
    """Differentiate in one logit, then expand the product."""
    part = statement.part
    x, rest = sp.symbols("x r", positive=True)
    total = sp.log(x + rest)
    steps.identity("a class that is not the label", x * total.diff(x), x / (x + rest))
    steps.identity("the label", x * (total - sp.log(x)).diff(x), x / (x + rest) - 1)
    classes = sp.Symbol("c", integer=True, positive=True)
    p, q, e, f = (sp.MatrixSymbol(name, classes, 1) for name in "pqef")
    claimed = part.similarity * p.T * q + part.cross * (p.T * f + e.T * q) + part.agreement * e.T * f
    expanded = steps.identity("expanded", (p - e).T * (q - f), claimed)

    def each_label(count: int) -> list:
        first, second = (side / sum(side) for side in arguments(count))
        units = sp.eye(count)
        return [
            expanded.at({p: first, q: second, e: units[:, 0], f: units[:, label]}) for label in range(count)
        ]

    steps.conclude(statement, each_label)


STATEMENT = statement()
MUTANTS = {
    "agreement left out": statement(agreement=0),
    "cross terms added": statement(cross=1),
    "probabilities alone opposed": statement(similarity=-1),
}


@pytest.mark.equation("softmax-feedback")
def prove_softmax_feedback(settle):
    """Show that probabilities and labels give the last layer's beta."""
    settle(STATEMENT, proof, MUTANTS)
