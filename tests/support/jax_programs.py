"""Random JAX programs: layers, loops, branches and rules in any order, with parameters in every disguise.

`program(seed)` returns a model that nobody wrote by hand. Its values are vectors `(n, d)` or tokens
`(n, t, d)`; each block takes them to others, and asks `Store` for weights, which may be leaves of their own,
parts of others, shared, or computed. Sizes are small and often equal to the number of samples, so that no
axis can be told by its size.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Shape = tuple[int, ...]
Weight = Callable[[Any], Any]
Block = Callable[[Any, Any], Any]


Way = tuple[Callable[[Shape], list[Shape]], int, Callable[..., Any]]
"""Of a weight's shape those of leaves; a number of choices; what is made of shape, choice and leaves."""
LEAF: Way = (lambda shape: [shape], 1, lambda _, __, leaf: leaf)
ANY: list[Way] = [
    LEAF,
    LEAF,
    (lambda shape: [(2, *shape)], 2, lambda _, row, leaf: leaf[row]),
    (lambda shape: [shape, ()], 1, lambda _, __, leaf, scale: jnp.tanh(leaf) * (1 + scale)),
    (lambda shape: [(int(np.prod(shape)),)], 1, lambda shape, _, leaf: leaf.reshape(shape)),
    (lambda shape: [shape], 1, lambda _, __, leaf: lax.stop_gradient(leaf)),
]
SLICED: Way = (
    lambda shape: [(shape[0] + 2, *shape[1:])],
    3,
    lambda shape, start, leaf: leaf[start : start + shape[0]],
)
TURNED: Way = (lambda shape: [shape[::-1]], 1, lambda _, __, leaf: leaf.T)
MATRICES = [
    TURNED,
    TURNED,
    (lambda shape: [(shape[0], 1), (1, shape[1])], 1, lambda _, __, one, two: one @ two),
]


@dataclass
class Store:
    """Parameters, and ways to take weights from them."""

    draw: np.random.Generator
    params: dict[str, Any] = field(default_factory=dict)

    def leaf(self, *shape: int) -> str:
        name = f"p{len(self.params)}"
        scale = 1 / np.sqrt(max(shape[-2] if len(shape) > 1 else 2, 1))
        self.params[name] = np.asarray(scale * self.draw.standard_normal(shape))
        return name

    def old(self, *shape: int) -> str:
        """Return a leaf of a shape, an old one where there is one and luck has it."""
        fitting = [name for name, value in self.params.items() if value.shape == shape]
        if fitting and self.draw.random() < 0.4:
            return str(self.draw.choice(fitting))
        return self.leaf(*shape)

    def weight(self, *shape: int) -> Weight:
        """Return how to take a weight of a shape from the parameters."""
        ways = [*ANY, None, *([SLICED] if shape else []), *(MATRICES if len(shape) == 2 else [])]
        way = ways[self.draw.integers(len(ways))]
        if way is None:  # one that the function captures
            value = jnp.asarray(0.5 * self.draw.standard_normal(shape))
            return lambda p: value
        shapes, choices, made = way
        names = [self.old(*own) for own in shapes(shape)]
        choice = int(self.draw.integers(choices)) if choices > 1 else 0
        return lambda p: made(shape, choice, *(p[name] for name in names))


@jax.custom_jvp
def softened(x: Any) -> Any:
    return jnp.sin(x)


softened.defjvp(lambda primals, tangents: (jnp.sin(primals[0]), jnp.cos(primals[0]) * tangents[0]))


@jax.custom_vjp
def squashed(x: Any) -> Any:
    return jnp.tanh(x)


squashed.defvjp(lambda x: (jnp.tanh(x), jnp.tanh(x)), lambda y, ct: (ct * (1 - y**2),))

FUNCTIONS: list[Callable[[Any], Any]] = [
    jnp.tanh,
    jax.nn.gelu,
    jax.nn.softplus,
    softened,
    squashed,
    jax.jit(lambda x: jnp.where(x > 0, x, 0.1 * x)),
    jax.checkpoint(lambda x: jnp.sin(x) * x / (1 + x * x)),
]


