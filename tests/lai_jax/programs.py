"""Models written in every way that rules follow.

Each is a function, its parameters, inputs of `N` samples, and the names of the layers that LAI reads; or why
it reads none; or None, where that is not judged.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tests.lai_jax.support import drawn, weights

N = 5
TWO, VECTORS = weights(w=(4, 4), o=(4, 2)), drawn(N, 4)
IDS = jnp.array([[0, 2, 7], [5, 9, 1], [3, 3, 3], [8, 6, 4], [1, 0, 2]])
CHOSEN = VECTORS, jnp.asarray([[0, 2], [3, 1], [1, 0], [2, 0], [1, 3]])
WO = ["w", "o"]
RULED: dict[str, tuple[Callable[..., Any], Any, Any, Any]] = {}


def ruled(inputs: Any = VECTORS, layers: Any = None, **shapes: tuple[int, ...]) -> Callable[..., Any]:
    """Add a function to the programs that rules follow, on inputs or on vectors of a shape."""

    def added(apply: Callable[..., Any]) -> Callable[..., Any]:
        own = drawn(N, *inputs) if isinstance(inputs[0], int) else inputs
        RULED[apply.__name__] = apply, weights(**shapes or {"w": (4, 4), "o": (4, 2)}), own, layers
        return apply

    return added


def convolved_inside(*outer):
    """Convolve maps whose frames are before or behind the samples, merged into one axis."""

    def apply(params, inputs):  # (n, frames, width, channels)
        maps, numbers = inputs.transpose(outer).reshape(-1, *inputs.shape[2:]), ("NWC", "WIO", "NWC")
        maps = lax.conv_general_dilated(maps, params["k"], (1,), [(0, 1)], dimension_numbers=numbers)
        frames = jnp.tanh(maps).reshape(*(inputs.shape[axis] for axis in outer[:2]), -1).transpose(outer[:3])
        return frames.reshape(inputs.shape[0], -1) @ params["w"]

    return apply, weights(k=(2, 2, 3), w=(36, 2)), drawn(N, 3, 4, 2), ["k", "w"]


RULED |= {"frames before": convolved_inside(0, 1, 2, 3), "frames behind": convolved_inside(1, 0, 2, 3)}


@ruled((3,), big=(10, 3), square=(3, 4), last=(3, 2))
def rearranged(params, inputs):
    """Use slices, halves, transposes and casts of three leaves, some of them twice."""
    big = params["big"]
    hidden = jnp.tanh(inputs @ big[:5].T)
    hidden = jnp.tanh(hidden @ big[5:].reshape(3, 5).T[:, ::-1])
    hidden = jnp.tanh(hidden @ params["square"]) @ params["square"].T
    return hidden @ params["last"].astype(jnp.complex128).real


@ruled(layers=WO, w=(4, 4), o=(4, 2), b=(5,))
def overlapping(params, inputs):
    """Add biases that have one number in common."""
    return jnp.tanh(inputs @ params["w"] + params["b"][:4]) @ params["o"] + params["b"][3:]


@ruled((3,), v=(3, 4), g=(4,), b=(4,), token=(2,), small=(3, 2), slope=())
def composed(params, inputs):
    """Use parameters that are computed from others, repeated, scaled, stacked and merged."""
    direction = params["v"] / jnp.linalg.norm(params["v"], axis=0)
    hidden = inputs @ (params["g"] * direction) + params["b"].sum() * params["b"]
    hidden = jnp.concatenate([hidden, jnp.broadcast_to(params["token"], (inputs.shape[0], 2))], axis=1)
    hidden = jnp.where(hidden > params["b"][0], hidden, jax.nn.softplus(params["slope"]) * hidden)
    hidden = hidden.at[:, 0].multiply(2.0) * jnp.exp(params["slope"])
    return hidden @ jnp.kron(params["small"], params["small"])[:6] + 0.5 * params["slope"] ** 2


@ruled(layers=["w", "s[0]", "s[1]", "s[2]", "o"], w=(4, 1), s=(3,), b=(3,), o=(1, 2))
def numbers_of_a_loop(params, inputs):
    """Loop over single numbers: matrices of one entry, and their biases."""

    def step(hidden, number):
        weight, bias = number
        return jnp.tanh(hidden @ weight.reshape(1, 1) + bias), None

    return lax.scan(step, inputs @ params["w"], (params["s"], params["b"]))[0] @ params["o"]


@ruled(layers=WO, w=(4, 4), b=(3, 4), o=(4, 2))
def biases_of_a_loop(params, inputs):
    """Loop with one matrix, and a bias of its own in each pass."""

    def step(hidden, bias):
        return jnp.tanh(hidden @ params["w"] + bias), None

    return lax.scan(step, inputs, params["b"])[0] @ params["o"]


@ruled((4, 3), WO, w=(3, 4), a=(4,), o=(4, 2))
def recurred(params, inputs):
    """Run a diagonal recurrence in parallel: one decay, repeated for every sample and place."""
    states = inputs @ params["w"]
    decays = jnp.broadcast_to(jax.nn.sigmoid(params["a"]), states.shape)
    joined = lax.associative_scan(lambda x, y: (x[0] * y[0], y[0] * x[1] + y[1]), (decays, states), axis=1)
    return joined[1][:, -1] @ params["o"]


def ending_in_a_parameter(flag):
    """End a branch that is taken or not, and an iteration, in a parameter."""

    def apply(params, inputs):
        default = jnp.broadcast_to(params["row"], inputs.shape)
        looped = lambda h: lax.fori_loop(0, 2, lambda _, c: c @ params["w"], h)  # noqa: E731
        hidden = lax.cond(params["flag"] > 0, looped, lambda _: default, inputs)

        def step(carry, _):
            state, previous = carry
            return (jnp.tanh(state + previous @ params["w"]), default), None

        (hidden, previous), _ = lax.scan(step, (hidden, inputs), None, length=3)
        return (hidden + previous) @ params["o"]

    return apply, TWO | {"row": drawn(4), "flag": jnp.asarray(flag)}, VECTORS, None


RULED |= {f"ending in a parameter, {flag}": ending_in_a_parameter(flag) for flag in (0, 1)}


@ruled((VECTORS, jax.random.split(jax.random.key(N), N)), ["o"])
def masked_by_keys(params, inputs, keys):
    masked = jax.vmap(lambda x, key: x * jax.random.bernoulli(key, 0.5, x.shape))(inputs, keys)
    return masked @ params["o"]


@ruled((3, 5, 3), ["up", "k", "line", "o"], up=(2, 2, 3, 4), b=(4,), k=(3, 2, 4, 3), line=(2, 3, 2), o=(8, 2))
def convolutions(params, inputs):
    """Convolve with dilations, strides, groups, paddings on one side, and under a map."""
    options, pad = {"dimension_numbers": ("NHWC", "HWIO", "NHWC")}, ((1, 1), (0, 1))
    maps = lax.conv_general_dilated(inputs, params["up"], (1, 1), pad, lhs_dilation=(2, 1), **options)
    conv = jax.vmap(lambda m: lax.conv_general_dilated(m, params["k"], (2, 1), "VALID", **options), 1, 1)
    maps = conv(jnp.tanh(maps + params["b"])[:, None])[:, 0].mean(1)
    own = {"dimension_numbers": ("NHC", "HIO", "NHC")}
    line = lax.conv_general_dilated(maps, params["line"], (1,), ((2, 0),), (1,), (2,), **own)
    return line.reshape(line.shape[0], -1) @ params["o"]


@ruled(IDS, ["o"], table=(6, 4), o=(4, 2))
def read_outside(params, ids):
    """Read what lies outside of a table as zeros, as the last row, and as the last row without a gradient."""
    table = params["table"].at[ids]
    read = table.get(mode="fill", fill_value=0.0) + table.get(mode="clip") + params["table"][ids]
    return jnp.tanh(read.sum(1)) @ params["o"]


@ruled(IDS, ["o"], table=(6, 4), o=(4, 2))
def read_inside(params, ids):
    """Read outside of a table in a branch, recomputed in a loop."""

    def layer(hidden, place):
        read = lambda table: lax.cond(place > 0, lambda t: t[ids], lambda t: 2 * t[ids], table)  # noqa: E731
        return jnp.tanh(hidden + jax.checkpoint(read)(params["table"]).mean(1)), None

    return lax.scan(layer, jnp.zeros((len(ids), 4)), jnp.arange(2))[0] @ params["o"]


@ruled(CHOSEN, WO)
def mask_of_the_chosen(params, inputs, ids):
    """Write a sample's values into zeros, by numbers of rows, as a router does."""
    hidden, rows = inputs @ params["w"], jnp.arange(len(ids))[:, None]
    chosen = jnp.take_along_axis(hidden, ids, 1)
    return jnp.zeros_like(hidden).at[rows, ids].set(jnp.tanh(chosen)) @ params["o"]


