"""Run programs under `torch.compile(fullgraph=True)`; a script, so that no test machinery is traced."""

import sys

import numpy as np
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from tests.support.programs import PROGRAMS, SHAPES


def main(name: str) -> None:
    """Compile one program, run it on two batches, and compare numbers and compilations."""
    program = PROGRAMS[name]
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(program, fullgraph=True, backend=counter, dynamic=False)
    for seed in (0, 1):
        generator = np.random.default_rng(seed)
        arrays = [torch.from_numpy(generator.normal(size=shape)) for shape in SHAPES]
        torch.testing.assert_close(compiled(*arrays), program(*arrays), rtol=1e-10, atol=1e-12)
    if counter.frame_count != 1:
        sys.exit(f"{name}: expected one compilation, got {counter.frame_count}")


if __name__ == "__main__":
    for each in sys.argv[1:]:
        main(each)
        print(f"{each}: same numbers, compiled once")
