"""What tests of scored data sets are built on: a network by a seed, samples by name."""

import lai_torch
import torch

from tests.lai_torch import support
from tests.lai_torch.support import LOSS

NAMES = [f"{'ab'[number % 2]}{number}" for number in range(20)]
COLUMNS = {"collate": ("x", "y"), "ids": "uid", "groups": "kind", "batch_size": 7, "rows_per_file": 8}


def network(seed=0):
    torch.manual_seed(seed)
    return support.network()


def scored(folder, data, validation, model=None, loss=LOSS, **options):
    model = network() if model is None else model
    found = lai_torch.score_dataset(model, loss, data, validation, folder, progress=False, **options)
    return found.to_pydict()


def items(data, names):
    """Return samples as dictionaries, by a name each; its first letter is the group."""
    fields = zip(names, data[0].tolist(), data[1].tolist(), strict=True)
    return [{"uid": uid, "x": x, "y": y, "kind": uid[0]} for uid, x, y in fields]
