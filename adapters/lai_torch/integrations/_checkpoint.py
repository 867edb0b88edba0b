"""What a curated Trainer writes into its checkpoints."""

import os
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

FILE = "curation.pt"


class Keeping(TrainerCallback):
    """Gives each run its own curator; each checkpoint gets its state last, as a mark that it is complete."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Let go of an earlier run's curator: its model, wrapped or made anew, may be another one."""
        del args, state, control
        self.trainer._curator = None

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Write it, on one process: it is the same on all."""
        del control
        if state.is_world_process_zero:
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            torch.save(self.trainer.curation_state(), folder / f"{FILE}.new")
            os.replace(folder / f"{FILE}.new", folder / FILE)


def last_whole(output: str) -> str | None:
    """Find the latest checkpoint with a curator in it; what a run was killed at while it wrote has none."""
    found = [path.parent for path in Path(output).glob(f"checkpoint-*/{FILE}")]
    return str(max(found, key=lambda path: int(path.name.partition("-")[2]))) if found else None
