"""Score a corpus by Ray Data, on actors of one machine or of a cluster that load a saved validation set."""

import functools
import sys
import tempfile
from pathlib import Path

import lai_torch
import pyarrow as pa
import pyarrow.compute as pc
import ray
import torch
from sklearn.datasets import load_digits

LOSS = torch.nn.CrossEntropyLoss(reduction="none")
COLUMNS = {"collate": ("pixels", "label"), "ids": "uid", "groups": "wrong"}
BATCH = 50


class Network(torch.nn.Sequential):
    """The model, as it lies in a file."""

    def __init__(self, path=None):
        super().__init__(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
        if path is not None:
            self.load_state_dict(torch.load(path, weights_only=True))


def prepare(folder):
    """Train a little on digits with 40% wrong labels; save model and validation set; return the corpus."""
    torch.manual_seed(0)
    pixels, digits = (torch.tensor(part) for part in load_digits(return_X_y=True))
    pixels = (pixels / 16).float()
    training, validating = torch.randperm(len(digits))[:1500].split([1200, 300])
    wrong = torch.rand(1200) < 0.4
    labels = torch.where(wrong, torch.randint(10, (1200,)), digits[training])
    model = Network()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(3):
        for rows in torch.randperm(1200).split(50):
            optimizer.zero_grad()
            LOSS(model(pixels[training[rows]]), labels[rows]).mean().backward()
            optimizer.step()
    torch.save(model.state_dict(), folder / "model.pt")
    lai_torch.Scorer(model, LOSS, (pixels[validating], digits[validating])).save(folder / "validation")
    columns = {"uid": range(1200), "pixels": pixels[training].tolist(), "label": labels.tolist()}
    return pa.table({**columns, "wrong": wrong.tolist()})


def on_actors(made, corpus, actors):
    """Score the corpus on so many actors; return the table, in the order of the corpus."""
    ray.init(num_cpus=actors, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    data = ray.data.from_arrow([corpus.slice(start, BATCH) for start in range(0, len(corpus), BATCH)])
    scores = data.map_batches(
        lai_torch.Scorer,
        fn_constructor_args=made,
        fn_constructor_kwargs=COLUMNS,
        batch_size=BATCH,
        compute=ray.data.ActorPoolStrategy(size=actors),
    )
    table = pa.concat_tables(ray.get(scores.to_arrow_refs())).sort_by("id")
    ray.shutdown()
    return table


def main(actors=2):
    """Score the corpus on several actors and on one process; return both tables."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpus = prepare(folder)
        made = functools.partial(Network, folder / "model.pt"), LOSS, folder / "validation"
        table = on_actors(made, corpus, actors)
        torch.set_num_threads(1)  # as an actor has
        alone = map(lai_torch.Scorer(*made, **COLUMNS), corpus.to_batches(BATCH))
        expected = pa.Table.from_batches(alone)
    harmful = table.filter(pc.field("score") < 0.0)
    wrong = sum(harmful["group"].to_pylist()) / len(harmful)
    print(f"{len(harmful)} harmful samples, {wrong:.0%} of them with a wrong label")
    print(
        f"tables of 1 process and {actors} actors are", "the same" if table.equals(expected) else "different"
    )
    return table, expected


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
