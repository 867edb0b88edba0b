"""Draw more from the sources that help: four sources of digits of which two have wrong labels."""

import sys

import lai_torch
import torch
from sklearn.datasets import load_digits

from lai_core.mixtures import Mixture, group_scores, group_sizes

LOSS = torch.nn.CrossEntropyLoss(reduction="none")
WRONG = (0.0, 0.1, 0.6, 1.0)  # share of random labels of each source
BATCH, MIXED_IN, PERIOD = 64, 16, 20


def keep_all(scores):
    """Weigh all samples alike: scores decide the mixture, not which samples train."""
    return torch.full_like(scores, 1 / len(scores))


def train(data, validation, moves, steps):
    """Train on a mixture whose weights follow the sources' mean scores if it `moves`."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 48), torch.nn.ReLU(), torch.nn.Linear(48, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    # `whole` scores the forward pass that it trains on; the validation summary is that of 20 steps
    curator = lai_torch.Curator(
        model, LOSS, optimizer, validation, estimator="lli", policy=keep_all, backward="whole", refresh=PERIOD
    )
    mixture = Mixture(len(WRONG))
    sampler = lai_torch.MixtureSampler(data.tensors[2], mixture, BATCH, batches=steps)
    loader = torch.utils.data.DataLoader(data, BATCH, sampler=sampler)
    seen = []
    for step, (inputs, targets, sources) in enumerate(loader, 1):
        some = torch.randint(len(validation[0]), (MIXED_IN,))
        inputs = torch.cat([inputs, validation[0][some]])
        targets = torch.cat([targets, validation[1][some]])
        report = curator.step(inputs, targets)
        seen.append((report.scores[: len(sources)], sources))  # those of the validation rows are left out
        if moves and step % PERIOD == 0:
            scores, groups = (torch.cat(column) for column in zip(*seen, strict=True))
            given = scores, groups, len(WRONG)
            mixture.step(*group_scores(*given), sizes=group_sizes(*given))
            seen.clear()
    return model, mixture.weights


def main(steps=600):
    """Return accuracies on clean images, without a moving mixture and with it."""
    torch.manual_seed(0)
    pixels, digits = (torch.tensor(part) for part in load_digits(return_X_y=True))
    pixels = (pixels / 16).float()
    training, validating, testing = torch.randperm(len(digits)).split([1200, 100, 497])
    sources = torch.arange(1200) % len(WRONG)
    wrong = torch.rand(1200) < torch.tensor(WRONG)[sources]
    labels = torch.where(wrong, torch.randint(10, (1200,)), digits[training])
    data = torch.utils.data.TensorDataset(pixels[training], labels, sources)
    found = []
    for moves in (False, True):
        model, weights = train(data, (pixels[validating], digits[validating]), moves, steps)
        found.append(float((model(pixels[testing]).argmax(1) == digits[testing]).float().mean()))
        print(f"accuracy {found[-1]:.1%}, weights", " ".join(f"{one:.2f}" for one in weights))
    return found


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
