"""Changes of the theory that every test let pass once: a referee's thirteen, and one that seeds missed."""

from tests.mutants.mutant import Mutant

MUTANTS = {
    "take the energy of the noise on the wrong side": Mutant(
        "lai_core/propagation/_noise.py",
        "transposed_product(xp, rests, rests)",
        "xp.matmul(rests, xp.matrix_transpose(rests))",
        "test_values_by_hand.py",
    ),
    "do not square slopes": Mutant(
        "lai_core/bounds/_certificates.py",
        "xp.sum(slopes * slopes * columns, axis=-1)",
        "xp.sum(xp.abs(slopes) * columns, axis=-1)",
        "bounds/test_truncation.py",
    ),
    "order equal scores for certain": Mutant(
        "lai_core/bounds/_ranking.py",
        "xp.minimum(*ends)[:, None] > xp.maximum(*ends)[None, :]",
        "xp.minimum(*ends)[:, None] >= xp.maximum(*ends)[None, :]",
        "bounds/test_ranking.py",
    ),
    "give a kernel of zeros a certain sign": Mutant(
        "lai_core/bounds/_ranking.py",
        "low * helps > high * hurts, low * hurts > high * helps",
        "low * helps >= high * hurts, low * hurts >= high * helps",
        "bounds/test_ranking.py",
    ),
    "let negative similarities shrink the gap's bound": Mutant(
        "lai_core/bounds/_ratios.py",
        "xp.sum(xp.abs(beta_last), axis=0)",
        "xp.sum(beta_last, axis=0)",
        "bounds/test_ratios.py",
    ),
    "take the fastest decay of any sample for that of all": Mutant(
        "lai_core/assumptions/_report.py",
        "rho=xp.max(decay_rate(gradients))",
        "rho=xp.min(decay_rate(gradients))",
        "test_assumptions.py",
    ),
    "drop the bars of the relative limit": Mutant(
        "lai_core/bounds/_ratios.py",
        "xp.abs(1.0 - lli / xp.sum(xp.sum(alpha, axis=0) * beta_last, axis=0))",
        "1.0 - lli / xp.sum(xp.sum(alpha, axis=0) * beta_last, axis=0)",
        "bounds/test_ratios.py",
    ),
    "take alpha-bar of every layer": Mutant(
        "lai_core/assumptions/_report.py",
        "xp.min(found.alpha[-1, ...])",
        "xp.min(found.alpha)",
        "test_assumptions.py",
    ),
    "measure the embeddings' sign in no unit": Mutant(
        "lai_core/assumptions/_report.py",
        "-self.tolerance * self.C_a * self.C_a",
        "-self.tolerance",
        "test_values_by_hand.py",
    ),
    "let LLI win a tie": Mutant(
        "lai_core/bounds/_ratios.py", "axis=(0, 1)), 0.5)", "axis=(0, 1)), 0.0)", "bounds/test_ratios.py"
    ),
    "reverse ties": Mutant(
        "lai_core/bounds/_ranking.py",
        "approximation[:, None] < approximation[None, :]",
        "approximation[:, None] <= approximation[None, :]",
        "bounds/test_ranking.py",
    ),
    "leave the epsilon out of clipping's slope": Mutant(
        "lai_core/optimizers/_adam.py",
        "(norm + float(adam.norm_epsilon)))\n    shrink",
        "norm)\n    shrink",
        "test_values_by_hand.py",
    ),
    "clip without the epsilon": Mutant(
        "lai_core/optimizers/_adam.py",
        "active = norm + float(adam.norm_epsilon) > float(max_norm)",
        "active = norm > float(max_norm)",
        "test_values_by_hand.py",
    ),
    "call orthogonal gradients opposed": Mutant(
        "lai_core/assumptions/_report.py",
        "angles < -tolerance",
        "angles <= -tolerance",
        "test_assumptions.py",
    ),
}
