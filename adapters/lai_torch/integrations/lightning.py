"""Curation in Lightning: a callback that owns the curator, and the loss that a training step returns."""

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn

from lai_core._adapters import number_groups
from lai_core.mixtures import Mixture
from lai_torch._curation.outcome import join_groups
from lai_torch._curation.validation import make_batch
from lai_torch._model.batch import call
from lai_torch.curator import Weigher
from lai_torch.integrations._options import Log, read_options
from lai_torch.integrations.rows import kept_rows
from lai_torch.integrations.sampling import MixtureSampler, MixtureStream
from lai_torch.integrations.sources import USUAL, Sources
from lai_torch.integrations.spikes import SpikeMonitor


class Curation(Callback):
    """Makes a module train on the samples of each batch that help a validation set.

    Parameters
    ----------
    loss
        `loss(outputs, targets) -> (n,)`.
    validation
        As for `lai_torch.Weigher`.
    model
        From the module to what is scored and trained, called on a batch's inputs. None: the module itself.
    sampler
        The `MixtureSampler` or `MixtureStream` of the training loader, made with a `Mixture`. The mixture
        follows the mean scores of the sources, which are the `groups` of each objective. All samples train,
        scored by `lli`, unless `options` say more. Checkpoints hold the mixture and the place in the data.
    period
        Number of scored steps between two updates of the mixture.
    options
        Of `lai_torch.Weigher`, but for `process_group`: the processes are the trainer's. And
        `backward=KeptOptions(auxiliary=...)`, for a loss that trains and does not score.

    Attributes
    ----------
    curator
        The curator; None before training begins.
    """

    def __init__(
        self,
        loss: Callable[[Any, Any], Tensor],
        validation: Any,
        *,
        model: Callable[[LightningModule], nn.Module] | None = None,
        sampler: MixtureSampler | MixtureStream | None = None,
        period: int = 20,
        **options: Any,
    ) -> None:
        self.loss, self.validation, self.model = loss, validation, model
        self.sampler, self._trained = sampler, 0
        self._sources: Sources | None = None
        if sampler is not None:
            weights = getattr(sampler, "weights", None)
            if not isinstance(weights, Mixture):
                msg = f"sampler: expected one whose weights are a Mixture, got {type(weights).__name__}"
                raise TypeError(msg)
            self._sources = Sources(weights, period)
            self._trained = sampler.state_dict()["batch"]  # it may have been resumed before it was passed
            options = USUAL | {"refresh": period} | options
        self.options, self.auxiliary = read_options(loss, validation, process_group=False, **options)
        self.curator: Weigher | None = None
        self.shown = Log()
        self._processes, self._asked = 1, False
        self._state: dict[str, Any] | None = None

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Make the curator, when the module is where it will be trained."""
        scored = pl_module if self.model is None else self.model(pl_module)
        self._processes = trainer.world_size
        # Lightning has started them by now; their batches are one
        if self._processes > 1:
            self.options["process_group"] = dist.group.WORLD
        self.curator = Weigher(scored, self.loss, self.validation, **self.options)
        if self._state is not None:
            self.curator.load_state_dict(self._state)

    def objective(self, batch: Any, *, groups: Tensor | Sequence[str] | None = None) -> Tensor:
        """Return what a `training_step` returns, or what `manual_backward` is called on.

        Where Lightning accumulates, each batch is weighed by itself; to weigh those of an optimizer step
        together, optimize manually and call `objectives`.

        Parameters
        ----------
        batch
            `(inputs, targets)` or a mapping, as for `Curator.step`.
        groups
            `(n,)`, as for `Curator.step`.

        Returns
        -------
        Tensor
            The weighted sum of the kept samples' losses.
        """
        found: Callable[[], Tensor] = self.objectives([batch], groups=None if groups is None else [groups])[0]
        return found()

    def objectives(
        self, batches: Sequence[Any], *, groups: Sequence[Tensor | Sequence[str]] | None = None
    ) -> list[Callable[[], Tensor]]:
        """Return a function for each micro-batch of an optimizer step, that runs it and returns its part.

        Parameters
        ----------
        batches, groups
            As for `lai_torch.Weigher.weigh`.

        Returns
        -------
        list of callable
            Call one, and `manual_backward` on what it returns, before the next.
        """
        if self.curator is None:
            msg = "Curation: expected to be a callback of the trainer that fits, and asked while it does"
            raise RuntimeError(msg)
        self._asked = True
        pairs = [make_batch(self.curator.model, batch) for batch in batches]
        # a mixture learns from the scores of each source
        if self._sources is not None and groups is None:
            msg = "groups: expected the source of each sample, as a sampler is given, got None"
            raise ValueError(msg)
        weights, report = self.curator.weigh(pairs, groups=groups)
        self.shown.add(report)
        if self._sources is not None and self.sampler is not None and report.scores is not None:
            numbers = number_groups(join_groups(groups), self.sampler.names)
            columns = [report.scores.cpu(), torch.as_tensor(numbers, device="cpu")]
            # a process group that has been started holds the other rows
            if self._processes > 1:
                found: list[Any] = [None] * self._processes
                dist.all_gather_object(found, columns)
                columns = [torch.cat(column) for column in zip(*found, strict=True)]
            self._sources.add(*columns)
        parts = [kept_rows(*each) for each in zip(pairs, weights, strict=True)]
        return [functools.partial(self._run, *part, report.kept) for part in parts]

    def _run(self, batch: Any, weights: Tensor, kept: int) -> Tensor:
        """Run kept rows forward; a strategy averages over the processes what is meant as a sum."""
        curator: Any = self.curator
        outputs = call(curator.model, batch[0])
        more: dict[str, Any] = {}
        if self.auxiliary is not None:
            more = {"auxiliary": self.auxiliary(outputs, batch[1])}
            # a single number is one of each micro-batch: these rows' part of it
            more["fraction"] = int((weights > 0).sum()) / max(kept, 1)
        found: Tensor = curator.objective(self.loss(outputs, batch[1]), weights, **more) * self._processes
        return found

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        """Log what was kept; the quantiles are of this process's scores."""
        del trainer
        if not self._asked:
            self._asked = True  # this is said once
            warnings.warn(
                "Curation: the first training step did not ask for an objective; return "
                "curation.objective(batch) from training_step, or nothing is curated",
                stacklevel=2,
            )
        self._trained += 1
        logged = self.shown.take()
        if self._sources is not None:
            shares = enumerate(self._sources.mixture.weights)
            logged |= {f"curation/share/{source}": share for source, share in shares}
        pl_module.log_dict(logged, on_step=True)

    def state_dict(self) -> dict[str, Any]:
        """Return the curator's state, and a mixture's, which Lightning puts into its checkpoints."""
        found = {} if self.curator is None else self.curator.state_dict()
        # a checkpoint without a mixture is one of `Weigher.state_dict`
        if self._sources is None or self.sampler is None:
            return found
        place = self.sampler.state_dict(batches=self._trained)
        return found | {"sources": self._sources.state_dict(), "sampler": place}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up what `state_dict` returned: a mixture's now, the curator's when training begins.

        Parameters
        ----------
        state_dict
            From a checkpoint.
        """
        state = dict(state_dict)
        if self._sources is not None and self.sampler is not None:
            if "sources" not in state:
                msg = "sampler: expected a checkpoint of a run with one, got one without; leave sampler out"
                raise ValueError(msg)
            self._sources.load_state_dict(state.pop("sources"))
            self.sampler.load_state_dict(state["sampler"])
            # what was drawn ahead of training, by workers, is drawn again
            self._trained = state.pop("sampler")["batch"]
        self._state = state or None


class SpikeWatch(Callback):
    """Lets a `lai_torch.SpikeMonitor` watch a module that trains by automatic optimization.

    Lightning hands over each batch before its forward pass, and the gradient before it is clipped.

    Parameters
    ----------
    monitor
        Made with what is called on a batch's inputs, as `module.net`, and the loss of its samples.
    split
        From a batch to `(inputs, targets)`; None: a batch is these two.
    """

    def __init__(self, monitor: SpikeMonitor, split: Callable[[Any], tuple[Any, Any]] | None = None) -> None:
        self.monitor, self.split = monitor, split

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take the processes that Lightning has started."""
        del pl_module
        self.monitor.share(trainer.world_size)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, *_: Any) -> None:
        """Watch a batch."""
        del trainer, pl_module
        if self.split is not None:
            batch = self.split(batch)
        self.monitor.watch(*batch)

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        """Check the gradient of the batches since the last step."""
        del trainer, pl_module
        gradients = [one.grad for one in self.monitor.model.parameters() if one.grad is not None]
        self.monitor.check(torch.nn.utils.get_total_norm(gradients))

    def state_dict(self) -> dict[str, Any]:
        """Return the monitor's state."""
        return self.monitor.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up the monitor's state."""
        self.monitor.load_state_dict(state_dict)
