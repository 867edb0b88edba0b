"""The reader of the autograd graph: places, proofs and records against one reverse pass a sample."""

import contextlib
import re

import pytest
import torch
from lai_torch._graph import probe
from lai_torch._graph.probe import OLDEST, check_torch
from lai_torch._graph.record import Reader
from lai_torch._graph.uses import CoupledError
from lai_torch._graph.walk import Graph
from torch import nn

import lai_core as lai
from tests.lai_torch.support import LOSS, labels
from tests.support.torch_judge import KERNELS, TOLERANCE, error, truth
from tests.support.torch_parts import SOUND
from tests.support.torch_programs import program

WRITING = {"partly_set_gain", "clamped_gain"}
"""Parts whose forward pass writes a parameter, which is refused."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", [part for part in SOUND if part not in WRITING])
def test_records_add_up_to_ghost_in_the_batch_that_proves_and_in_later_ones(part):
    made_of = ("linear", part, "cross_entropy", "flat", "")
    one, expected = program(1, made_of=made_of), truth(1, made_of, KERNELS["ghost"])
    reader = Reader(one.model, one.loss, every=True)
    for _ in range(3):
        trace = reader.record(one.training).trace
        assert error(lai.ghost_kernel(trace, trace), expected) <= TOLERANCE


MODES = {
    "plain": contextlib.nullcontext,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "meta": lambda: torch.device("meta"),
}


@pytest.mark.parametrize("mode", MODES)
def test_the_probe_passes_in_every_mode_and_changes_none(mode):
    def read():
        modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")
        return *modes, torch.get_default_dtype(), torch.empty(0).device, torch.get_rng_state().tolist()

    with MODES[mode]():
        before = read()
        check_torch.__wrapped__()
        assert read() == before


def refuse(*_, **__):
    raise TypeError("expected a tensor")


def refuse_outputs(outputs, *given, of=torch.autograd.grad, **options):
    return refuse() if isinstance(outputs, list) else of(outputs, *given, **options)


@pytest.mark.parametrize(
    ("of", "name", "put", "lacks"),
    [
        (Graph, "gradient_edge", refuse, "names of nodes"),
        (Graph, "shape", lambda *_: (2, 3), "shapes of gradients"),
        (Graph, "gradients", refuse, "edges as inputs of autograd.grad"),
        (torch.autograd, "grad", refuse_outputs, "edges as outputs of autograd.grad"),
        (probe, "Saved", lambda: lambda *_: None, "operands that a product saved"),
        (probe, "run_node", lambda *_: (None, torch.zeros(3, 2)), "nodes that can be called"),
    ],
)
def test_a_torch_that_shows_less_of_a_graph_is_refused_by_version(of, name, put, lacks, monkeypatch):
    monkeypatch.setattr(of, name, put)
    message = f"torch: expected {OLDEST} or a later release, got {torch.__version__}, which lacks {lacks}"
    with pytest.raises(RuntimeError, match=f"^{re.escape(message)}$"):
        check_torch.__wrapped__()


@pytest.mark.parametrize(("shift", "coupled"), [(2.0**-52, False), (0.1, True)])
def test_a_unit_at_a_kink_that_a_rounding_turns_on_is_not_coupled(shift, coupled):
    """What another batch rounds otherwise moves a gradient by a unit's whole part, and a loss by nothing."""

    class Kinked(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(1, 1), nn.Linear(1, 3)
            nn.init.ones_(self.body.weight)
            nn.init.constant_(self.body.bias, -1.0)

        def forward(self, inputs):
            other = (inputs.detach() == 2.0).any()  # which sample stands beside
            return self.head(torch.relu(self.body(inputs) + shift * (2.0 * other - 1.0)))

    torch.manual_seed(0)
    model = Kinked().double()
    batch = torch.tensor([[1.0], [1.0], [1.0], [2.0]], dtype=torch.float64), labels(4)
    if coupled:
        with pytest.raises(CoupledError):
            Reader(model, LOSS, every=True).record(batch)
    else:
        Reader(model, LOSS, every=True).record(batch)
