"""The last layer is the last, however it is written: read where it can be, else refused by name."""

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import pytest
from jax import lax

import lai_core as lai
from tests.lai_jax.support import computed, explained, gradients, kernel_error, relative
from tests.lai_jax.support import cross_entropy as loss

N, WIDTH = 5, 6


def classes(numbers):
    return numbers[:, None] * jnp.arange(1.0, 4.0)


def chosen(x):
    return (jnp.abs(lax.stop_gradient(x[:, 0])) * 3).astype(int) % 5


def convolved(maps, kernel):
    return lax.conv_general_dilated(maps, kernel, (1,), "SAME", dimension_numbers=("NCH", "OIH", "NCH"))


def convolved_twice(p, h, x):
    maps = jnp.tanh(convolved(h.reshape(-1, 3, 2), p["w"]))
    return convolved(maps, p["w"]).mean(2)


def beside(products):
    return jnp.concatenate([products, jnp.tanh(products)], 1)


READ = {
    "inner": (lambda p, h, x: classes(jnp.inner(h, p["w"])), (WIDTH,)),
    "vdot under vmap": (lambda p, h, x: classes(jax.vmap(lambda one: jnp.vdot(one, p["w"]))(h)), (WIDTH,)),
    "einsum over two axes": (
        lambda p, h, x: jnp.einsum("nab,abk->nk", h.reshape(-1, 2, 3), p["w"]),
        (2, 3, 3),
    ),
    "convolution": (lambda p, h, x: convolved(h.reshape(-1, 2, 3), p["w"]).mean(2), (3, 2, 2)),
    "shared convolution": (convolved_twice, (3, 3, 2)),
    "stacks": (lambda p, h, x: jnp.stack([*jnp.unstack(h, axis=1), h[:, 0] * h[:, 1]], 1) @ p["w"], (7, 3)),
}
"""Heads that are layers: `w` is the last one."""

REFUSED = {
    "summed product": lambda p, h, x: classes((h * p["w"]).sum(-1)),
    "cumsum": lambda p, h, x: classes((h * p["w"]).cumsum(-1)[:, -1]),
    "scan": lambda p, h, x: classes(
        lax.scan(lambda c, a: (c + a[0] * a[1], None), jnp.zeros(len(h)), (h.T, p["w"]))[0]
    ),
    "fori": lambda p, h, x: classes(
        lax.fori_loop(0, WIDTH, lambda i, c: c + h[:, i] * p["w"][i], jnp.zeros(len(h)))
    ),
    "computed": lambda p, h, x: classes((h * jnp.exp(p["w"])).sum(-1)),
    "jitted": lambda p, h, x: classes(jax.jit(lambda a, b: (a * b).sum(-1))(h, p["w"])),
    "beside functions of them": lambda p, h, x: classes(beside(h * p["w"]).sum(-1)),
    "normalised and gained": lambda p, h, x: classes(
        ((h - h.mean(-1, keepdims=True)) * p["w"]).sum(-1) + h[:, 0]
    ),
}
REFUSED = {name: (head, (WIDTH,)) for name, head in REFUSED.items()} | {
    "prototypes": (lambda p, h, x: -((h[:, None] - p["w"]) ** 2).sum(-1), (3, WIDTH)),
    "rows of a table": (lambda p, h, x: classes((h * p["w"][chosen(x)]).sum(-1)), (5, WIDTH)),
}
"""Heads that are layers, and that LAI does not read."""

BEHIND = {
    "temperature": (lambda p, s, x: s * jnp.exp(p["w"]), ()),
    "offset": (lambda p, s, x: s + p["w"], (3,)),
    "offset a class of samples": (lambda p, s, x: s + p["w"][chosen(x)], (5, 3)),
    "gain and offset": (lambda p, s, x: s * p["w"][:3] + p["w"][3:], (6,)),
    "gain and softmax": (lambda p, s, x: jax.nn.log_softmax(s * p["w"]), (3,)),
    "gain and cross-entropy": (
        lambda p, s, x: classes((jax.nn.log_softmax(s * p["w"]) * jnp.eye(3)[chosen(x) % 3]).sum(-1)),
        (3,),
    ),
    "normalised": (lambda p, s, x: (s - s.mean(-1, keepdims=True)) / s.std(-1, keepdims=True) * p["w"], (3,)),
    "mean of scaled positions": (
        lambda p, s, x: (s[:, None] * jnp.arange(1.0, 5)[:, None] * p["w"]).mean(1),
        (3,),
    ),
}
"""What is no layer, behind one."""

