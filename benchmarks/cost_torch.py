"""What a curated step costs beside a plain one: operations, seconds, peak bytes, all in one run.

Operations: `torch.utils.flop_counter` (products and convolutions). Peak bytes: a dispatch mode that
follows every storage an operation makes until it is freed, plus what lives before the step.
"""

import functools
import json
import platform
import statistics
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lai_torch
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry
from torch.utils.weak import WeakIdKeyDictionary

import lai_core as lai
from benchmarks.torch_models import classification, labels, next_token, resnet18

OUT = Path("build/cost-torch.json")
HALF = functools.partial(lai.keep_top, fraction=0.5)
BOUNDS = {
    ("resnet18", "lai_cached", "flops_ratio"): 0.86,
    ("resnet18", "lai_fresh", "flops_ratio"): 1.53,
    ("resnet18", "lai_cached", "memory_ratio"): 1.05,
    ("bert_small", "lai_selective", "flops_ratio"): 0.72,
    ("gpt_neo_small", "lai_selective", "flops_ratio"): 0.72,
}
SCORING_BOUND = 1.05
"""Scoring a batch from a cached summary over one forward pass, in operations."""


@dataclass(frozen=True)
class Work:
    """A model, its loss, a batch, a validation set, and what LAI's positions mean on it."""

    model: nn.Module
    loss: Callable[[Any, Any], Tensor]
    batch: tuple[Any, Any]
    validation: tuple[Any, Any]
    positions: str | None = None

    def optimizer(self) -> torch.optim.Optimizer:
        """Return a fresh SGD with momentum."""
        return torch.optim.SGD(self.model.parameters(), lr=1e-4, momentum=0.9)


def resnet() -> Work:
    """ResNet-18 with the 7x7/2 stem and max-pool on 32x32: the paper's setting."""
    sides = [(torch.randn(n, 3, 32, 32), torch.arange(n) % 10) for n in (512, 1000)]
    return Work(resnet18(), classification, *sides)


def bert_small() -> Work:
    """BERT for classification: 4 layers of width 128, 32 positions."""
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=2000,
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=512,
        max_position_embeddings=32,
        num_labels=5,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        attn_implementation="eager",
    )
    sides = [({"input_ids": torch.randint(1, 2000, (n, 32))}, labels(n)) for n in (32, 64)]
    return Work(BertForSequenceClassification(config), classification, *sides)


def gpt_neo_small() -> Work:
    """GPT-Neo: 4 layers of width 128, 64 positions, 1,000 outputs; LAI by the `mean` route."""
    from transformers import GPTNeoConfig, GPTNeoForCausalLM

    config = GPTNeoConfig(
        vocab_size=1000,
        max_position_embeddings=64,
        hidden_size=128,
        num_layers=4,
        num_heads=4,
        attention_types=[[["global", "local"], 2]],
        window_size=32,
        resid_dropout=0.0,
        embed_dropout=0.0,
        attention_dropout=0.0,
        bos_token_id=0,
        eos_token_id=0,
        attn_implementation="eager",
    )
    sides = []
    for n in (16, 32):
        ids = torch.randint(1, 1000, (n, 64))
        sides.append(({"input_ids": ids, "use_cache": False}, ids))
    return Work(GPTNeoForCausalLM(config), next_token, *sides, positions="mean")


MODELS: dict[str, Callable[[], Work]] = {
    "resnet18": resnet,
    "bert_small": bert_small,
    "gpt_neo_small": gpt_neo_small,
}
METHODS = {
    "lai_cached": {"estimator": "lai", "refresh": 10**9},
    "lai_fresh": {"estimator": "lai"},
    "lli_cached": {"estimator": "lli", "refresh": 10**9},
    "ghost_fresh": {"estimator": "ghost"},
    "exact_fresh": {"estimator": "exact"},
    "lai_selective": {"estimator": "lai", "refresh": 10**9, "backward": "selective"},
}
APPLIES = {"lai_selective": ("bert_small", "gpt_neo_small")}
"""Methods that not every model allows: ResNet's BatchNorm couples samples."""


class Operations(TorchDispatchMode):
    """Counts the floating-point operations of products and convolutions, as torch's counter does."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Let captured graphs run under it: it changes nothing."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run `func` and count."""
        out = func(*args, **(kwargs or {}))
        if (formula := flop_registry.get(func._overloadpacket)) is not None:
            self.total += formula(*args, **(kwargs or {}), out_val=out)
        return out


