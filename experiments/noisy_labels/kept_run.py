"""The demo's pictures for the site, drawn from the numbers of a run that are kept beside this file."""

import json
from pathlib import Path

from matplotlib.figure import Figure

from experiments.noisy_labels.pictures import DRAW

FOLDER = Path(__file__).parent / "kept"


def draw(name: str) -> Figure:
    """Draw one of the pictures that the demo draws, from `build/noisy-labels/NAME.json` as it was."""
    return DRAW[name](json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")))