@ruled(CHOSEN, WO)
def into_the_batch(params, inputs, ids):
    hidden = jnp.tanh(inputs @ params["w"])
    return hidden.at[jnp.arange(len(ids)), ids[:, 0]].multiply(2.0) @ params["o"]


@ruled(layers=WO)
def beside_debugging(params, inputs):
    """Compute statistics of the batch, which no loss needs."""
    hidden = inputs @ params["w"]
    jax.debug.print("mean {}", hidden.mean())
    return {"logits": jnp.tanh(hidden) @ params["o"], "statistics": hidden.mean(0)}


def complex_layers(params, inputs):
    """Filter the spectrum, go through a complex layer, and read off the modulus."""
    spectrum = jnp.fft.ifft(jnp.fft.fft(inputs) * params["filter"])
    return jnp.abs(spectrum @ params["w"] + params["b"]) @ params["o"]


def complex_drawn(*shape):
    return lax.complex(drawn(*shape), drawn(*shape, seed=1))


COMPLEX = {"w": complex_drawn(4, 4), "b": complex_drawn(4), "filter": complex_drawn(4), "o": drawn(4, 2)}
RULED["complex parameters"] = complex_layers, COMPLEX, VECTORS, None
RULED["complex samples"] = lambda p, x: jnp.abs(x @ p["w"]) ** 2, TWO, complex_drawn(N, 4), ["w"]
