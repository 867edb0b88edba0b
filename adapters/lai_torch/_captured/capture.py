"""A model captured as a forward and a backward graph with a free batch size."""

import functools
import itertools
import operator
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn

from lai_torch._captured.graphs import is_random, results
from lai_torch._captured.pair import Pair, Values, detach_without_gradients
from lai_torch._captured.run import Run
from lai_torch._model.batch import call, holds_rows, map_tensors, tensors
from lai_torch._model.precision import raise_precision
from lai_torch._model.preserve import preserve
from lai_torch._model.walk import list_parameters

_serial = itertools.count()


class Captured:
    """A model as one graph, captured once for every batch size, and again where something else varies."""

    def __init__(
        self,
        model: nn.Module,
        # the type in which it computes; None: its own. What it returns then has all digits.
        autocast: torch.dtype | None = None,
    ) -> None:
        from torch._dynamo.backends.common import aot_autograd

        self.model = model
        self._split: tuple[fx.GraphModule, fx.GraphModule, int] | None = None
        self._last: tuple[Pair, dict[str, Any]] | None = None
        self._inputs: set[int] = set()
        self._batched: set[int] = set()
        self._samples = 0
        # numbers that a model keeps, such as a count of its calls, are inputs of the graph; a hook that a
        # module gets later is one of the things that it was captured with
        config = {"allow_unspec_int_on_nn_module": True, "skip_nnmodule_hook_guards": False}
        # without a setting, as in torch 2.6, such a number is one of the things it was captured with
        known = {name: value for name, value in config.items() if hasattr(torch._dynamo.config, name)}
        self._settings: Any = torch._dynamo.config.patch(known)
        compiled, partition = (bind_weakly(method) for method in (self._compile, self._partition))
        differentiated = aot_autograd(
            fw_compiler=compiled,
            bw_compiler=lambda graph, example: graph.forward,  # `Run` runs the graph itself
            partition_fn=partition,
        )

        def backend(graph: fx.GraphModule, example: Any) -> Any:
            # the forward graph, which scores read, has no hook
            parts = [part for part in graph.modules() if isinstance(part, fx.GraphModule)]
            if any("register_hook" in str(node.target) for part in parts for node in part.graph.nodes):
                msg = "it registers a hook on a tensor's gradient, which scores would not see"
                raise ValueError(msg)
            detach_without_gradients(graph)
            return differentiated(graph, example)

        def run(inputs: Any) -> Any:
            if autocast is None:
                return call(model, inputs)
            with torch.autocast(next(model.parameters()).device.type, autocast):
                outputs = call(model, inputs)
            return raise_precision(outputs, autocast)

        # compilations are counted by the function's name
        run.__code__ = run.__code__.replace(co_name=f"run_{next(_serial)}")
        self._function = torch.compile(run, backend=backend, fullgraph=True)

    def __call__(self, inputs: Any, samples: int) -> Any:
        """Run the model on a batch, keeping what the backward graph and the trace need."""
        aliases = map_tensors(inputs, lambda one: one.detach())
        for alias in tensors(aliases):
            if holds_rows(alias, samples):
                torch._dynamo.mark_dynamic(alias, 0)
        self._inputs = {one.data_ptr() for one in tensors(aliases) if one.numel()}
        self._batched = {one.data_ptr() for one in tensors(inputs) if holds_rows(one, samples)}
        self._samples, self._last = samples, None
        try:
            with self._settings:
                return self._function(aliases)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # torch's compiler has no class of errors that holds all of its own
            # an error of the model's own comes up as it is
            with preserve(self.model):
                call(self.model, inputs)
            # a back end's own error, which the compiler wraps
            said = str(getattr(error, "inner_exception", error)) or type(error).__name__
            msg = (
                "backward: 'selective' expects a model that compiles in one graph, with a free batch size, "
                f"got one that does not ({said.splitlines()[0]}); use backward='kept'"
            )
            raise ValueError(msg) from error

    def read(self, found: list[Tensor]) -> Run:
        """Return what the call kept, for its differentiable outputs."""
        if self._last is None:
            msg = "backward: 'selective' expects trainable parameters and a differentiable output, found none"
            raise ValueError(msg)
        pair, values = self._last
        self._last = None
        return Run(pair, values, self._samples, self._batched, found)

    def _partition(self, joint: fx.GraphModule, inputs: Any, **options: Any) -> Any:
        """Split the joint graph and keep both halves; return halves that save nothing: that takes time."""
        from torch._functorch.partitioners import default_partition
        from torch.utils.checkpoint import CheckpointPolicy

        # random numbers are none of what checkpointing computes again: fewer rows would draw others
        for node in filter(is_random, joint.graph.nodes):
            for one in (node, *(user for user in node.users if user.target is operator.getitem)):
                if "recompute" in one.meta:
                    one.meta["recompute"] = CheckpointPolicy.MUST_SAVE
        forward, backward = default_partition(joint, inputs, **options)
        returned = options["num_fwd_outputs"]
        self._split = forward, backward, returned
        graph = fx.Graph()
        found: Any = graph.graph_copy(forward.graph, {})
        # what goes to the caller alone
        graph.output(tuple(found[:returned]))
        # of the backward graph the gradients at the outputs alone: it is asked for and never run
        asked = fx.Graph()
        nodes = [node for node in backward.graph.nodes if node.op == "placeholder"]
        tangents = [asked.node_copy(node) for node in nodes if node.name.startswith("tangents")]
        asked.output(tuple(one and tangents[0] for one in results(backward.graph)))
        return fx.GraphModule(forward, graph), fx.GraphModule(backward, asked)

    def _compile(self, graph: fx.GraphModule, example: Any) -> Callable[..., Any]:
        """Compile the forward graph to one that also keeps the layers' inputs and what follows the last."""
        if self._split is None:  # nothing requires a gradient
            return graph.forward
        forward, backward, returned = self._split
        self._split = None
        pair = Pair(forward, backward, returned)

        run = functools.partial(bind_weakly(self._run), pair, returned)
        run._boxed_call = True  # type: ignore[attr-defined]  # takes its arguments as one list
        return run

    def _run(self, pair: Pair, returned: int, arguments: Values) -> Any:
        """Run a forward graph on arguments that it takes over, and keep what it kept."""
        given = list(arguments)
        arguments.clear()
        found, values = pair.run(given, list_parameters(self.model), self._inputs)
        self._last = pair, values
        return found[:returned]


def bind_weakly(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method as a function that does not keep its object, which has to be there when it runs.

    The compiler keeps its back ends as long as the process lives: these must not keep a model.
    """
    weak: Any = weakref.WeakMethod(method)
    return lambda *args, **options: weak()(*args, **options)