class PeakBytes(TorchDispatchMode):
    """Follows every storage that an operation makes, until it is freed."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._known: Any = WeakIdKeyDictionary()

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Let captured graphs run under it: it changes nothing."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run `func` and count what it made."""
        given = {id(leaf.untyped_storage()) for leaf in _tensors((args, kwargs or {}))}
        out = func(*args, **(kwargs or {}))
        for leaf in _tensors(out):
            storage = leaf.untyped_storage()
            if id(storage) in given or storage in self._known:
                continue
            size = storage.nbytes()
            self._known[storage] = size
            weakref.finalize(storage, self._freed, size)
            self.live += size
            self.peak = max(self.peak, self.live)
        return out

    def _freed(self, size: int) -> None:
        self.live -= size


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]


def bytes_of(work: Work, optimizer: torch.optim.Optimizer) -> int:
    """Return what lives before a step: parameters, their gradients, buffers, optimizer state, the batch."""
    parameters = list(work.model.parameters())
    state = _tensors([optimizer.state[p] for p in parameters])
    held = [*parameters, *parameters, *work.model.buffers(), *state, *_tensors(work.batch)]
    return sum(tensor.numel() * tensor.element_size() for tensor in held)


def plain_step(work: Work, optimizer: torch.optim.Optimizer) -> None:
    """Train on the whole batch."""
    inputs, targets = work.batch
    optimizer.zero_grad(set_to_none=True)
    outputs = work.model(**inputs) if isinstance(inputs, dict) else work.model(inputs)
    work.loss(outputs, targets).mean().backward()
    optimizer.step()


def forward(work: Work) -> None:
    """Run the model once on the batch."""
    inputs, targets = work.batch
    with torch.no_grad():
        work.loss(work.model(**inputs) if isinstance(inputs, dict) else work.model(inputs), targets)


def operations(run: Callable[[], Any]) -> int:
    """Return the floating-point operations of a call."""
    with Operations() as counter:
        run()
    return counter.total


def measure(work: Work, run: Callable[[], Any], optimizer: torch.optim.Optimizer) -> dict[str, float]:
    """Return operations, seconds and peak bytes of one step, after a step that warms up."""
    run()
    tracker = PeakBytes()
    with Operations() as counter, tracker:
        run()
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    memory = bytes_of(work, optimizer) + tracker.peak
    return {"flops": counter.total, "seconds": statistics.median(seconds), "memory": memory}


def compare(name: str) -> tuple[dict[str, dict[str, float]], float]:
    """Return each method's ratios to plain training, and scoring's operations over one forward pass."""
    torch.manual_seed(0)
    work = MODELS[name]()
    work.model.train()
    optimizer = work.optimizer()
    plain = measure(work, lambda: plain_step(work, optimizer), optimizer)
    found = {}
    scoring = float("nan")
    for method, options in METHODS.items():
        if name not in APPLIES.get(method, (name,)):
            continue
        positions = work.positions if options["estimator"] == "lai" else None
        optimizer = work.optimizer()
        curator = lai_torch.Curator(
            work.model, work.loss, optimizer, work.validation, policy=HALF, positions=positions, **options
        )
        step = measure(work, lambda curator=curator: curator.step(*work.batch), optimizer)
        found[method] = {f"{key}_ratio": step[key] / plain[key] for key in plain}
        if method == "lai_cached":
            scored = operations(lambda curator=curator: curator.score(*work.batch))
            scoring = scored / operations(lambda: forward(work))
    return found, scoring


def show(found: dict[str, dict[str, dict[str, float]]], scoring: dict[str, float]) -> None:
    """Print the table."""
    table = Table(
        "model", "method", "operations", "seconds", "memory", title="over plain training, half kept"
    )
    for name, methods in found.items():
        for method, row in methods.items():
            figures = (f"{row[key]:.3f}" for key in ("flops_ratio", "seconds_ratio", "memory_ratio"))
            table.add_row(name, method, *figures)
    Console().print(table)
    for name, ratio in scoring.items():
        Console().print(f"scoring {name} from a cached summary: {ratio:.3f} forward passes")
    Console().print(f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} thread(s)")


def run() -> dict[str, Any]:
    """Measure every model and method, print the table, write `build/cost-torch.json`."""
    torch.set_num_threads(1)
    found, scoring = {}, {}
    for name in MODELS:
        found[name], scoring[name] = compare(name)
    show(found, scoring)
    from benchmarks import routes_torch  # which measures with the tools above

    routes_torch.run()
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(found, indent=2) + "\n")
    failed = [
        f"{' '.join(key)} {found[key[0]][key[1]][key[2]]:.3f} > {bound}"
        for key, bound in BOUNDS.items()
        if not found[key[0]][key[1]][key[2]] <= bound
    ]
    if not scoring["resnet18"] <= SCORING_BOUND:
        failed.append(f"scoring resnet18 {scoring['resnet18']:.3f} > {SCORING_BOUND}")
    if failed:
        raise SystemExit("cost torch: " + "; ".join(failed))
    return found
