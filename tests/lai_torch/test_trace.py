"""Tracing chains of linear layers: exact, refusing by name, leaving nothing behind."""

import gc
import weakref

import lai_torch
import pytest
import torch
from torch import nn
from torch.nn import functional

import lai_core as lai
from tests.lai_torch import support
from tests.lai_torch.support import LOSS, Recurrent
from tests.support.torch_modules import held, holding
from workloads.torch_oracle import exact_kernel

N = 6


def chain(*between, bias=True):
    layers = [nn.Linear(4, 7, bias=bias), *between, nn.Linear(7, 5), nn.Tanh(), nn.Linear(5, 3, bias=bias)]
    return nn.Sequential(*layers).double()


def batch(n=N):
    return support.batch(n, 4)


@pytest.mark.parametrize("gradients", ["output", "all"])
def test_records_hold_inputs_and_output_gradients(gradients):
    model, (inputs, targets) = chain(nn.ReLU(inplace=True)), batch()
    seen = []
    handles = [
        layer.register_forward_pre_hook(lambda _, args: seen.append(args[0].clone())) for layer in model[::2]
    ]
    outputs = model(inputs)
    for handle in handles:
        handle.remove()
    trace = lai_torch.trace(model, LOSS, inputs, targets, gradients=gradients)
    for layer, expected in zip(trace.layers, seen, strict=True):
        torch.testing.assert_close(layer.activations, expected)
    leaf = outputs.detach().requires_grad_()
    (expected,) = torch.autograd.grad(LOSS(leaf, targets).sum(), leaf)
    torch.testing.assert_close(trace.layers[-1].output_gradients, expected)
    assert [layer.output_gradients is None for layer in trace.layers[:-1]] == [gradients == "output"] * 2


def test_a_softmax_inside_the_model_is_differentiated():
    model, (inputs, targets) = nn.Sequential(nn.Linear(4, 3), nn.LogSoftmax(-1)).double(), batch()
    trace = lai_torch.trace(model, nn.NLLLoss(reduction="none"), inputs, targets)
    logits = model[0](inputs)
    expected = torch.softmax(logits, -1) - functional.one_hot(targets, 3)
    torch.testing.assert_close(trace.layers[-1].output_gradients, expected.detach())


@pytest.mark.parametrize("form", [lambda x: x, lambda x: (x,), lambda x: {"input": x}])
def test_inputs_may_be_an_array_a_tuple_or_a_mapping(form):
    model, (inputs, targets) = chain(nn.ReLU()), batch()
    plain = lai_torch.trace(model, LOSS, inputs, targets)
    formed = lai_torch.trace(model, LOSS, form(inputs), targets)
    torch.testing.assert_close(lai.lai_kernel(formed, formed), lai.lai_kernel(plain, plain))


def test_positions_make_three_axes():
    model = nn.Sequential(nn.Linear(4, 7), nn.ReLU(), nn.Linear(7, 3)).double()
    inputs, targets = torch.randn(N, 5, 4, dtype=torch.float64), torch.randint(3, (N, 5))

    def loss(outputs, targets):
        return LOSS(outputs.transpose(1, 2), targets).sum(1)

    trace = lai_torch.trace(model, loss, inputs, targets, gradients="all")
    assert [tuple(layer.activations.shape) for layer in trace.layers] == [(N, 5, 4), (N, 5, 7)]
    torch.testing.assert_close(lai.ghost_kernel(trace, trace), exact_kernel(model, loss, inputs, targets, N))


@pytest.mark.parametrize("gradients", ["output", "all"])
def test_a_trace_goes_with_its_last_name_and_waits_for_no_collector(gradients):
    model, (inputs, targets) = chain(), batch()
    lai_torch.trace(model, LOSS, inputs, targets, gradients=gradients)  # which may import and cache
    gc.collect()
    gc.disable()
    try:
        trace = lai_torch.trace(model, LOSS, inputs, targets, gradients=gradients)
        held = weakref.ref(trace.layers[-1].output_gradients)
        del trace
        assert held() is None
    finally:
        gc.enable()


