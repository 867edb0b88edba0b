"""Run examples/ray_data.py with an actor that is killed: `python -m tests.examples.killed_actor FOLDER`."""

import os
import runpy
import signal
import sys
from pathlib import Path

import lai_torch

EXAMPLE = Path(__file__).parents[2] / "examples" / "ray_data.py"


class Mortal(lai_torch.Scorer):
    """A scorer whose process gets a signal that nothing can catch when it first sees a certain sample."""

    def __call__(self, batch):
        """Score a batch, or end."""
        folder = Path(os.environ["KILLED_ACTOR"])
        if 600 in batch["uid"] and not any(folder.iterdir()):
            (folder / str(os.getpid())).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(batch)


if __name__ == "__main__":
    os.environ["KILLED_ACTOR"] = sys.argv[1]
    runpy.run_path(str(EXAMPLE))["main"](scorer=Mortal)
