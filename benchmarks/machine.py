"""What a figure was measured on."""

import os
import platform
from importlib.metadata import version


def machine(*packages: str) -> dict[str, str | int]:
    """Return the processor, its cores, the Python and the versions of `packages`."""
    found: dict[str, str | int] = {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count() or 1,
        "system": platform.system(),
        "python": platform.python_version(),
    }
    return found | {package: version(package) for package in packages}