def test_nothing_is_left_behind_when_the_model_raises():
    @holding(lambda: held(first=nn.Linear(4, 4), calls=torch.zeros(())))
    def faulty(own, inputs):
        own.calls += torch.rand(()) + 1
        own.first(inputs)
        raise RuntimeError("broken inside")

    model, (inputs, targets) = faulty().double(), batch()
    state = torch.get_rng_state()
    with pytest.raises(RuntimeError, match="broken inside"):
        lai_torch.trace(model, LOSS, inputs, targets)
    assert float(model.calls) == 0
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.overrides._get_current_function_mode_stack()


def test_gradients_are_recorded_inside_no_grad_and_inference_mode():
    model, (inputs, targets) = chain(nn.ReLU()), batch()
    expected = lai_torch.trace(model, LOSS, inputs, targets).layers[-1].output_gradients
    for mode in (torch.no_grad(), torch.inference_mode()):
        for gradients in ("output", "all"):
            with mode:
                found = lai_torch.trace(model, LOSS, inputs, targets, gradients=gradients)
            torch.testing.assert_close(found.layers[-1].output_gradients, expected)


@holding(lambda: held(body=nn.Linear(4, 5), left=nn.Linear(5, 3), right=nn.Linear(5, 3)))
def two_heads(own, inputs):
    hidden = torch.relu(own.body(inputs))
    return own.left(hidden) + own.right(hidden)


def test_of_several_final_layers_the_last_is_the_one_that_is_named():
    model, (inputs, targets) = two_heads().double(), batch()
    trace = lai_torch.trace(model, LOSS, inputs, targets, gradients="all", last="left")
    assert [layer.name for layer in trace.layers] == ["body", "right", "left"]
    unnamed = lai_torch.trace(model, LOSS, inputs, targets, gradients="all")
    for one in (trace, unnamed):
        torch.testing.assert_close(lai.ghost_kernel(one, one), exact_kernel(model, LOSS, inputs, targets, N))


class Hidden(torch.autograd.Function):
    """A gain in a function that no mode sees into."""

    @staticmethod
    def forward(ctx, inputs, weight):
        ctx.save_for_backward(inputs, weight)
        return inputs * weight

    @staticmethod
    def backward(ctx, gradient):
        inputs, weight = ctx.saved_tensors
        return gradient * weight, (gradient * inputs).sum(0)


@holding(lambda: held(body=nn.Linear(4, 5), scale=nn.Parameter(torch.ones(5)), head=nn.Linear(5, 3)))
def scaled(own, inputs):
    return own.head(Hidden.apply(own.body(inputs), own.scale))


def test_what_takes_too_many_bytes_is_refused_by_name_or_left_out(monkeypatch):
    monkeypatch.setattr("lai_torch._recording.per_sample.GRADIENT_BUDGET", 100)
    model, (inputs, targets) = scaled().double(), batch()
    with pytest.raises(ValueError, match=r"cannot explain 'scale' .* cannot be watched; .* take 240 bytes"):
        lai_torch.trace(model, LOSS, inputs, targets, gradients="all")
    partial = lai_torch.trace(model, LOSS, inputs, targets, gradients="all", partial=True)
    assert [layer.name for layer in partial.layers] == ["body", "head"]


@pytest.mark.parametrize("gradients", ["output", "all"])
def test_batchnorm_in_training_mode_is_refused_by_name(gradients):
    model, (inputs, targets) = chain(nn.BatchNorm1d(7)), batch()
    with pytest.raises(
        ValueError, match=r"BatchNorm '1' normalises with the statistics of the batch.*model.eval"
    ):
        lai_torch.trace(model, LOSS, inputs, targets, gradients=gradients)
    assert int(model[1].num_batches_tracked) == 0
    lai_torch.trace(model.eval(), LOSS, inputs, targets)


