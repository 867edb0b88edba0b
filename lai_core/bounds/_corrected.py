"""Bounds that hold where the appendix prints others: for LLI, for absolute cosines, without alignment."""

from lai_core._engine.namespace import xp_of
from lai_core._theory.arrays import Constant, Kernel, Kernels, Scores, TrainingNorms, ValidationNorms, checked
from lai_core.bounds._printed import conservative_bound, decay_powers, geometric_sum


@checked
def sharp_conservative_bound(
    beta_last: Kernel,
    validation_norms: ValidationNorms,
    training_norms: TrainingNorms,
    /,
    *,
    rho: Constant,
    C_a: Constant,
    depth: int,
) -> Scores:
    r"""Bound the gap between Ghost and LAI under A1, A2 and A3 as tightly as these allow.

    Implements :eq:`conservative-sharp`: :math:`C_a^2 \sum_z \sum_{l<L} \max(\beta^{(L)}_{zj},\,
    \rho^{2(L-l)} \|g^{(L)}_z\| \|g^{(L)}_j\| - \beta^{(L)}_{zj})`, never above the printed bound:
    :math:`\beta^{(l)}` lies between 0 and the decayed norms, and is farthest from :math:`\beta^{(L)}` at
    one of these ends.

    Arguments: :mod:`lai_core.bounds`.
    """
    xp = xp_of(beta_last)
    products = validation_norms[:, None] * training_norms[None, :]
    total = xp.zeros_like(beta_last)
    for power in decay_powers(rho=rho, depth=depth)[:-1]:
        total = total + xp.maximum(beta_last, power * products - beta_last)
    return C_a * C_a * xp.sum(total, axis=0)


@checked
def aligned_similarity_bound(beta_last: Kernel, /, *, rho: Constant, depth: int) -> Kernels:
    r"""Bound every layer's gradient similarity by the last layer's.

    Implements :eq:`alignment-decay`: :math:`|\beta^{(l)}_{zj}| \le \rho^{2(L-l)} |\beta^{(L)}_{zj}|` under
    A1, if no lower layer's cosine exceeds the last one's in absolute value. The paper has no bars
    on the cosines (:eq:`alignment-implies-decay`), and needs A3 at the last layer in their place.

    Arguments: :mod:`lai_core.bounds`.
    """
    xp = xp_of(beta_last)
    size = xp.abs(beta_last)
    return xp.stack([power * size for power in decay_powers(rho=rho, depth=depth)])


@checked
def lli_gap_bound(beta_last: Kernel, /, *, rho: Constant, C_a: Constant, depth: int) -> Scores:
    r"""Bound the gap between Ghost and LLI.

    Implements :eq:`lli-gap`: :math:`|\mathrm{Ghost} - \mathrm{LLI}| \le C_a^2 \sum_z |\beta^{(L)}_{zj}|
    \sum_{k=1}^{L-1} \rho^{2k}` under A1 and A2, if no lower layer's cosine exceeds the last one's in
    absolute value. Under A3 it is the right-hand side that the paper prints for LAI.

    Arguments: :mod:`lai_core.bounds`.
    """
    xp = xp_of(beta_last)
    return C_a * C_a * xp.sum(xp.abs(beta_last), axis=0) * geometric_sum(rho=rho, depth=depth)


@checked
def lli_relative_bound(*, rho: Constant, C_a: Constant, alpha_bar: Constant, depth: int) -> Constant:
    r"""Bound the gap between Ghost and LLI, divided by LLI: what the paper prints for LAI.

    Implements :eq:`lli-relative-gap` and :eq:`app-rel-gap`: :math:`\frac{C_a^2}{\bar\alpha}
    \sum_{k=1}^{L-1} \rho^{2k}` under A1, A2, A3 and non-expansive alignment, with
    :math:`0 < \bar\alpha \le \alpha^{(L)}_{zj}` and :math:`\sum_z \beta^{(L)}_{zj} > 0`. The paper prints it
    as a bound on LAI's relative error, which it is not: that does not vanish with rho (`relative_limit`).

    Arguments: :mod:`lai_core.bounds`.

    Returns
    -------
    float or array
        Of the kind of the constants; of order rho squared.
    """
    return C_a * C_a / alpha_bar * geometric_sum(rho=rho, depth=depth)


@checked
def lli_gap_bound_without_alignment(
    validation_norms: ValidationNorms,
    training_norms: TrainingNorms,
    /,
    *,
    rho: Constant,
    C_a: Constant,
    depth: int,
) -> Scores:
    r"""Bound the gap between Ghost and LLI under A1 and A2 alone.

    Implements :eq:`gap-without-alignment`: :math:`C_a^2 \|g^{(L)}_j\| \sum_z \|g^{(L)}_z\|
    \sum_{k=1}^{L-1} \rho^{2k}`, the sum over layers of `norm_product_bound`.

    Arguments: :mod:`lai_core.bounds`.
    """
    lengths = xp_of(training_norms).sum(validation_norms) * training_norms
    return C_a * C_a * lengths * geometric_sum(rho=rho, depth=depth)


@checked
def lai_gap_bound_without_alignment(
    beta_last: Kernel,
    validation_norms: ValidationNorms,
    training_norms: TrainingNorms,
    /,
    *,
    rho: Constant,
    C_a: Constant,
    depth: int,
) -> Scores:
    r"""Bound the gap between Ghost and LAI under A1 and A2 alone.

    Implements :eq:`gap-without-alignment`: :math:`C_a^2 \sum_z [(L-1) |\beta^{(L)}_{zj}| +
    \|g^{(L)}_z\| \|g^{(L)}_j\| \sum_{k=1}^{L-1} \rho^{2k}]`: `conservative_bound` with bars.

    Arguments: :mod:`lai_core.bounds`.
    """
    size = xp_of(beta_last).abs(beta_last)
    return conservative_bound(size, validation_norms, training_norms, rho=rho, C_a=C_a, depth=depth)
