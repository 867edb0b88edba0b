r"""LAI is the inner product of the gradients of virtual linear readouts.

Add to the logits ``s`` the readouts ``sum_l U_l a_l`` of every layer's input, with
``U_l = 0``. The loss sees only the logits, and its gradient there is ``g``. The
derivative of the loss in the entry ``U_l[i, m]`` is then ``g[i] a_l[m]``, and the inner
product of two samples' gradients over all entries of all readouts is
``sum_l <a_l, b_l> <g, h>``: what LAI adds up.

Why the proof is for every depth and width. The inner product is a sum over layers, so
that one more layer adds one more term (the induction step, with the sum so far a
symbol); within a layer it is a sum over columns of ``U_l``, so that one more input
width adds one more term (the same step again); and a column's part is ``g a_m`` times
``h b_m``, which is shown for an output of symbolic size.
"""

import sympy as sp

from proofs._harness import STEP, Equal, Statement, settled, width
from proofs._rewrites import put, times
from proofs._symbols import dot, layers, matrix, side_by_side, vector

SCOPE = f"{STEP}; any widths, any differentiable loss of the logits"
WIDTH, OUTPUTS = 2, 2


def statement(depth: int) -> Equal:
    """State that LAI's kernel is the readouts' gradient product."""
    a, b, g, h = arguments(depth)
    return Equal(side_by_side(a, b) * g.dot(h), dot(_gradient(a, g), _gradient(b, h)))


def arguments(depth: int) -> tuple:
    """Name the activations of both samples, layer by layer, and their output gradients."""
    return *layers("a b", depth, width(WIDTH)), vector("g", width(OUTPUTS)), vector("h", width(OUTPUTS))


def _gradient(inputs: list[sp.Matrix], signal: sp.Matrix) -> list[sp.Expr]:
    """Differentiate ``<signal, sum_l U_l a_l>``, the loss to first order, in every entry."""
    readouts = [matrix(f"U{layer}_", width(OUTPUTS), width(WIDTH)) for layer in range(len(inputs))]
    logits = sum((U * a for U, a in zip(readouts, inputs, strict=True)), sp.zeros(width(OUTPUTS), 1))
    return [sp.diff(logits.dot(signal), entry) for U in readouts for entry in U]


STATEMENT = Statement("virtual-readout", SCOPE, statement, depths=(1, 2, 3), arguments=arguments)
MUTANTS = {
    "the printed sign": times(-1, of="lhs"),
    "counted twice": times(2, of="lhs"),
    "first layer left out": put(lambda depth: dict.fromkeys(arguments(depth)[0][0], sp.S.Zero), of="lhs"),
    "feedback squared": times(lambda depth: arguments(depth)[2].dot(arguments(depth)[3]), of="lhs"),
}


@settled("virtual-readout", STATEMENT, MUTANTS)
def prove_virtual_readout() -> None:
    """Find the gradient, then one column of it, then induct over columns and layers."""
