"""How often the intervals of scores hold, and what is dropped by the noise of a validation set alone."""

import torch
from torch import Tensor

import lai_core as lai
from experiments.figures import kept
from experiments.figures.networks import digits, perceptron, trace, train

DRAWS, VALIDATION, PARTS, RATE = 200, 128, 16, 0.1


def study(draws: int = DRAWS, steps: int = 300) -> dict[str, dict[str, float]]:
    """Draw validation sets from a pool that stands for all samples; LAI scores of 256 training samples."""
    training, pool = digits()
    model = perceptron((64, 32, 32, 10))
    train(model, training, steps)
    batch = training[0][:256], training[1][:256]
    kernel = lai.lai_kernel(trace(model, pool, "output"), trace(model, batch, "output")).double()
    mean, bound = kernel.mean(0), kernel.abs().amax(0)
    generator = torch.Generator().manual_seed(0)
    found: dict[str, list[tuple[float, float]]] = {}
    for _ in range(draws):
        rows = kernel[torch.randint(len(kernel), (VALIDATION,), generator=generator)]
        parts = rows.reshape(PARTS, -1, rows.shape[1]).sum(1)
        for name, (values, options) in {
            f"normal, {PARTS} parts": (parts, {}),
            "normal, every sample": (rows, {}),
            "empirical Bernstein, every sample": (rows, {"bound": bound}),
        }.items():
            low, high = lai.score_intervals(values, **options)
            target = VALIDATION * mean
            held = ((low <= target) & (target <= high)).double().mean()
            found.setdefault(name, []).append((float(held), float((high - low).median())))
        for name, weights in {
            "`keep_positive`": lai.keep_positive(rows.sum(0)),
            f"`drop_harmful`, {PARTS} parts": lai.drop_harmful(parts, rate=RATE),
            "`drop_harmful`, every sample": lai.drop_harmful(rows, rate=RATE),
            "`drop_harmful`, every sample, `positive`": lai.drop_harmful(
                rows, rate=RATE, dependence="positive"
            ),
        }.items():
            found.setdefault(name, []).append(dropped(weights, mean))
    return {name: _means(name, of) for name, of in found.items()}


def dropped(weights: Tensor, mean: Tensor) -> tuple[float, float]:
    """Return the share of harmful samples that are dropped, and the share of the dropped that do no harm."""
    gone = weights == 0
    wrong = float((gone & (mean >= 0)).sum()) / max(int(gone.sum()), 1)
    return float(gone[mean < 0].double().mean()), wrong


def _means(name: str, pairs: list[tuple[float, float]]) -> dict[str, float]:
    first, second = (sum(values) / len(pairs) for values in zip(*pairs, strict=True))
    if name.startswith("`"):
        return {"harmful dropped": first, "harmless among dropped": second}
    return {"held": first, "width": second}


def table() -> str:
    """Write the committed record as two tables in markdown."""
    found = kept.read("error_bars")
    narrow = min(row["width"] for row in found.values() if "width" in row)
    lines = ["| 95% interval | holds the mean | width, the narrowest = 1 |", "|---|---|---|"]
    lines += [
        f"| {name} | {row['held']:.1%} | {row['width'] / narrow:.2f} |"
        for name, row in found.items()
        if "held" in row
    ]
    lines += [
        "",
        f"| policy (`rate={RATE}`) | of the harmful, dropped | of the dropped, harmless |",
        "|---|---|---|",
    ]
    lines += [
        f"| {name} | {row['harmful dropped']:.1%} | {row['harmless among dropped']:.1%} |"
        for name, row in found.items()
        if "held" not in row
    ]
    return "\n".join(lines)
