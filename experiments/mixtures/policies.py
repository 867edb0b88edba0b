"""Where the shares of the sources come from: fixed, a filter, training losses, mean scores, trials."""

import copy
import math
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

from experiments.mixtures.arms import PERIOD, PLAIN, Batch, Record, Run, losses, scored
from lai_core.mixtures import MixtureState, group_scores, initial_mixture, update_mixture


class Shares:
    """Shares that stay as they are."""

    def __init__(self, run: Run, weights: Any = None) -> None:
        self.held: Record = []
        """Of the validation set at the last update; empty where none is kept."""
        given = torch.ones(run.count) if weights is None else torch.as_tensor(weights, dtype=torch.float32)
        self.weights = (given / given.sum(-1, keepdim=True)).expand(run.seeds, run.count)

    def before(self, run: Run) -> None:
        """Look at a run before a step."""

    def after(self, run: Run, sources: Tensor, batch: Batch, found: Tensor) -> None:
        """Look at the sources of a batch and the losses of its samples."""


def filtered(run: Run, steps: int = 150, samples: int = 64) -> Shares:
    """Fit networks to the validation set, and share by the losses of the sources under them."""
    fitted, of = run.task.learners(), 16
    for _ in range(steps):
        fitted.step(run.drawn(of), torch.full((run.seeds, of), 1 / of), run.task.rate)
    sources = torch.arange(run.count).repeat_interleave(samples).expand(run.seeds, -1)
    inputs, targets = run.task.draw(sources, run.random)
    found = losses(fitted.logits(inputs), targets).view(run.seeds, run.count, samples).mean(2)
    run.paid += PLAIN * steps * of + samples * run.count
    above = found - found.amin(1, keepdim=True)
    return Shares(run, (-2.0 * above / found.std(1, keepdim=True)).exp())


class Odm(Shares):
    """Online data mixing (2312.02406): EXP3, whose reward is the training loss of what is drawn."""

    SMOOTHING = 0.9

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.reward = torch.zeros(run.seeds, run.count)

    def after(self, run: Run, sources: Tensor, batch: Batch, found: Tensor) -> None:
        """Raise the shares of sources with a high loss."""
        sums, counts = (
            torch.zeros_like(self.reward).scatter_add(1, sources, each)
            for each in (found, torch.ones_like(found))
        )
        new = self.SMOOTHING * self.reward + (1 - self.SMOOTHING) * sums / counts.clamp(min=1) / self.weights
        self.reward = torch.where(counts > 0, new, self.reward)
        before, now = (
            min(1 / run.count, math.sqrt(math.log(run.count) / (run.count * max(step, 1))))
            for step in (run.steps - 1, run.steps)
        )
        self.weights = (1 - run.count * now) * (before * self.reward).softmax(1) + now


class Moved(Shares):
    """`lai_core.mixtures`: shares that follow the mean scores of the samples that are trained on anyway.

    Every second batch is scored; every fourth, where `estimator` takes a pass of its own.
    """

    def __init__(self, run: Run, estimator: str = "lli", every: int = 2) -> None:
        super().__init__(run)
        self.estimator, self.every = estimator, every
        start = initial_mixture(torch.ones(run.count))
        self.state = MixtureState(*(each.expand(run.seeds, *each.shape).clone() for each in start))
        self.seen: list[tuple[Record, Tensor]] = []

    def before(self, run: Run) -> None:
        """Move the shares at the end of a period, and record the validation set anew."""
        if run.steps % PERIOD:
            return
        held = run.learners.record(run.validation)
        run.paid += run.validation[1].shape[1] * (PLAIN if self.estimator == "ghost" else 1.0)
        if self.seen:
            records, sources = zip(*self.seen, strict=True)
            layers = (zip(*layer, strict=True) for layer in zip(*records, strict=True))
            record = [(torch.cat(given, 1), torch.cat(found, 1)) for given, found in layers]
            scores = scored(self.estimator, self.held, record)
            self.move(scores, torch.cat(sources, 1))
        self.held, self.seen = held, []

    def move(self, scores: Tensor, sources: Tensor) -> None:
        """Update the mixture by scores and their sources, `(seeds, n)` each."""

        def moved(state: MixtureState, scores: Tensor, sources: Tensor) -> MixtureState:
            return update_mixture(state, *group_scores(scores, sources, len(state.weights)))

        self.state = vmap(moved)(self.state, scores, sources)
        self.weights = self.state.weights

    def after(self, run: Run, sources: Tensor, batch: Batch, found: Tensor) -> None:
        """Keep what the estimator reads of a batch that was trained on."""
        if (run.steps - 1) % self.every:
            return
        count = sources.shape[1]
        self.seen.append(
            ([(given[:, :count], out[:, :count]) for given, out in run.learners.recorded], sources)
        )
        run.paid += run.learners.costs[self.estimator] * count


class Tried(Moved):
    """A longer horizon than one step: eight times a run, copies train on more of each source in turn.

    The scores are what validation losses fall by, compared sample by sample.
    """

    TRIALS = 8

    def before(self, run: Run) -> None:
        """Try all sources, and move the shares."""
        if run.steps % max(1, run.task.steps // self.TRIALS) or not run.steps:
            return
        fallen = -trial_losses(run, run.validation)
        fallen = fallen - fallen.mean(2, keepdim=True)  # a validation sample's own level is no error
        self.move(fallen.flatten(1), torch.arange(run.count).expand(fallen.shape).flatten(1))
        run.paid += run.count * (PLAIN * trial_steps(run) * (run.task.batch // 2) + fallen.shape[1])

    def after(self, *seen: Any) -> None:
        """Keep nothing."""


def trial_steps(run: Run) -> int:
    """Return the steps of a trial: a twenty-fifth of the run's."""
    return max(1, run.task.steps // 25)


def trial_losses(run: Run, held: Batch) -> Tensor:
    """Return the losses `(seeds, n, sources)` of held samples after trials, half of which is one source."""
    found, samples = [], run.task.batch // 2
    for source in range(run.count):
        learners, shares = copy.deepcopy(run.learners), run.policy.weights / 2.0
        shares[:, source] += 0.5
        for _ in range(trial_steps(run)):
            sources = torch.multinomial(shares, samples, replacement=True, generator=run.random)
            weights = torch.full(sources.shape, 1 / samples)
            learners.step(run.task.draw(sources, run.random), weights, run.task.rate)
        found.append(losses(learners.logits(held[0]), held[1]))
    return torch.stack(found, 2)


def horizons(run: Run) -> dict[str, list[float]]:
    """Train for a quarter of the steps, and compare one step's derivative in each share with a trial.

    The scores are in units of their root mean square, the trials in nats of the test loss; of both the
    mean over sources is 0.
    """
    for _ in range(run.task.steps // 4):
        run.step()
    sources = torch.arange(run.count).repeat_interleave(run.task.batch).expand(run.seeds, -1)
    record = run.learners.record(run.task.draw(sources, run.random))
    scores = scored("ghost", run.learners.record(run.validation), record)
    scores = scores.view(run.seeds, run.count, -1).mean(2)
    scores = scores / scores.square().mean(1, keepdim=True).sqrt()
    fallen = -trial_losses(run, run.task.test[run.half]).mean(1)
    return {
        f"{what} of {name}": (each - each.mean(1, keepdim=True))[:, at].tolist()
        for what, each in (("one step's score", scores), ("fall after a trial", fallen))
        for at, name in enumerate(run.task.names)
    }