BIASED = {
    "a gain too": lambda p, s: s * p["b"],
    "added twice": lambda p, s: jnp.tanh(s) + p["b"],
    "a penalty": lambda p, s: s + (p["b"] ** 2).sum() * jnp.arange(3.0),
}
"""Other uses of the last layer's bias, behind it."""


def case(head, shape, *, body=(4, WIDTH)):
    """Return a model that ends in a head, and a batch."""
    draw = np.random.default_rng(0)
    params = {"body": jnp.asarray(draw.standard_normal(body)), "w": jnp.asarray(draw.standard_normal(shape))}
    batch = jnp.asarray(draw.standard_normal((N, 4))), jnp.arange(N) % 3
    return (lambda p, x: head(p, jnp.tanh(x @ p["body"]), x), params, loss), batch


def check_ghost(model, batch):
    trace = computed(lai_jax.trace, *model, *batch, gradients="all")
    assert kernel_error(trace, gradients(*model, batch)) < 1e-12
    return trace


def check_last(model, batch, trace, name):
    """Hold LLI's kernel to the gradients of one parameter alone."""
    apply, params, _ = model
    rows = gradients(lambda own, x: apply(params | {name: own}, x), params[name], loss, batch)
    assert relative(np.asarray(lai.lli_kernel(trace, trace)), rows @ rows.T) < 1e-12


def check_unread(trace):
    for kernel in (lai.lai_kernel, lai.lli_kernel):
        with pytest.raises(ValueError, match="LAI and LLI have no last layer to read"):
            kernel(trace, trace)


@pytest.mark.parametrize("name", READ)
def test_products_and_convolutions_are_layers(name):
    model, batch = case(*READ[name])
    trace = check_ghost(model, batch)
    assert explained(*model, batch)[-1] == trace.layers[-1].name == "w"
    if name != "shared convolution":
        check_last(model, batch, trace, "w")


@pytest.mark.parametrize("name", REFUSED)
def test_earlier_layers_never_pass_as_last(name):
    model, batch = case(*REFUSED[name])
    with pytest.raises(ValueError, match="the losses depend on 'w', whose products with the samples"):
        explained(*model, batch)
    check_unread(check_ghost(model, batch))


@pytest.mark.parametrize("name", BEHIND)
def test_trailing_gains_and_offsets_are_skipped(name):
    function, shape = BEHIND[name]
    model, batch = case(lambda p, h, x: function(p, jnp.arctanh(h), x), shape, body=(4, 3))
    assert explained(*model, batch)[-1] == "body"
    check_last(model, batch, computed(lai_jax.trace, *model, *batch), "body")


@pytest.mark.parametrize("name", BIASED)
def test_reused_last_biases_are_refused(name):
    def apply(p, x):
        return BIASED[name](p, jnp.tanh(x @ p["body"]) @ p["w"] + p["b"])

    (_, params, _), batch = case(None, (WIDTH, 3))
    model = apply, params | {"b": jnp.asarray([1.0, 0.5, -2.0])}, loss
    with pytest.raises(
        ValueError, match="expected a parameter 'b' of the last layer 'w' that layers alone use"
    ):
        explained(*model, batch)
    check_unread(check_ghost(model, batch))


def test_parallel_last_layers_must_be_chosen():
    model, batch = case(lambda p, h, x: h + (x * p["w"]).sum(-1, keepdims=True), (4,), body=(4, 3))
    with pytest.raises(ValueError, match=r"found several: \['body', 'w'\]; pass last=NAME"):
        explained(*model, batch)
    check_ghost(model, batch)
    with pytest.raises(ValueError, match="last: expected the name of one layer"):
        lai_jax.trace(*model, *batch, last="c")
    assert computed(lai_jax.trace, *model, *batch, last="body").layers[-1].name == "body"
