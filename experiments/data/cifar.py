"""CIFAR-10 and CIFAR-100 with the labels that people gave their images (CIFAR-10N and CIFAR-100N)."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch

from experiments.data.files import find

PARTS = {
    10: ("cifar-10-batches-py", [f"data_batch_{k}" for k in range(1, 6)], ["test_batch"], b"labels"),
    100: ("cifar-100-python", ["train"], ["test"], b"fine_labels"),
}
KINDS = {
    10: ("aggre_label", "random_label1", "random_label2", "random_label3", "worse_label"),
    100: ("noisy_label",),
}
"""The labels of a release: of the majority, of single annotators, a wrong one if any is wrong."""
ARRAYS = {
    ("numpy.core.multiarray", "_reconstruct"): np._core.multiarray._reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): np._core.multiarray._reconstruct,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}
"""All that a batch's pickle may call: it holds lists and one array."""


class Arrays(pickle.Unpickler):
    """Reads a pickle of arrays, and refuses one that calls anything else."""

    def find_class(self, module: str, name: str) -> Any:
        """Return what the pickle names.

        Raises
        ------
        pickle.UnpicklingError
            If it is none of what arrays need.
        """
        if (module, name) not in ARRAYS:
            msg = f"a CIFAR batch: expected arrays and lists, got {module}.{name}; it is not the release's"
            raise pickle.UnpicklingError(msg)
        return ARRAYS[module, name]


def images(classes: int, *, test: bool, folder: Path | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return images `(n, 3, 32, 32)`, whole numbers to 255, and their right labels, as released."""
    place, training, held, key = PARTS[classes]
    found, labels = [], []
    for name in held if test else training:
        with find(f"{place}/{name}", folder).open("rb") as file:
            batch = Arrays(file, encoding="bytes").load()
        found.append(np.asarray(batch[b"data"], np.uint8).reshape(-1, 3, 32, 32))
        labels.append(np.asarray(batch[key], np.int64))
    return np.concatenate(found), np.concatenate(labels)


def human_labels(classes: int, kind: str, right: np.ndarray, folder: Path | None = None) -> np.ndarray:
    """Return the labels that people gave the training images.

    Of CIFAR-10 `aggre_label` is the majority's, `random_label1` one annotator's, `worse_label` a wrong one if
    any is wrong; CIFAR-100 has a `noisy_label`.

    Raises
    ------
    ValueError
        If the file has no such labels, or is not about these images: its clean labels are others.
    """
    path = find(f"CIFAR-{classes}_human.pt", folder)
    with torch.serialization.safe_globals([*ARRAYS.values(), np.dtypes.Int64DType, np.dtypes.Int32DType]):
        held = torch.load(path, weights_only=True)
    if kind not in held:
        msg = f"kind: expected one of {sorted(held)}, which {path} holds, got {kind!r}"
        raise ValueError(msg)
    if not np.array_equal(held["clean_label"], right):
        msg = f"{path}: expected the clean labels of CIFAR-{classes}'s images in their order, got others"
        raise ValueError(msg)
    return np.asarray(held[kind], np.int64)
