r"""Gate-corrected LAI: what one forward pass knows of the layers' gains, pair by pair.

Ghost's similarity shrinks or grows on its way down, :math:`\beta^{(t)} = \sum_i \phi'(s^{(t)}_{z,i})
\phi'(s^{(t)}_{j,i})\, (W^{(t+1)}_{:,i} \cdot g^{(t+1)}_z)(W^{(t+1)}_{:,i} \cdot g^{(t+1)}_j)`. Where
the columns of W point in no preferred direction, each product of projections is
:math:`\|W_{:,i}\|^2 \beta^{(t+1)} / d_{t+1}` on average, which needs no backward pass:
:math:`\beta^{(t)} \approx \gamma_t \beta^{(t+1)}`. Plain LAI sets every :math:`\gamma_t` to 1.

The functions take what a model's forward pass can record beside a trace: the derivatives
:math:`\phi'(s^{(t)})` of every layer but the last, `(n, d_t)`, and of the weights only the squared
norms of the columns of every matrix but the first, `(d_t,)`.
"""

from lai_core.estimators.gates._inputs import (
    GateTrace,
    gate_factors,
    relu_gates,
    squared_column_norms,
)
from lai_core.estimators.gates._kernel import gate_lai_kernel, gate_lai_scores

__all__ = [
    "GateTrace",
    "gate_factors",
    "gate_lai_kernel",
    "gate_lai_scores",
    "relu_gates",
    "squared_column_norms",
]
