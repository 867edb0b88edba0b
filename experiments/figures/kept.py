"""The numbers of the figures that train: a committed record, which the pages of the documentation read.

`python -m experiments figures` measures them anew.
"""

import json
from pathlib import Path
from typing import Any

RECORD = Path(__file__).with_suffix(".json")


def read(name: str) -> Any:
    """Return the numbers of one figure."""
    return json.loads(RECORD.read_text(encoding="utf-8"))[name]


def write(found: dict[str, Any]) -> None:
    """Write the numbers of every figure."""
    RECORD.write_text(json.dumps(found, indent=1, allow_nan=False) + "\n", encoding="utf-8")
