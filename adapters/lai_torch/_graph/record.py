"""From a model and a batch to a trace, by the autograd graph of the batch's losses."""

import warnings
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

import lai_core as lai
from lai_torch._graph.assemble import Assembly, Readout, collect_gradients
from lai_torch._graph.layers import (
    Layer,
    check_past,
    check_readable,
    find_biases,
    find_last,
    find_layers,
    find_made,
    find_unread,
)
from lai_torch._graph.per_sample import Received
from lai_torch._graph.places import (
    DEAD,
    RAGGED,
    SUMMED,
    Axis,
    Entries,
    Places,
    place_samples,
)
from lai_torch._graph.plan import Plan, mixes_by_data, read_factors, resize_places
from lai_torch._graph.probe import check_torch
from lai_torch._graph.products import GROUPED, PRODUCTS, add_positions, find_weight, fits_factor, is_argument
from lai_torch._graph.prove import (
    Exchange,
    Problem,
    are_close,
    check_alone,
    compare_halves,
    exchange_samples,
    find_data,
    find_moved,
    find_wrong,
    locate_samples,
    run_again,
    run_part,
)
from lai_torch._graph.saved import Saved
from lai_torch._graph.uses import CoupledError, Sources, find_uses, is_moved_parameter
from lai_torch._graph.walk import Edge, Graph, name_function, walk
from lai_torch._model.batch import Loss, call, check_losses, count, rows, tensors, usable
from lai_torch._model.function import losses_of
from lai_torch._model.preserve import (
    allow_repeated_grad,
    disable_compilation,
    empty_gradients,
    preserve,
    skip_checkpoints,
)
from lai_torch._model.snapshot import VERSION, check_owned, check_returned
from lai_torch._model.valid import Masks, Positions, Valid
from lai_torch._model.walk import Held, collect_held, list_parameters, modules_of

PLANS = 64
"""Number of plans that a reader remembers: one for each graph and shape of a batch."""
PROVED_ON = 8
"""Number of samples on which a graph is proved: a proof holds the gradients of all its nodes."""
FEW = 4
"""Of fewer samples copies may be in order as the batch is, and show nothing of a model that sorts."""
PLACED_ON = 3
"""Number of samples that are placed where the batch's own gradients verify them; few axes have thirds."""


@dataclass(frozen=True)
class Recording:
    """The records of one batch.

    Attributes
    ----------
    losses
        One a sample, on their graph.
    readouts
        The layers that LAI sees, the last one last; empty where LAI has no last layer.
    explained
        Of each weight key of the trace, the parameters that its records explain.
    kinds
        Of each parameter that is explained, the kinds of its uses.
    """

    trace: lai.Trace
    graph: Graph
    losses: Tensor
    readouts: list[Readout]
    explained: Mapping[Any, list[str]]
    kinds: Mapping[str, list[str]]
    plan: Plan


class NotFiniteError(ValueError):
    """Rows that are not finite can look like coupled ones, and hide others that are."""

    def __init__(self, losses: Tensor) -> None:
        super().__init__(
            "loss: expected finite losses of a batch in which samples are proved independent, got others"
        )
        self.losses = losses


class DrawnError(CoupledError):
    """One row draws other random numbers than beside a copy of itself."""