@dataclass
class Drawing:
    """A program in the making: the shape of its value, without the samples' axis, and the blocks so far."""

    draw: np.random.Generator
    store: Store
    shape: Shape
    blocks: list[Block] = field(default_factory=list)

    def size(self) -> int:
        return int(self.draw.integers(1, 5))

    def function(self) -> Callable[[Any], Any]:
        return FUNCTIONS[self.draw.integers(len(FUNCTIONS))]

    def add(self, block: Block, shape: Shape | None = None) -> None:
        self.blocks.append(block)
        self.shape = self.shape if shape is None else shape

    def dense(self) -> None:
        width, out = self.shape[-1], self.size()
        weight, specs = self.store.weight(width, out), ("...i,io->...o", "io,...i->...o")
        spec = specs[self.draw.integers(2)]
        order = (lambda h, w: (h, w)) if spec.startswith("...") else (lambda h, w: (w, h))
        self.add(lambda p, h: jnp.einsum(spec, *order(h, weight(p))), (*self.shape[:-1], out))

    def activated(self) -> None:
        function = self.function()
        self.add(lambda p, h: function(h))

    def bias(self) -> None:
        bias = self.store.weight(self.shape[-1])
        self.add(lambda p, h: h + bias(p))

    def gain(self) -> None:
        gain, offset = self.store.weight(self.shape[-1]), self.store.weight()
        self.add(lambda p, h: h * (1 + gain(p)) - 0.1 * offset(p))

    def normalised(self) -> None:
        self.add(lambda p, h: (h - h.mean(-1, keepdims=True)) / jnp.sqrt(h.var(-1, keepdims=True) + 0.5))

    def residual(self) -> None:
        weight, function = self.store.weight(self.shape[-1], self.shape[-1]), self.function()
        self.add(lambda p, h: h + function(h @ weight(p)))

    def per_position(self) -> None:
        """Add a parameter with an entry for each position, or for each feature of the sample."""
        own = self.store.weight(*self.shape)
        self.add(lambda p, h: jnp.tanh(h * own(p)))

    def token(self) -> None:
        """Put a parameter beside what the samples hold."""
        own = self.store.weight(*self.shape[:-1], 2)
        self.add(
            lambda p, h: jnp.concatenate([h, jnp.broadcast_to(own(p), (h.shape[0], *own(p).shape))], -1),
            (*self.shape[:-1], self.shape[-1] + 2),
        )

    def to_tokens(self) -> None:
        if len(self.shape) == 2:
            return self.flattened()
        tokens, width = int(self.draw.integers(2, 4)), self.size()
        weight = self.store.weight(self.shape[0], tokens * width)
        return self.add(lambda p, h: jnp.tanh(h @ weight(p)).reshape(-1, tokens, width), (tokens, width))

    def flattened(self) -> None:
        tokens, width = self.shape
        if self.draw.random() < 0.5:
            return self.add(lambda p, h: h.sum(1), (width,))
        return self.add(lambda p, h: h.reshape(h.shape[0], -1), (tokens * width,))

    def swapped(self) -> None:
        """Put positions before samples, and merge both: samples are then inside an axis."""
        width, out = self.shape[-1], self.size()
        weight, shape, first = self.store.weight(width, out), self.shape, bool(self.draw.integers(2))

        def block(p: Any, h: Any) -> Any:
            axes = (1, 0, 2) if first else (0, 1, 2)
            moved = h.transpose(axes)
            merged = jnp.tanh(moved.reshape(-1, width) @ weight(p))
            return merged.reshape(*moved.shape[:2], out).transpose(axes)

        if len(shape) == 2:
            self.add(block, (shape[0], out))

    def attention(self) -> None:
        if len(self.shape) == 1:
            return
        width = self.shape[-1]
        query, key, value = (self.store.weight(width, 2, 2) for _ in range(3))
        out = self.store.weight(2, 2, width)

        def block(p: Any, h: Any) -> Any:
            q, k, v = (jnp.einsum("ntd,dhe->nthe", h, part(p)) for part in (query, key, value))
            weights = jax.nn.softmax(jnp.einsum("nthe,nshe->nhts", q, k))
            return h + jnp.einsum("nhts,nshe,hed->ntd", weights, v, out(p))

        self.add(block)

    def convolution(self) -> None:
        if len(self.shape) == 1:
            return
        tokens, width = self.shape
        out, reach = self.size(), int(self.draw.integers(1, 3))
        kernel = self.store.weight(reach, width, out)
        numbers, padding = ("NWC", "WIO", "NWC"), [(0, reach - 1)]
        self.add(
            lambda p, h: jnp.tanh(
                lax.conv_general_dilated(h, kernel(p), (1,), padding, dimension_numbers=numbers)
            ),
            (tokens, out),
        )

    def stacked(self) -> None:
        """Scan over layers: stacked weights, and one that all iterations share."""
        width, length = self.shape[-1], int(self.draw.integers(1, 4))
        stack, shared = self.store.weight(length, width, width), self.store.weight(width)
        options = {"reverse": bool(self.draw.integers(2)), "unroll": int(self.draw.integers(1, 3))}

        def block(p: Any, h: Any) -> Any:
            def layer(state: Any, weight: Any) -> Any:
                state = jnp.tanh(state @ weight + shared(p))
                return state, state.sum(-1, keepdims=True)

            state, sums = lax.scan(layer, h, stack(p), **options)
            return state + sums.sum(0)

        self.add(block)

    def recurrent(self) -> None:
        """Run over positions with a state that begins as a parameter."""
        if len(self.shape) == 1:
            return
        width, state_width = self.shape[-1], self.size()
        inwards, onwards = self.store.weight(width, state_width), self.store.weight(state_width, state_width)
        start = self.store.weight(state_width)

        def block(p: Any, h: Any) -> Any:
            def layer(state: Any, token: Any) -> Any:
                state = jnp.tanh(token @ inwards(p) + state @ onwards(p))
                return state, state

            begin = jnp.broadcast_to(start(p), (h.shape[0], state_width))
            return jnp.moveaxis(lax.scan(layer, begin, jnp.moveaxis(h, 1, 0))[1], 0, 1)

        self.add(block, (self.shape[0], state_width))

    def branched(self) -> None:
        width, choice = self.shape[-1], self.store.leaf()
        weight, bias, function = self.store.weight(width, width), self.store.weight(width), self.function()

        def block(p: Any, h: Any) -> Any:
            branches = lambda v: function(v @ weight(p)), lambda v: v * bias(p)
            return lax.cond(p[choice] > 0, *branches, h)

        self.add(block)

    def looped(self) -> None:
        """Loop with fixed bounds through one weight, or without a known end through none."""
        width = self.shape[-1]
        weight, ends = self.store.weight(width, width), bool(self.draw.integers(2))
        if ends:
            return self.add(lambda p, h: lax.fori_loop(0, 2, lambda _, v: jnp.tanh(v @ weight(p)), h))
        count = int(self.draw.integers(1, 3))

        def counted(p: Any, h: Any) -> Any:
            scale = lax.while_loop(lambda s: s[0] < count, lambda s: (s[0] + 1, 0.5 * s[1]), (0, 1.0))[1]
            return h * scale

        return self.add(counted)

    def mapped(self) -> None:
        """Map a function of one sample over samples."""
        width, out = self.shape[-1], self.size()
        weight, bias, function = self.store.weight(width, out), self.store.weight(out), self.function()
        once = jax.checkpoint if self.draw.random() < 0.5 else jax.jit
        self.add(
            lambda p, h: jax.vmap(once(lambda v: function(v @ weight(p) + bias(p))))(h),
            (*self.shape[:-1], out),
        )

    def looked_up(self) -> None:
        """Read rows of a table by what a sample holds, and weigh them with it."""
        table, width = self.store.weight(4, self.shape[-1]), self.shape[-1]

        def block(p: Any, h: Any) -> Any:
            ids = jnp.clip(jnp.floor(jnp.abs(lax.stop_gradient(h[..., 0])) * 3), 0, 3).astype(int)
            return h + table(p)[ids]

        if width:
            self.add(block)

    def sorted_and_summed(self) -> None:
        self.add(lambda p, h: jnp.sort(h, -1) + jnp.cumsum(h, -1) + h.max(-1, keepdims=True))


