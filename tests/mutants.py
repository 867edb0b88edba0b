"""Change `lai_core` in one place and show that the suite sees it: `python -m tests.mutants`.

Each mutant is a copy of the project with one text replaced; the tests named beside it, run on that
copy, must fail, and on an unchanged copy pass.
"""

import multiprocessing
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CORE = "tests/core"

# What takes long to import is imported once: every run of pytest is forked from a process that has it.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["array_api_strict", "beartype", "hypothesis", "jax", "numpy", "torch"])


@dataclass(frozen=True)
class Mutant:
    """One change: in `file`, `old` becomes `new`; `tests` must see it."""

    file: str
    old: str
    new: str
    tests: str

    def apply(self, project: Path) -> None:
        """Change the copy.

        Raises
        ------
        LookupError
            If the text to change is not there exactly once: the mutant is out of date.
        """
        path = project / self.file
        text = path.read_text()
        if text.count(self.old) != 1:
            msg = f"{self.file}: expected {self.old!r} once, found it {text.count(self.old)} times"
            raise LookupError(msg)
        path.write_text(text.replace(self.old, self.new))


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
        "summary = one if summary is None else summary + one",
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
        "while entries(rows, columns) * size > self.memory_budget:",
        "while False:",
        "estimators/test_contraction.py",
    ),
    "ignore the budget of samples": Mutant(
        "lai_core/_engine/gradients.py",
        "return min(most, self.memory_budget // needed)",
        "return most",
        "estimators/test_contraction.py",
    ),
    "ignore the budget of a summed gradient": Mutant(
        "lai_core/_engine/outer.py",
        "if needed <= work.memory_budget:",
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
        "taken = (rank < kept) & xp.isfinite(scores)",
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


def survives(mutant: Mutant | None, tests: str) -> bool:
    """Whether `tests`, on the numpy backend and on what names none, pass on a copy with the mutant."""
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder)
        ignored = shutil.ignore_patterns("__pycache__")
        for part in ("lai_core", "tests"):
            shutil.copytree(ROOT / part, project / part, ignore=ignored)
        shutil.copy(ROOT / "pyproject.toml", project)
        if mutant is not None:
            mutant.apply(project)
        said = project / "said"
        process = FORKS.Process(target=_run, args=(project, tests, said))
        process.start()
        process.join()
        if process.exitcode not in (0, 1):  # 1 is a failed test; anything else says nothing about the mutant
            msg = f"{tests}: pytest ended with {process.exitcode}:\n{said.read_text()[-4000:]}"
            raise RuntimeError(msg)
        return process.exitcode == 0


def _run(project: Path, tests: str, said: Path) -> None:
    """Run tests of the copy, in a process of its own."""
    with said.open("w") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    os.chdir(project)
    os.environ["HYPOTHESIS_PROFILE"] = "dev"
    os.environ.pop("PYTEST_XDIST_WORKER", None)
    sys.path.insert(0, str(project))
    for name in [name for name in sys.modules if name.partition(".")[0] in {"lai_core", "tests"}]:
        del sys.modules[name]  # those of the copy are meant
    arguments = ["-x", "-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    arguments += [f"{CORE}/{tests}", "-k", "not torch and not jax and not strict"]
    sys.exit(int(pytest.main(arguments)))


if __name__ == "__main__":
    survivors = []
    for name, each in MUTANTS.items():
        survivors += [name] if survives(each, each.tests) else []
        print(f"{'SURVIVED' if name in survivors else 'caught  '}  {name}")
    sys.exit(f"{len(survivors)} mutants survived" if survivors else 0)
