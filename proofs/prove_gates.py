r"""Gate-corrected LAI: the mean over column directions.

A layer's similarity is ``sum_i s_i t_i <W_i, g> <W_i, h>``, with W_i the columns above it
and s, t the slopes of both samples. If a column points in no preferred direction,
``E W_i W_i' = (|W_i|^2 / d) I`` with d its length, and each summand is ``s_i t_i |W_i|^2 / d <g, h>`` on
average. Numbers try the directions of all axes, either way, for one step. That the factors multiply over any
number of independent layers is the kernel's theorem, ``Moments.gate_corrected``.
"""

import sympy as sp

from proofs._harness import Equal, Statement, settled, width
from proofs._rewrites import each, every, put, times
from proofs._symbols import dot, total, vector

UNITS = 2


def mean_over_directions_arguments(depth: int) -> tuple:
    """Name the columns' lengths, both samples' slopes, and their gradients above."""
    return *(vector(name, width(UNITS)) for name in "rst"), vector("g", depth), vector("h", depth)


def mean_over_directions(depth: int) -> Equal:
    """State the mean similarity; ``depth`` is the length of the columns."""
    sizes, slopes, others, g, h = mean_over_directions_arguments(depth)
    axes = [sign * sp.eye(depth)[:, k] for k in range(depth) for sign in (1, -1)]
    units = list(zip(sizes, slopes, others, strict=True))
    average = total(s * t * (r * axis).dot(g) * (r * axis).dot(h) for r, s, t in units for axis in axes)
    return Equal(average / len(axes), dot(sizes, sizes, slopes, others) / depth * g.dot(h))


MEAN = Statement(
    "gate-corrected",
    "one gate step: columns of any length and number, without preferred direction",
    mean_over_directions,
    depths=(1, 2, 3),
    arguments=mean_over_directions_arguments,
)
MEAN_MUTANTS = {
    "over the number of columns": times(lambda depth: sp.Rational(depth, width(UNITS))),
    "norms not squared": put(lambda depth: {r**2: r for r in vector("r", width(UNITS))}),
    "one sample's slopes twice": put(
        lambda depth: dict(zip(vector("t", width(UNITS)), vector("s", width(UNITS)), strict=True))
    ),
    "slopes left out": every(each("s", 1), each("t", 1)),
}


@settled("gate-corrected", MEAN, MEAN_MUTANTS)
def prove_gate_corrected() -> None:
    """Take one column of symbolic length; add columns; add layers."""
