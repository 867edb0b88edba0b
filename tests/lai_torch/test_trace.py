"""Tracing chains of linear layers: exact, refusing by name, leaving nothing behind."""

import gc
import re
import weakref

import lai_torch
import pytest
import torch
from torch import nn
from torch.nn import functional

import lai_core as lai
from tests.lai_torch import support
from tests.lai_torch.support import LOSS, Recurrent
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


def test_nothing_is_left_behind():
    model, (inputs, targets) = chain(nn.Dropout(0.5), nn.ReLU(inplace=True)), batch()
    model[3].eval()
    model.register_buffer("calls", torch.zeros(()))
    model.register_forward_hook(lambda module, *_: module.calls.add_(1) and None)
    model(inputs).sum().backward()
    before = (
        {name: (id(p), p.clone(), p.grad.clone()) for name, p in model.named_parameters()},
        model.calls.clone(),
        torch.get_rng_state(),
        [module.training for module in model.modules()],
        [len(module._forward_hooks) + len(module._backward_hooks) for module in model.modules()],
    )
    for gradients in ("output", "all"):
        lai_torch.trace(model, LOSS, inputs, targets, gradients=gradients)
    parameters, calls, state, flags, hooks = before
    for name, p in model.named_parameters():
        identity, values, grad = parameters[name]
        assert id(p) == identity
        assert torch.equal(p, values)
        assert torch.equal(p.grad, grad)
    assert torch.equal(model.calls, calls)
    assert torch.equal(torch.get_rng_state(), state)
    assert [module.training for module in model.modules()] == flags
    assert [len(module._forward_hooks) + len(module._backward_hooks) for module in model.modules()] == hooks
    assert torch.is_grad_enabled()


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
    class Faulty(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 4)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, inputs):
            self.calls += torch.rand(()) + 1
            self.first(inputs)
            raise RuntimeError("broken inside")

    model, (inputs, targets) = Faulty().double(), batch()
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


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.left, self.right = nn.Linear(4, 5), nn.Linear(5, 3), nn.Linear(5, 3)

    def forward(self, inputs):
        hidden = torch.relu(self.body(inputs))
        return self.left(hidden) + self.right(hidden)


def test_of_several_final_layers_one_must_be_named():
    model, (inputs, targets) = TwoHeads().double(), batch()
    with pytest.raises(
        ValueError, match=r"expected one final layer, found 2 .*'left', 'right'.* pass last='"
    ):
        lai_torch.trace(model, LOSS, inputs, targets)
    trace = lai_torch.trace(model, LOSS, inputs, targets, gradients="all", last="left")
    assert [layer.name for layer in trace.layers] == ["body", "right", "left"]
    unnamed = lai_torch.trace(model, LOSS, inputs, targets, gradients="all")
    for one in (trace, unnamed):
        torch.testing.assert_close(lai.ghost_kernel(one, one), exact_kernel(model, LOSS, inputs, targets, N))
    with pytest.raises(ValueError, match=r"lai_torch.trace takes last=NAME.*Ghost needs none"):
        lai.lai_kernel(unnamed, unnamed)
    with pytest.raises(ValueError, match=r"last: expected the name of one layer .* got 'body', not one of"):
        lai_torch.trace(model, LOSS, inputs, targets, last="body")


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


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.scale, self.head = nn.Linear(4, 5), nn.Parameter(torch.ones(5)), nn.Linear(5, 3)

    def forward(self, inputs):
        return self.head(Hidden.apply(self.body(inputs), self.scale))


def test_what_takes_too_many_bytes_is_refused_by_name_or_left_out(monkeypatch):
    monkeypatch.setattr("lai_torch._recording.per_sample.GRADIENT_BUDGET", 100)
    model, (inputs, targets) = Scaled().double(), batch()
    with pytest.raises(ValueError, match=r"cannot explain 'scale' .* cannot be watched; .* take 240 bytes"):
        lai_torch.trace(model, LOSS, inputs, targets, gradients="all")
    partial = lai_torch.trace(model, LOSS, inputs, targets, gradients="all", partial=True)
    assert [layer.name for layer in partial.layers] == ["body", "head"]


