"""Changes of the engine, the records and the estimators."""

from tests.mutants.mutant import Mutant

MUTANTS = {
    "drop a sign": Mutant(
        "lai_core/_engine/pairs.py",
        "product = xp.sum(alpha * products(self.rows, training.rows), axis=0)  # over groups",
        "product = -xp.sum(alpha * products(self.rows, training.rows), axis=0)  # over groups",
        "estimators/test_exactness.py",
    ),
    "drop the bias of Ghost": Mutant(
        "lai_core/records/dense.py",
        '"bias": VectorGradient(sum_positions(work, self.output_gradients))}',
        '"bias": VectorGradient(0 * sum_positions(work, self.output_gradients))}',
        "estimators/test_exactness.py",
    ),
    "drop the bias of LAI": Mutant(
        "lai_core/estimators/_parameters.py",
        "        if not layer.has_readout_bias:",
        "        if True:",
        "estimators/test_exactness.py",
    ),
    "count a readout bias once under flatten": Mutant(
        "lai_core/estimators/_positions.py",
        'if positions != "flatten" or array.ndim == 2:',
        "if True:",
        "estimators/test_exactness.py",
    ),
    "drop a layer of LAI": Mutant(
        "lai_core/estimators/_parameters.py",
        "    for index, layer in enumerate(trace.layers):\n        read =",
        "    for index, layer in enumerate(trace.layers[1:] or trace.layers):\n        read =",
        "estimators/test_exactness.py",
    ),
    "drop the cross terms of a shared matrix": Mutant(
        "lai_core/estimators/_parameters.py",
        'matrix = ("layer", index) if layer.weight is None else ("weight", layer.weight)',
        'matrix = ("layer", index)',
        "estimators/test_exactness.py",
    ),
    "swap the first and the last beta": Mutant(
        "lai_core/estimators/_parameters.py",
        "output_gradients = last.output_gradients\n    if",
        "output_gradients = trace.layers[0].output_gradients\n    if",
        "estimators/test_exactness.py",
    ),
    "take the first layer for the last": Mutant(
        "lai_core/estimators/_parameters.py",
        "last = trace.layers[-1]",
        "last = trace.layers[0]",
        "estimators/test_exactness.py",
    ),
    "ignore layer weights": Mutant(
        "lai_core/estimators/_parameters.py",
        "scale = 1.0 if readout_scales is None else readout_scales[index]",
        "scale = 1.0",
        "estimators/test_exactness.py",
    ),
    "sum positions where the mean is asked": Mutant(
        "lai_core/estimators/_positions.py",
        " * (1.0 / number_of_positions(array))",
        "",
        "estimators/test_exactness.py",
    ),
    "multiply means in a summary": Mutant(
        "lai_core/_engine/outer.py",
        "product = matmul(xp, rows, by_group(block, chunk, self.groups, work))",
        "product = matmul(xp, xp.mean(rows, axis=2, keepdims=True), "
        "xp.sum(by_group(block, chunk, self.groups, work), axis=1, keepdims=True))",
        "estimators/test_summaries.py",
    ),
    "forget the earlier parts of a stream": Mutant(
        "lai_core/estimators/summaries.py",
        "summary = one if summary is None else joined_summaries([summary, one], memory_budget)",
        "summary = one",
        "estimators/test_summaries.py",
    ),
    "leave the diagonal in": Mutant(
        "lai_core/estimators/_sides.py",
        "return scores - estimators.diagonal(self.validation, self.training, self.work)",
        "return scores",
        "estimators/test_exactness.py",
    ),
    "mix the groups": Mutant(
        "lai_core/records/dense.py",
        "OuterGradient(rows, (columns,), groups=self.groups)",
        "OuterGradient(rows, (columns,))",
        "estimators/test_exactness.py",
    ),
    "precondition twice": Mutant(
        "lai_core/estimators/preconditioned.py",
        "** (-float(exponent))",
        "** (-2 * float(exponent))",
        "estimators/test_preconditioned.py",
    ),
    "forget the decay": Mutant(
        "lai_core/estimators/preconditioned.py",
        "return kept * float(decay) + mean",
        "return kept + mean",
        "estimators/test_preconditioned.py",
    ),
    "ignore the budget of a kernel": Mutant(
        "lai_core/_engine/gradients.py",
        "while not self.holds(entries(rows, columns)):",
        "while False:",
        "estimators/test_contraction.py",
    ),
    "ignore the budget of samples": Mutant(
        "lai_core/_engine/gradients.py",
        "return min(most, self.memory_budget // self.budget_of(entries))",
        "return most",
        "estimators/test_contraction.py",
    ),
    "ignore the budget of a summed gradient": Mutant(
        "lai_core/_engine/outer.py",
        "if work.holds(needed):",
        "if True:",
        "estimators/test_contraction.py",
    ),
    "drop layer weights of built gradients": Mutant(
        "lai_core/_engine/pairs.py",
        "product = scaled(matmul(xp, own, xp.matrix_transpose(other)), scale)",
        "product = matmul(xp, own, xp.matrix_transpose(other))",
        "estimators/test_exactness.py",
    ),
    "drop layer weights of self scores": Mutant(
        "lai_core/_engine/pairs.py",
        "product = scaled(xp.sum(own * other, axis=-1), scale)",
        "product = xp.sum(own * other, axis=-1)",
        "estimators/test_exactness.py",
    ),
    "give the second half the weights of the first": Mutant(
        "lai_core/_engine/outer.py",
        "(self.scales[:middle], self.scales[middle:])",
        "(self.scales[:middle], self.scales[:middle])",
        "estimators/test_exactness.py",
    ),
    "take the validation side's positions for both": Mutant(
        "lai_core/_engine/pairs.py",
        "t, u = self.positions, training.positions\n        if t == u == 1:",
        "t = u = self.positions\n        if t == u == 1:",
        "estimators/test_exactness.py",
    ),
    "take one group twice": Mutant(
        "lai_core/_engine/outer.py",
        "self._group_range(slice(cut, self.groups))",
        "self._group_range(slice(0, cut))",
        "estimators/test_exactness.py",
    ),
    "sum positions in half precision": Mutant(
        "lai_core/_engine/positions.py",
        "work.xp.sum(array, axis=1, dtype=work.dtype)",
        "cast(work.xp, work.xp.sum(array, axis=1), work.dtype)",
        "estimators/test_precision.py",
    ),
    "square in half precision": Mutant(
        "lai_core/estimators/preconditioned.py",
        "gradients = cast(xp, output_gradients, accumulation_dtype(xp, output_gradients.dtype))",
        "gradients = output_gradients",
        "estimators/test_precision.py",
    ),
    "add summaries of different positions": Mutant(
        "lai_core/estimators/summaries.py",
        'for what in ("estimator", "positions"):',
        'for what in ("estimator",):',
        "test_bad_input.py",
    ),
    "always multiply pairs": Mutant(
        "lai_core/_engine/gradients.py",
        "if validation.total_cost() + training.total_cost() <= validation.pairwise_cost(training):",
        "if False:",
        "estimators/test_contraction.py",
    ),
    "accumulate in half precision": Mutant(
        "lai_core/_engine/namespace.py",
        "xp.float32 if is_half(dtype) else dtype",
        "dtype",
        "estimators/test_precision.py",
    ),
    "keep what hurts": Mutant(
        "lai_core/estimators/policies/_weights.py",
        "xp.astype(values > 0,",
        "xp.astype(values < 0,",
        "estimators/test_policies.py",
    ),
    "keep what is not finite": Mutant(
        "lai_core/estimators/policies/_weights.py",
        "taken = (rank < kept) & (values > -math.inf)",
        "taken = rank < kept",
        "estimators/test_policies.py",
    ),
    "keep one sample too few": Mutant(
        "lai_core/estimators/policies/_weights.py",
        "taken = (rank < kept)",
        "taken = (rank < kept - 1)",
        "estimators/test_policies.py",
    ),
    "forget the signs of a sketch": Mutant(
        "lai_core/estimators/sketches/_variance.py",
        "cast(xp, rows[part, ...], work.dtype) * signs",
        "cast(xp, rows[part, ...], work.dtype)",
        "estimators/test_sketches.py",
    ),
    "leave transposed pairs out of a sketch's variance": Mutant(
        "lai_core/estimators/sketches/_variance.py",
        "for a, b, c, d in (square, crossed):",
        "for a, b, c, d in (square,):",
        "estimators/test_sketches.py",
    ),
    "forget that the last group of a sketch is smaller": Mutant(
        "lai_core/estimators/sketches/_variance.py",
        "(full * size * (size - 1) + rest * (rest - 1))",
        "(outputs * (size - 1))",
        "estimators/test_sketches.py",
    ),
    "drop the cross terms of a tied table": Mutant(
        "lai_core/records/_table.py",
        "kernel = kernel + read.with_outer(layer, work)",
        "del layer",
        "records/test_trace_kinds.py",
    ),
    "lose the runs of an id that are longer than two": Mutant(
        "lai_core/records/_table.py", "    while k < ids.shape[0]:", "    if True:", "records/test_tables.py"
    ),
    "let ids outside the table train": Mutant(
        "lai_core/records/_table.py",
        "trains = (ids >= 0) & (ids < self.rows)",
        "trains = ids == ids",
        "records/test_tables.py",
    ),
    "compare rows of different weights as if they were equal": Mutant(
        "lai_core/influence/_ownership.py",
        "left = second - once * xp.expand_dims(weights, axis=1)",
        "left = second - once",
        "influence/test_ownership.py",
    ),
    "skip a check": Mutant(
        "lai_core/records/compatible.py",
        "            if wanted.get(what) != given.get(what):",
        "            if False:",
        "test_bad_input.py",
    ),
}