class Reader:
    """Reads the graphs of one model's batches, and remembers what was proved of them.

    What is remembered decides only whether a batch is proved anew, but for `routed`: an expert has a record
    in every batch once rows were routed to it in one.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        *,
        every: bool,  # whether records of every parameter are wanted, or what LAI reads
        last: str | None = None,
        valid: Tensor | Valid | Masks | None = None,
        finite: bool = False,  # whether only batches with finite losses are to be proved
        again: bool = True,  # whether a graph that was proved is proved again now and then
        # Whether records are to be the same beside other samples, and plans hold for other batches. Else each
        # batch is read for itself, and only what its own losses give is proved.
        exchanged: bool = True,
    ) -> None:
        check_torch()
        self.model, self.loss, self.every, self.last = model, loss, every, last
        self.finite, self.again = finite, again
        self.exchanged = exchanged
        self.masks = valid if isinstance(valid, Masks) else Masks(valid)
        self.routed: frozenset[str] = frozenset()
        self._plans: OrderedDict[Any, Plan] = OrderedDict()
        self._varying: list[frozenset[str]] = []
        self._other: tuple[Any, Plan | None] = None, None
        self.left: frozenset[str] = frozenset()
        self._said: set[str] = set()
        self._refuted: set[Any] = set()  # graphs in which samples met after they were proved

    def recall(self, routed: frozenset[str], left: frozenset[str]) -> None:
        # plans were made for other parameters
        if (routed, left) != (self.routed, self.left):
            self._plans.clear()
        self.routed, self.left = routed, left

    def record(self, batch: tuple[Any, Any], *, redraws: bool | None = None) -> Recording:
        """Run model and loss on a batch, leave nothing behind, and read the pass.

        One row is read beside a copy of itself, with what two rows draw, if the pass `redraws` for it; None:
        where records are to hold for other batches.
        """
        if redraws is None:
            redraws = self.exchanged
        batch = usable(batch)
        samples = count(*batch)
        alone = samples == 1
        one = batch
        if alone:  # which axis holds the samples is seen of two
            with torch.inference_mode(mode=False):
                batch = rows(batch, torch.zeros(2, dtype=torch.long, device="cpu"), samples)
        with preserve(self.model, self.loss, hooks=True) as streams, skip_checkpoints():
            versions = self._count_writes()
            losses = check_losses(losses_of(self.model, self.loss, batch), max(samples, 2))
            for name, version in self._count_writes().items():
                if version != versions.get(name, version):
                    msg = (
                        "model: expected a forward pass that leaves parameters as they are, got one that "
                        f"writes {name!r}; keep in a buffer what forward writes"
                    )
                    raise ValueError(msg)
            recording = self.read(batch, losses, alike=alone)
            if alone and not redraws and streams.has_moved():
                streams.restore()
                # both from the same buffers, which the first pass may have written
                passes = (run_again((self.model, self.loss, each), gradients=True) for each in (one, batch))
                own, beside = (found for found, _ in passes)
                if not are_close(own, beside[:1], eps=walk(beside).coarsest()):
                    msg = (
                        "inputs: expected two rows or more where a pass draws random numbers, as dropout "
                        "does, got one, which draws others than beside a copy of itself, by which it is "
                        "read; the norm of its gradient is that of the batch's"
                    )
                    raise DrawnError(msg)
        if not alone:
            return recording
        whole: list[Any] = [*recording.trace.layers, *(one.record for one in recording.readouts)]
        cut = {id(one): replace(one, **{k: v[:1] for k, v in one.arrays().items()}) for one in whole}
        readouts = [replace(one, record=cut[id(one.record)]) for one in recording.readouts]
        trace = lai.Trace([cut[id(one)] for one in recording.trace.layers])
        return replace(recording, trace=trace, losses=recording.losses[:1], readouts=readouts)

    def record_live(self, batch: tuple[Any, Any], trained: nn.Module | None = None) -> Recording:
        """Run model, or its wrapper that is `trained`, and loss as training does, and read that pass."""
        batch = usable(batch)
        samples = count(*batch)
        alone = None
        if samples == 1:  # first: a graph may keep what a pass writes
            alone = self.record(batch, redraws=False)
        if trained is None:
            trained = self.model
        with disable_compilation(), allow_repeated_grad(), torch.enable_grad():
            losses = check_losses(self.loss(call(trained, batch[0]), batch[1]), samples)
        return self.read(batch, losses) if alone is None else replace(alone, losses=losses)

    def read(self, batch: tuple[Any, Any], losses: Tensor, *, alike: bool = False) -> Recording:
        """Read the pass whose losses these are; its graph stays for a backward pass.

        Of samples that are all `alike` shapes say where these lie.
        """
        positions = self.masks(self.model, batch[0], len(losses))
        graph = walk(losses)
        shapes = tuple((one.shape, one.dtype) for one in tensors(batch))
        hooks = tuple((node, *own) for node, leaf in graph.leaves.items() if (own := leaf._backward_hooks))
        key = self._identify(graph), shapes, hooks
        plan = self._plans.get(key)
        try:
            if plan is not None and plan.holds(graph):
                plan.calls += 1
                if not self._is_due(plan):
                    # a statistic of the batch, maybe, that no sample had moved before
                    if plan.factors != read_factors(graph, plan.factors):
                        problem = self.model, self.loss, batch
                        # all from the same buffers, which this pass may have written
                        compare_halves(problem, *run_again(problem, gradients=False), graph.coarsest())
                    received = collect_gradients(graph, plan, every=self.every)
                    # uses behind edges at which nothing but zeros arrived are not known to the plan
                    arrived = [one for edge in plan.dead if (one := received.get(edge)) is not None]
                    if not arrived or not bool(torch.stack([one.count_nonzero() for one in arrived]).any()):
                        return self._assemble(graph, plan, positions, received)
            calls = getattr(plan, "calls", 1)
            # a loss that is no number is the same beside any samples, and proves nothing
            if self.finite and not bool(torch.isfinite(losses).all()):
                raise NotFiniteError(losses)
            recording = self._prove(graph, batch, positions, alike=alike)
        except CoupledError:
            # samples that meet in one batch may meet in each that has its graph
            stale = [one for one in self._plans if one[0] == key[0]]
            for one in stale:
                del self._plans[one]
            if stale:
                self._refuted.add(key[0])
            raise
        # a plan that does not hold for other batches is made again for each
        if recording.plan.settled and key[0] not in self._refuted:
            recording.plan.calls = calls
            versions = self._count_writes()
            if plan is None or plan.versions == versions:  # no step yet
                recording.plan.versions = versions
            self._plans[key] = recording.plan
            if len(self._plans) > PLANS:
                self._plans.popitem(last=False)
        else:
            self._plans.pop(key, None)
        return recording

    def read_as(self, proved: Recording | None, losses: Tensor) -> Recording:
        """Read a pass by the plan of another one that ran the same functions, or that was read so before.

        Raises
        ------
        CoupledError
            If no such pass has this graph.
        """
        graph = walk(losses)
        known, plan = self._other
        if proved is not None:
            known, plan = self._identify(proved.graph), proved.plan
        if plan is None or self._identify(graph) != known or not plan.holds(graph):
            msg = "model: expected the same functions in training and in evaluation mode, got others"
            raise CoupledError(msg)
        self._other = known, plan
        return self._assemble(graph, plan, ())

    def _identify(self, graph: Graph) -> tuple[Any, ...]:
        """Return what graphs share that one plan reads: branches of one form have parameters of their own."""
        return graph.signature, tuple(map(self.names.get, map(id, graph.leaves.values())))

    def _is_due(self, plan: Plan) -> bool:
        """Whether a graph is to be proved again: on the first batch after a step, at calls 4, 8, ..."""
        # Batches before a step are of the same parameters, and a proof takes as long as ten steps; what was
        # zero at the start may couple samples after it.
        if not self.again:
            return False
        if plan.versions is not None and plan.versions != self._count_writes():
            return True
        return plan.calls >= 4 and not plan.calls & (plan.calls - 1)

    @property
    def names(self) -> dict[int, str]:
        """The names of all parameters, by identity."""
        return collect_held(self.model, self.loss).memoise(_find_names)

    def _count_writes(self) -> dict[str, int]:
        watched = collect_held(self.model, self.loss).memoise(_watch_writes)
        return dict(zip(watched, map(VERSION, watched.values()), strict=True))

    def _assemble(
        self, graph: Graph, plan: Plan, positions: Positions, received: Received | None = None
    ) -> Recording:
        """Return the records of a batch by a plan that holds."""
        if received is None:
            received = collect_gradients(graph, plan, every=self.every)
        assembly = Assembly(graph, plan, received, self.names, positions)
        if not self.every:
            readouts = assembly.build_last()
            records = [one.record for one in readouts]
        else:
            # those in the graph, and experts and what is left outside it
            found = {id(leaf) for leaf in graph.leaves.values()}
            parameters = {
                name: one
                for name, one in list_parameters(self.model, self.loss).items()
                if id(one) in found or (one.requires_grad and (plan.routed or name in plan.left))
            }
            records, readouts = assembly.build_every(parameters)
            if not records:  # nothing is explained
                records.append(lai.GainTrace(None, graph.losses.detach().new_zeros(graph.samples, 1)))
        kinds = {name: list(own) for name, own in assembly.kinds.items()}
        return Recording(lai.Trace(records), graph, graph.losses, readouts, assembly.explained, kinds, plan)

    # ---- proofs

    def _prove(self, graph: Graph, batch: tuple[Any, Any], positions: Positions, *, alike: bool) -> Recording:
        """Find out where the samples lie in a graph, and prove it."""
        named, names = list_parameters(self.model, self.loss), frozenset(graph.names)
        # A program whose graph is another in every batch is proved once, and placed in each batch.
        known = any(names <= one for one in self._varying)
        with empty_gradients(named.values()):
            try:
                exchange, problem = None, (self.model, self.loss, batch)
                if self.exchanged and not known:
                    exchange = self._exchange(graph, problem)
                places, ambiguous, varies = self._place(graph, exchange, problem)
                self._settle(graph, exchange, places, ambiguous, alike=alike)
                plan = self._plan(graph, places, ambiguous, varies=varies)
                recording = self._assemble(graph, plan, positions)
                if not known:
                    recording = self._check(recording, graph, exchange, positions)
                if alike:
                    last = [(layer.node, 0) for layer in plan.last]
                    check_alone(problem, graph, named, last, redraws=self.exchanged)
            except CoupledError as error:
                raise self._name_norm(error) from error
            except RuntimeError as error:
                # a pass that runs again, and writes what the first one reads
                if "modified by an inplace operation" not in str(error):
                    raise
                msg = (
                    "model: expected a forward pass that may run twice before it is differentiated, got one "
                    f"that writes what a backward pass reads ({str(error).partition('; expected')[0]}); "
                    "write to a copy"
                )
                raise ValueError(msg) from error
            check_returned(named)
        if varies and not known and self.exchanged:
            self._varying.append(names)
        self._check_masks(recording, positions)
        self._warn(plan)
        return recording

    def _name_norm(self, error: CoupledError) -> CoupledError:
        """Name the norm with the statistics of the batch, if any, in an error of coupled samples."""
        for name, module in self.model.named_modules():
            if isinstance(module, _BatchNorm) and (module.training or module.running_mean is None):
                return CoupledError(
                    f"model: BatchNorm {name!r} normalises with the statistics of the batch, so that samples "
                    "are coupled, and none has a gradient of its own; call model.eval(), or use a norm "
                    "without the batch"
                )
        return error

    def _exchange(self, graph: Graph, problem: Problem) -> Exchange | None:
        """Return an exchanged batch: a small one if it has this graph, else the batch itself."""
        samples = graph.samples
        if samples > PROVED_ON:
            small = rows(problem[2], slice(0, PROVED_ON), samples)
            try:
                found = exchange_samples((*problem[:2], small))
            except (torch.OutOfMemoryError, CoupledError):
                raise
            except Exception:  # whatever it is, it is about the size
                found = None
            if found is not None and found.plain.signature == graph.signature:
                return found
        return exchange_samples(problem)

    def _place(
        self, graph: Graph, exchange: Exchange | None, problem: Problem
    ) -> tuple[Places, set[Any], bool | None]:
        """Return where the samples lie, which edges leave it open, and whether that varies between batches.

        None: it does not vary with the batch, but with what is zero in it.
        """
        # What is made of parameters has no samples, also where one sample alone reaches it, or none does.
        passes = None
        if exchange is not None and exchange.matches(graph):
            passes = exchange.plain, exchange.moved
        made = find_made(graph, self.names, Saved(), passes)
        received = graph.list_received()
        fixed = [edge for edge in received if edge[0] in made or is_moved_parameter(graph, edge)]
        moved: Places = dict.fromkeys(fixed, SUMMED)
        edges = [edge for edge in received if edge not in moved]
        varies: bool | None = True
        # other functions ran on the exchanged samples: the batch's own pass has to do
        if exchange is not None and exchange.matches(graph):
            # In the exchanged batch every sample is there twice, so that no parameter has a gradient of one
            # alone.
            places, ambiguous = place_samples(exchange.moved, edges)
            varies = any(isinstance(one, Entries) for one in places.values())
            varies = varies or (exchange.moved.samples < FEW and _sorts(exchange, edges))
            dead = [edge for edge, place in places.items() if place == DEAD]
            arrived = graph.gradients(dead, torch.ones_like(graph.losses))
            vanish = not any(one is not None and one.any() for one in arrived)
            if vanish and not varies and (resized := resize_places(places, graph)) is not None:
                return resized | moved, ambiguous, False
            varies = varies or None
        elif not self.exchanged and graph.samples > PLACED_ON:  # a few rows take less memory
            ran, few = run_part(problem, slice(0, PLACED_ON), graph.samples, gradients=True), None
            # an error is about the size, whatever it is
            if not isinstance(ran, Exception) and ran[0].requires_grad:
                few = walk(ran[0])
            if few is not None and few.signature == graph.signature:
                places, ambiguous = place_samples(few, edges, proved=False)
                resized = resize_places(places, graph)
                if resized is not None:
                    return resized | moved, ambiguous, varies
        places, ambiguous = place_samples(graph, edges, proved=self.exchanged)
        return places | moved, ambiguous, varies

    def _plan(self, graph: Graph, places: Places, ambiguous: set[Any], *, varies: bool | None) -> Plan:
        """Return what the records of a graph are made of."""
        names = self.names
        sources = Sources(graph, names)
        uses = find_uses(graph, places, sources)
        check_owned(sources.foreign.values())
        routed = {
            use.source.names[0]
            for use in uses
            if isinstance(use.place, Entries)
            and (is_argument(graph, use.node, use.slot) or graph.names[use.node] == GROUPED)
        }
        biases = find_biases(graph, sources)
        refusal, last, unread = "", [], {}
        layers: list[Layer] = []
        try:
            # unrolled on one device, and one function on another
            recurrent = {
                names[id(one)]: f"torch.nn.{type(module).__name__}"
                for module in modules_of(self.model, self.loss)
                if isinstance(module, nn.RNNBase | nn.RNNCellBase)
                for one in module.parameters()
                if id(one) in names
            }
            unread_names = {*recurrent, *routed, *self.routed}
            found = find_layers(graph, Saved(), places, sources, self._find_frozen(), unread_names)
            # Of which single matrices are read: experts, between which data may choose.
            banks = (one.source for one in found if one.source is not None and one.source.matrix is not None)
            self._route(routed | {one.names[0] for one in banks if one.leaves[0].shape[0] > 1})
            for layer in found:
                name = layer.source.names[0] if layer.source is not None else layer.name
                if name in self.routed or isinstance(layer.place, Entries):
                    unread[name] = "rows that are routed to it"
                elif name in recurrent:
                    unread[name] = recurrent[name]
                else:
                    layers.append(layer)
            last = find_last(graph, layers, self.last, unread)
            check_past(graph, uses, layers, last, biases)
            check_readable(graph, Saved(), last)
            unread = find_unread(graph, uses, layers) | self._find_ragged(graph, places, sources) | unread
        except ValueError as error:
            # Ghost needs no last layer, unless one was named
            if not self.every or self.last is not None:
                raise
            refusal, last = str(error), []
        order = tuple((layer.node, layer.slot) for layer in layers)
        # where the samples lie depends on the data: a layer may be without some of them
        if varies and self.exchanged:
            alone = _find_unreached(graph, layers)
            unread |= {layer.name + ".weight": "rows that may be of some samples alone" for layer in alone}
            alone = [layer for layer in alone if layer not in last]
            layers = [layer for layer in layers if layer not in alone]
            if not self.every:
                self._route({layer.source.names[0] for layer in alone if layer.source is not None})
        uncertain = any(edge in ambiguous for use in uses for edge in use.received)
        uncertain = uncertain or any(mixes_by_data(graph, node, places) for node in range(len(graph.nodes)))
        plan = Plan(uses, layers, last, biases, order, refusal)
        plan.routed, plan.left = self.routed, self.left
        plan.dead = tuple(edge for edge, place in places.items() if place == DEAD)
        plan.unread, plan.settled, plan.varies = unread, varies is False and not uncertain, varies is True
        assembly = Assembly(graph, plan, {}, names)
        for layer in layers:
            if layer.source is None or layer in last:
                continue
            try:
                assembly.read_out(layer)
            except ValueError:
                plan.layers = [one for one in plan.layers if one is not layer]
                plan.unread[layer.name + ".weight"] = name_function(graph.names[layer.node])
        plan.watch(graph, places)
        return plan

    def _route(self, names: set[str]) -> None:
        """Remember experts, and no plan of a batch whose rows all went to one, which reads it as a layer."""
        if not names <= self.routed:
            self._plans.clear()
            self.routed |= names

    def _settle(
        self, graph: Graph, exchange: Exchange | None, places: Places, ambiguous: set[Any], *, alike: bool
    ) -> None:
        """Decide the places of products by their inputs where gradients leave them open."""
        saved = Saved()
        made = find_made(graph, self.names, saved)
        for edge, place in list(places.items()):
            if graph.names[edge[0]] not in PRODUCTS or not isinstance(place, Axis):
                continue
            slot = find_weight(graph, edge[0], lambda own: own[0] in made)
            # A sample's own row in which a single entry is not zero looks like a row of all samples.
            if slot is not None and not fits_factor(graph, saved, edge[0], slot, place):
                (arrived,) = graph.gradients([edge], torch.ones_like(graph.losses))
                assert arrived is not None
                places[edge] = place.list_entries(arrived)
        if alike:
            exchanged = graph, graph, torch.tensor([1, 0], device=graph.losses.device)
        elif exchange is not None and exchange.matches(graph):
            exchanged = exchange.plain, exchange.moved, exchange.index
        else:
            return
        for edge, place in list(places.items()):
            if graph.names[edge[0]] in PRODUCTS and (place == DEAD or edge in ambiguous):
                axis = locate_samples(*exchanged, saved, edge[0], made)
                if axis is not None:
                    places[edge] = replace(axis, samples=graph.samples)
                    ambiguous.discard(edge)

    def _find_frozen(self) -> dict[int, str]:
        """Return the names of frozen parameters, by the memory that they are kept in."""
        return {
            one.untyped_storage().data_ptr(): name
            for name, one in list_parameters(self.model, self.loss).items()
            if not one.requires_grad and one.numel() and one.layout == torch.strided
        }

    def _find_ragged(self, graph: Graph, places: Places, sources: Sources) -> dict[str, str]:
        """Return the matrices that are used inside of nested tensors, in which samples have no place."""
        nodes = {edge[0] for edge, place in places.items() if place == RAGGED}
        own = [edge for node in nodes for edge in graph.edges[node] if edge is not None]
        found = [sources(edge) for edge in own if places.get(edge, SUMMED) == SUMMED]
        leaves = [pair for one in found for pair in zip(one.names, one.leaves, strict=True)]
        return {name: "a nested tensor" for name, leaf in leaves if leaf.ndim > 1}

    def _check(
        self, recording: Recording, graph: Graph, exchange: Exchange | None, positions: Positions
    ) -> Recording:
        """Raise unless the records are right in the batch, and the same beside other samples."""
        plan, names = recording.plan, self.names
        by_name = {names[id(one)]: one for one in graph.leaves.values() if id(one) in names}
        if not self.every:
            final = recording.trace.layers[-1]
            own = {name for one in plan.last if one.source is not None for name in one.source.names}
            hooked = {name for name in own if by_name[name]._backward_hooks}
            by_name = {name: by_name[name] for name in recording.explained.get(final.weight, ())}
            # a hook changes a gradient that the records do not have
            if hooked - by_name.keys():
                raise _build_hook_error(min(hooked - by_name.keys()))
        # the coarsest type in the graph sets how far two passes may differ
        eps = graph.coarsest()
        everyone = torch.ones_like(graph.losses, dtype=torch.bool)
        records = [one for one in recording.trace.layers if self.every or one is recording.trace.layers[-1]]
        wrong = []
        # without a parameter there is nothing to compare
        if by_name:
            wrong = find_wrong(graph, everyone, records, recording.explained, by_name, eps)
        wrong = [name for name in wrong if name not in plan.unexplained]
        # a pass for each sample may still explain what no record does; tried once
        if wrong and self.every and plan.left.isdisjoint(wrong):
            plan.left = self.left | frozenset(wrong)
            recording = self._check(self._assemble(graph, plan, positions), graph, exchange, positions)
            self.recall(self.routed, plan.left)
            return recording
        if wrong:
            if not self.every:
                raise _build_hook_error(min(wrong))
            msg = (
                f"model: the samples' gradients of {sorted(wrong)} do not add up to the batch's: a hook on a "
                "module or a parameter, or something else, changes gradients on their way; remove it"
            )
            raise CoupledError(msg)
        if exchange is not None:
            self._check_exchanged(graph, exchange, plan, by_name, eps)
        return recording

    def _check_exchanged(
        self, graph: Graph, exchange: Exchange, plan: Plan, parameters: Mapping[str, Tensor], eps: float
    ) -> None:
        """Raise unless gradients and records of the samples that stay are the same beside others."""
        alike = exchange.matches(graph)
        sources = {use.source.edge[0] for use in plan.uses if alike}
        behind = [node for source in sources for node in graph.reach(source) if node not in graph.leaves]
        mixed = find_data(exchange, behind)
        if mixed is not None:
            msg = (
                "model: expected samples that do not depend on each other, got rows of a "
                f"{name_function(graph.names[mixed])} that go into the losses of others: samples are "
                "coupled; call model.eval() where a normalisation couples them, or score what is coupled as "
                "one sample"
            )
            raise CoupledError(msg)
        named = list_parameters(self.model, self.loss)
        last = [(layer.node, 0) for layer in plan.last if alike]
        trained = {name: one for name, one in named.items() if one.requires_grad}
        wrong = find_moved(exchange, trained, eps, last)
        # The same functions may run on other rows, as many as the data say.
        if plan.varies:
            alike = False
        if alike and (small := plan.resize(exchange.plain)) and plan.resize(exchange.moved) is not None:
            plain, moved = (self._assemble(one, small, ()) for one in (exchange.plain, exchange.moved))
            if self.every:
                records = moved.trace.layers
                found = find_wrong(exchange.moved, exchange.kept, records, moved.explained, parameters, eps)
                wrong += [name for name in found if name not in plan.unexplained]
            else:
                _check_rows(plain.trace, moved.trace, exchange.kept, eps)
        if wrong:
            msg = (
                f"model: what some samples give to the gradient of {min(wrong)!r} moves with the other "
                "samples of the batch, or with their own place: they are coupled in the backward pass (by a "
                "hook, a custom function or scale_grad_by_freq), so that none has a gradient of its own; "
                "leave that out, or score what is coupled as one sample (the sum of its rows' losses)"
            )
            raise CoupledError(msg)

    def _check_masks(self, recording: Recording, positions: Positions) -> None:
        """Raise if a given mask fits no layer with positions; warn if a detected one does not."""
        read = [one.record for one in recording.readouts]
        counts = {add_positions(one.activations).shape[1] for one in read if isinstance(one, lai.LayerTrace)}
        several = sorted(counts - {1})
        lengths = " or ".join(map(str, several)) or "none, no layer has any"
        for mask in positions:
            # a mask that was detected may be about something else where no layer has positions
            asked = self.masks.given is not None
            if mask.shape[1] in counts or not (asked or several):
                continue
            got = tuple(mask.shape)
            if asked:
                msg = f"valid: expected shape (n, t) with the positions of a layer, {lengths}, got {got}"
                raise ValueError(msg)
            warnings.warn(
                f"attention_mask: expected the positions of a layer, {lengths}, got shape {got}: padding "
                "counts in means over positions; pass valid, a function of the inputs that returns the mask "
                "(an option of estimators and of lai_torch.trace)",
                UserWarning,
                stacklevel=2,
            )

    def _warn(self, plan: Plan) -> None:
        """Warn once of matrices that LAI does not read."""
        new = {}
        if not self.every:
            new = {k: v for k, v in plan.unread.items() if k not in self._said}
        self._said |= new.keys()
        if new:
            listed = "; ".join(f"{name!r} (used by {function})" for name, function in new.items())
            warnings.warn(
                f"model: LAI has no readout from the input of {listed}, and leaves it out; estimators "
                "'ghost' and 'exact' see every parameter, or refuse",
                UserWarning,
                stacklevel=2,
            )


def _sorts(exchange: Exchange, edges: list[Edge]) -> bool:
    """Whether some entries have a place of their own where the samples come the other way around."""
    samples = exchange.moved.samples
    turned = torch.arange(samples - 1, -1, -1, device="cpu")
    ran = run_part(exchange.problem, turned, samples, gradients=True)
    if isinstance(ran, Exception) or not ran[0].requires_grad:
        return False
    graph = walk(ran[0])
    if graph.signature != exchange.moved.signature:
        return False
    return any(isinstance(one, Entries) for one in place_samples(graph, edges, proved=False)[0].values())


def _find_names(found: Held) -> dict[int, str]:
    return {id(one): name for name, one in found.parameters.items()}


def _watch_writes(found: Held) -> dict[str, Tensor]:
    renormalised = {id(one.weight) for one in found.modules if getattr(one, "max_norm", None) is not None}
    counted = {*map(id, found.counted)} - renormalised
    return {name: one for name, one in found.parameters.items() if id(one) in counted}


def _find_unreached(graph: Graph, layers: list[Layer]) -> list[Layer]:
    """Return the layers by which some sample does not reach its loss that reaches it by others.

    A row whose gradient is zero tells no sample. So rows of some samples alone may look like rows of all.
    """
    received = graph.gradients([(layer.node, 0) for layer in layers], torch.ones_like(graph.losses))
    reached = {}
    for layer, gradient in zip(layers, received, strict=True):
        if gradient is not None and isinstance(layer.place, Axis):
            reached[layer.node] = layer.place.move_to_front(gradient).reshape(graph.samples, -1).ne(0).any(1)
    alive = torch.zeros_like(graph.losses, dtype=torch.bool)
    for one in reached.values():
        alive = alive | one
    return [one for one in layers if one.node in reached and not torch.equal(reached[one.node], alive)]


def _check_rows(plain: lai.Trace, moved: lai.Trace, kept: Tensor, eps: float) -> None:
    """Raise unless what LAI reads of the samples that stay is the same beside other samples."""
    for own, beside in zip(plain.layers, moved.layers, strict=True):
        for name, array in own.arrays().items():
            if not are_close(array[kept], beside.arrays()[name][kept], eps=eps, factor=100.0):
                msg = (
                    f"layer {own.name!r}: its {name} for a sample move with the other samples of the batch: "
                    "samples are coupled; call model.eval() where a normalisation couples them"
                )
                raise CoupledError(msg)


def _build_hook_error(name: str) -> ValueError:
    return ValueError(
        f"model: a hook changes the gradient of {name!r}, a parameter of the last layer, which LAI and LLI "
        "read without hooks; remove it, or use estimator 'exact'"
    )