def test_parameters_that_the_model_does_not_register_are_refused_by_name():
    model, (inputs, targets) = chain(), batch()
    proxies = nn.Parameter(torch.randn(3, 3, dtype=torch.float64))

    def loss(outputs, targets):
        return LOSS(outputs @ proxies, targets)

    with pytest.raises(
        ValueError, match=r"cannot explain 'a parameter of shape \(3, 3\)' \(used by the loss"
    ):
        lai_torch.trace(model, loss, inputs, targets, gradients="all")
    assert lai_torch.coverage(model, loss, inputs, targets).unexplained


def test_parameters_of_a_loss_that_is_a_module_are_seen():
    class Proxies(nn.Module):
        def __init__(self):
            super().__init__()
            self.centres = nn.Parameter(torch.randn(3, 3, dtype=torch.float64))

        def forward(self, outputs, targets):
            return LOSS(-torch.cdist(outputs, self.centres), targets)

    model, loss, (inputs, targets) = chain(), Proxies(), batch()
    found = lai_torch.coverage(model, loss, inputs, targets)
    assert found.share == 1.0
    assert found.explained["loss.centres"] == ("operation",)
    assert lai_torch.selfcheck(model, loss, inputs, targets).relative_error < 1e-12
    with pytest.raises(ValueError, match=r"the loss depends on 'loss.centres' \(used by .*cdist"):
        lai_torch.trace(model, loss, inputs, targets)


@pytest.mark.parametrize("gradients", ["output", "all"])
def test_batchnorm_in_training_mode_is_refused_by_name(gradients):
    model, (inputs, targets) = chain(nn.BatchNorm1d(7)), batch()
    with pytest.raises(
        ValueError, match=r"BatchNorm '1' normalises with the statistics of the batch.*model.eval"
    ):
        lai_torch.trace(model, LOSS, inputs, targets, gradients=gradients)
    assert int(model[1].num_batches_tracked) == 0
    lai_torch.trace(model.eval(), LOSS, inputs, targets)


class OneByOne(nn.Module):
    """Normalises each sample over its own four positions, one sample a call."""

    def __init__(self):
        super().__init__()
        self.body, self.norm = nn.Linear(4, 8), nn.BatchNorm1d(2, track_running_stats=False)
        self.head = nn.Linear(8, 3)

    def forward(self, inputs):
        maps = self.body(inputs).reshape(-1, 4, 2)
        return self.head(torch.stack([self.norm(each) for each in maps]).flatten(1))


def test_batchnorm_without_running_statistics_is_refused_where_samples_meet_and_scored_where_none_do():
    inputs, targets = batch()
    assert lai_torch.selfcheck(OneByOne().double(), LOSS, inputs, targets).relative_error < 1e-12
    met = chain(nn.BatchNorm1d(7, track_running_stats=False))
    for gradients in ("output", "all"):
        with pytest.raises(ValueError, match=r"samples are coupled"):
            lai_torch.trace(met, LOSS, inputs, targets, gradients=gradients)


class Leaking(nn.Module):
    """Every sample takes a share of what another's hidden layer, or the mean one, has."""

    def __init__(self, share, leak):
        super().__init__()
        self.body, self.head, self.share, self.leak = nn.Linear(4, 5), nn.Linear(5, 3), share, leak

    def forward(self, inputs):
        hidden = torch.tanh(self.body(inputs))
        return self.head(hidden - self.share * self.leak(hidden))


def one_pair(hidden):
    """Sample 0 takes from sample 1 alone."""
    return torch.cat([hidden[1:2], torch.zeros_like(hidden[1:])])


