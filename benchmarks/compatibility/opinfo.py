"""torch's own catalogue of operations: each makes a weight, lies on the data path, and holds parameters."""

import importlib
from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import torch

from benchmarks.compatibility.around import attempt
from benchmarks.compatibility.forms import Operation, operation_of

DTYPE = torch.float64


def cases(group: str) -> Iterator[tuple[str, str, Any]]:
    """Yield the suite, the name and a function that judges, for every sample of one operation."""
    op = groups()[group]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        samples = list(op.sample_inputs("cpu", DTYPE, requires_grad=True))
    for number, sample in enumerate(samples):
        name, operation = f"{group}#{number}", _operation(op, sample)
        yield "opinfo-weight", name, partial(attempt, operation, "weight")
        yield "opinfo-data", name, partial(attempt, operation, "data")
        several = len(operation.arguments)
        if several > 1:
            yield "opinfo-parameters", name, partial(attempt, operation, "own", range(1, several))
            yield "opinfo-parameters", f"{name}r", partial(attempt, operation, "own", (0,))


@cache
def groups() -> dict[str, Any]:
    """Return the differentiable operations by name."""
    op_db = importlib.import_module("torch.testing._internal.common_methods_invocations").op_db
    return {
        f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name: op
        for op in op_db
        if op.supports_autograd and DTYPE in op.dtypes
    }


def _operation(op: Any, sample: Any) -> Operation:
    def call(first: Any, args: Any, kwargs: Any) -> Any:
        return sample.output_process_fn_grad(op.gradcheck_wrapper(op.op, first, *args, **kwargs))

    return operation_of(call, (sample.input, sample.args, sample.kwargs))