@holding(
    lambda: held(
        body=nn.Linear(4, 8), norm=nn.BatchNorm1d(2, track_running_stats=False), head=nn.Linear(8, 3)
    )
)
def one_by_one(own, inputs):
    """Normalise each sample over its own four positions, one sample a call."""
    maps = own.body(inputs).reshape(-1, 4, 2)
    return own.head(torch.stack([own.norm(each) for each in maps]).flatten(1))


def test_batchnorm_without_running_statistics_is_refused_where_samples_meet_and_scored_where_none_do():
    inputs, targets = batch()
    assert lai_torch.selfcheck(one_by_one().double(), LOSS, inputs, targets).relative_error < 1e-12
    met = chain(nn.BatchNorm1d(7, track_running_stats=False))
    for gradients in ("output", "all"):
        with pytest.raises(ValueError, match=r"samples are coupled"):
            lai_torch.trace(met, LOSS, inputs, targets, gradients=gradients)


@holding(lambda share, leak: held(body=nn.Linear(4, 5), head=nn.Linear(5, 3), share=share, leak=leak))
def leaking(own, inputs):
    """Let every sample take a share of what another's hidden layer, or the mean one, has."""
    hidden = torch.tanh(own.body(inputs))
    return own.head(hidden - own.share * own.leak(hidden))


def one_pair(hidden):
    """Sample 0 takes from sample 1 alone."""
    return torch.cat([hidden[1:2], torch.zeros_like(hidden[1:])])


@pytest.mark.parametrize("leak", [lambda hidden: hidden.mean(0), lambda hidden: hidden.roll(1, 0), one_pair])
@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_samples_that_leak_by_some_roundings_are_refused_in_every_type(kind, leak):
    inputs, targets = batch()
    precision = torch.finfo(kind).eps
    for share in (1.0, (64 if precision > 1e-4 else 2048) * precision):
        model = leaking(share, leak).to(kind)
        with pytest.raises(ValueError, match=r"layer 'body': .* goes into the losses of others"):
            lai_torch.trace(model, LOSS, inputs.to(kind), targets, gradients="all")


@pytest.mark.parametrize("factor", [1e-3, 1.0, 2e4])
def test_half_precision_near_its_ends_is_neither_refused_nor_let_off(factor):
    def loss(outputs, targets):
        return factor * LOSS(outputs.float(), targets)

    inputs, targets = batch()
    for share in (0.0, 0.25):
        model = leaking(share, lambda hidden: hidden.roll(1, 0)).half()
        if share:
            with pytest.raises(ValueError, match="goes into the losses of others"):
                lai_torch.trace(model, loss, inputs.half(), targets, gradients="all")
        else:
            lai_torch.trace(model, loss, inputs.half(), targets, gradients="all")


@holding(lambda: held(filter=nn.Conv2d(1, 2, 3), head=nn.Linear(24, 3)))
def make_frames(own, inputs):
    """Apply a convolution on frames that are merged with the samples."""
    return own.head(own.filter(inputs.flatten(0, 1)).reshape(len(inputs), -1))


@pytest.mark.parametrize(
    ("model", "shape", "named"),
    [
        (
            make_frames(),
            (6, 3, 1, 4, 4),
            r"'filter.weight' \(used by torch.nn.functional.conv2d\), and leaves",
        ),
        (Recurrent(), (6, 7, 4), r"'memory.weight_ih_l0' \(used by torch.gru\); 'memory.weight_hh_l0'"),
    ],
)
def test_a_matrix_that_lai_has_no_readout_to_is_named(model, shape, named):
    with pytest.warns(UserWarning, match=f"LAI has no readout from the input of {named}"):
        found = lai_torch.trace(model, LOSS, torch.randn(shape), torch.randint(3, (6,)))
    assert [layer.name for layer in found.layers] == ["head"]
