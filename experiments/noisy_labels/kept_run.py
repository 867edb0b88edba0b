"""The demo's pictures for the site, drawn from the numbers of a run that are kept beside this file."""

import io
import json
from pathlib import Path

from experiments.noisy_labels.pictures import DRAW

FOLDER = Path(__file__).parent / "kept"


def png(name: str) -> bytes:
    """Draw one of the pictures that the demo draws, from `build/noisy-labels/NAME.json` as it was."""
    numbers = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    written = io.BytesIO()
    DRAW[name](numbers).savefig(written, dpi=110)
    return written.getvalue()
