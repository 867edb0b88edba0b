"""The smallest constants with which A1, A2, A3 and the non-expansive variant of A3 hold."""

from jaxtyping import Float

from lai_core._engine.namespace import Array, xp_of
from lai_core._theory.algebra import quotient
from lai_core._theory.arrays import checked


@checked
def decay_rate(norms: Float[Array, "L n"], /) -> Float[Array, " n"]:
    r"""Find the smallest rho with which A1 holds for each sample.

    Implements :eq:`gradient-norm-decay`:
    :math:`\|g^{(l)}\| \le \rho^{L-l}\|g^{(L)}\|` for every l holds from
    :math:`\rho = \max_{l<L} (\|g^{(l)}\| / \|g^{(L)}\|)^{1/(L-l)}` on.

    Satisfied by: chains with :math:`\norm{W^{(t)}}_2 \le \rho` for :math:`t \ge 2` and
    :math:`|\phi^\prime| \le 1`. Violated by: a residual block whose branch is 0, and an orthogonal layer:
    norms are equal, and :math:`\rho < 1` is asked. Arguments: :mod:`lai_core.assumptions`.

    Returns
    -------
    array
        At least 0; A1 as printed asks for less than 1. 0 where there is one layer only or nothing flows
        back, infinite where a lower gradient lives and the last one is 0.

    Examples
    --------
    >>> import numpy as np
    >>> from lai_core.assumptions import decay_rate
    >>> decay_rate(np.array([[0.25], [0.25], [1.0]]))
    array([0.5])
    """
    return xp_of(norms).max(layer_rates(norms), axis=0)


@checked
def activation_bound(norms: Float[Array, "L n"], /) -> Float[Array, ""]:
    r"""Find the smallest constant with which A2 holds: the largest norm of a layer's input.

    Implements :eq:`bounded-activations`: :math:`|\alpha^{(l)}_{zj}| \le C_a^2` follows, by Cauchy and
    Schwarz.

    Satisfied by: any finite set of samples. Violated by: inputs from a law without a bound, such as the
    normal one.

    Parameters
    ----------
    norms
        Norms of the layers' inputs, those of both batches joined.

    Returns
    -------
    array
        C_a, in units of activations.
    """
    return xp_of(norms).max(norms)


@checked
def cosines(
    beta: Float[Array, "L n_val n_train"],
    validation_norms: Float[Array, "L n_val"],
    training_norms: Float[Array, "L n_train"],
    /,
) -> Float[Array, "L n_val n_train"]:
    """Return the cosine of every pair's output gradients, layer by layer; 0 where one of them is 0.

    Arguments: :mod:`lai_core.assumptions`.
    """
    return quotient(xp_of(beta), beta, validation_norms[:, :, None] * training_norms[:, None, :], 0.0)


@checked
def smallest_cosine(cosines: Float[Array, "L n_val n_train"], /) -> Float[Array, ""]:
    r"""Return the smallest cosine over layers and pairs: A3 holds where it is not negative.

    Implements :eq:`non-negative-alignment`. With non-negative embedding similarities A3 gives every
    score of Ghost and of LAI one sign, so that selecting by sign then keeps everything.

    Satisfied by: every pair :math:`z = j`. Violated by: two samples with different labels under a softmax of
    two classes: the cosine at the last layer is :math:`-1`. Arguments: :mod:`lai_core.assumptions`.
    """
    return xp_of(cosines).min(cosines)


@checked
def alignment_excess(cosines: Float[Array, "L n_val n_train"], /) -> Float[Array, ""]:
    r"""Return the largest excess of a lower layer's cosine over the last one's: 0 if non-expansive.

    Implements :eq:`non-expansive`:
    :math:`\cos(g^{(l)}_z, g^{(l)}_j) \le \cos(g^{(L)}_z, g^{(L)}_j)` for every l.

    Satisfied by: backward passes that are scaled isometries, with equality, and every pair :math:`z = j`.
    Violated by: :math:`g = (1, 1)` and :math:`(1, -1)` below a layer with :math:`W^\top =
    \operatorname{diag}(1, 0)`: the cosine rises from 0 to 1. Arguments: :mod:`lai_core.assumptions`.
    """
    return xp_of(cosines).max(cosines - cosines[-1:, ...])


def layer_rates(norms: Float[Array, "L n"]) -> Float[Array, "L n"]:
    """Return (norm of layer l / norm of layer L)^(1/(L-l)), what A1 asks of rho; nothing, 0, at l = L."""
    xp, depth, last = xp_of(norms), int(norms.shape[0]), norms[-1, ...]
    rates = [xp.zeros_like(last)]
    for layer in range(depth - 2, -1, -1):
        norm = norms[layer, ...]
        alive = quotient(xp, norm, last, 0.0) ** (1.0 / (depth - 1 - layer))
        broken = xp.where(norm > 0, xp.full_like(last, float("inf")), xp.zeros_like(last))
        rates.insert(0, xp.where(last > 0, alive, broken))
    return xp.stack(rates)