@pytest.mark.parametrize("leak", [lambda hidden: hidden.mean(0), lambda hidden: hidden.roll(1, 0), one_pair])
@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_samples_that_leak_by_some_roundings_are_refused_in_every_type(kind, leak):
    inputs, targets = batch()
    precision = torch.finfo(kind).eps
    for share in (1.0, (64 if precision > 1e-4 else 2048) * precision):
        model = Leaking(share, leak).to(kind)
        with pytest.raises(ValueError, match=r"layer 'body': .* goes into the losses of others"):
            lai_torch.trace(model, LOSS, inputs.to(kind), targets, gradients="all")


@pytest.mark.parametrize("factor", [1e-3, 1.0, 2e4])
def test_half_precision_near_its_ends_is_neither_refused_nor_let_off(factor):
    def loss(outputs, targets):
        return factor * LOSS(outputs.float(), targets)

    inputs, targets = batch()
    for share in (0.0, 0.25):
        model = Leaking(share, lambda hidden: hidden.roll(1, 0)).half()
        if share:
            with pytest.raises(ValueError, match="goes into the losses of others"):
                lai_torch.trace(model, loss, inputs.half(), targets, gradients="all")
        else:
            lai_torch.trace(model, loss, inputs.half(), targets, gradients="all")


class Frames(nn.Module):
    """A convolution on frames that are merged with the samples."""

    def __init__(self):
        super().__init__()
        self.filter, self.head = nn.Conv2d(1, 2, 3), nn.Linear(24, 3)

    def forward(self, inputs):
        return self.head(self.filter(inputs.flatten(0, 1)).reshape(len(inputs), -1))


@pytest.mark.parametrize(
    ("model", "shape", "named"),
    [
        (Frames(), (6, 3, 1, 4, 4), r"'filter.weight' \(used by torch.nn.functional.conv2d\), and leaves"),
        (Recurrent(), (6, 7, 4), r"'memory.weight_ih_l0' \(used by torch.gru\); 'memory.weight_hh_l0'"),
    ],
)
def test_a_matrix_that_lai_has_no_readout_to_is_named(model, shape, named):
    with pytest.warns(UserWarning, match=f"LAI has no readout from the input of {named}"):
        found = lai_torch.trace(model, LOSS, torch.randn(shape), torch.randint(3, (6,)))
    assert [layer.name for layer in found.layers] == ["head"]


def test_an_input_overwritten_after_use_is_refused():
    class Overwriting(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, inputs):
            hidden = inputs * 1
            out = self.head(torch.relu(self.body(hidden)))
            hidden.zero_()
            return out

    model, (inputs, targets) = Overwriting().double(), batch()
    with pytest.raises(ValueError, match=r"layer 'body': its input was modified in place"):
        lai_torch.trace(model, LOSS, inputs, targets)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"gradients": "every"}, ValueError, "gradients: expected one of 'output', 'all', got 'every'"),
        ({"inputs": [1.0]}, TypeError, "inputs: expected a tensor, a tuple or a mapping, got list"),
        (
            {"loss": nn.CrossEntropyLoss()},
            ValueError,
            "loss: expected one number per sample, shape (6,), got a scalar",
        ),
        (
            {"loss": lambda o, _: o},
            ValueError,
            "loss: expected one number per sample, shape (6,), got (6, 3)",
        ),
        ({"loss": lambda o, _: o.argmax(1)}, TypeError, "loss: expected a floating-point tensor"),
        ({"loss": lambda *_: None}, TypeError, "loss: expected a floating-point tensor"),
        ({"loss": lambda o, _: o.detach().sum(1)}, ValueError, "it depends on none"),
        (
            {"inputs": torch.empty(0, 4), "targets": torch.empty(0)},
            ValueError,
            "expected at least one sample",
        ),
        ({"inputs": (), "targets": None}, ValueError, "expected a tensor with a batch axis"),
    ],
)
def test_bad_input_is_named(change, error, message):
    inputs, targets = batch()
    given = {"loss": LOSS, "inputs": inputs, "targets": targets} | change
    with pytest.raises(error, match=re.escape(message)):
        lai_torch.trace(chain(nn.ReLU()), **given)