BLOCKS = """
    activated bias gain normalised residual per_position token to_tokens swapped attention convolution
    stacked recurrent branched looped mapped looked_up sorted_and_summed dense dense dense
"""


@dataclass(frozen=True)
class Program:
    """A model, its parameters, and a batch."""

    apply: Callable[[Any, Any], Any]
    params: dict[str, Any]
    inputs: Any
    targets: Any
    made_of: tuple[str, ...]
    last: str | None
    """Name of the last layer; None where LAI reads none such."""


def losses(outputs: Any, targets: Any) -> Any:
    """Sum every sample's squared distances from its target, each weighted by its place."""
    flat = outputs.reshape(outputs.shape[0], -1)
    return ((flat - targets[:, None]) ** 2 * jnp.arange(1.0, flat.shape[1] + 1)).sum(-1)


def program(seed: int) -> Program:
    """Draw a program of up to seven blocks and a head, and a batch of up to four samples."""
    draw = np.random.default_rng(seed)
    shape = tuple(int(size) for size in draw.integers(1, 5, int(draw.integers(1, 3))))
    drawing = Drawing(draw, Store(draw), shape)
    names = tuple(str(name) for name in draw.choice(BLOCKS.split(), int(draw.integers(1, 8))))
    for name in names:
        getattr(drawing, name)()
    width = drawing.shape[-1]
    name, out = drawing.store.leaf(width, 2), drawing.store.weight(2)
    samples = int(draw.integers(1, 5))
    heads: list[tuple[Block, str | None]] = [
        (lambda p, h: h @ p[name] + out(p), name),
        (lambda p, h: jnp.tanh(h @ p[name] * (1 + out(p))), name),
        (lambda p, h: (h[..., None] * p[name]).sum(-2) + out(p), None if width > 1 else ""),
        (lambda p, h: -((h[..., None] - p[name]) ** 2).sum(-2), None if width > 1 else ""),
    ]
    head, last = heads[draw.integers(4)]
    drawing.add(head if last != "" else heads[0][0])
    blocks, last = tuple(drawing.blocks), last if last != "" else name

    def apply(params: Any, inputs: Any) -> Any:
        for block in blocks:
            inputs = block(params, inputs)
        return inputs

    inputs = draw.standard_normal((samples, *shape))
    return Program(apply, drawing.store.params, inputs, draw.standard_normal(samples), names, last)
