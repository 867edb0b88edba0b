"""Batches that are spread over a mesh: chosen rows stay spread, and explicit axes do not have to be named."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import jax
from jax.experimental.shard_alike import shard_alike
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

from lai_jax._program.losses import is_batched


@dataclass(frozen=True)
class Spread:
    """Over which devices rows lie.

    Without a constraint XLA puts rows that were chosen by their scores on every device, and each does
    the work of all.
    """

    # of a batch, of which the first axis counts; None: rows are left where XLA puts them
    sharding: NamedSharding | None = None

    def __call__(self, array: jax.Array, axis: int = 0) -> jax.Array:
        """Return an array whose rows, along an axis, are spread; as it is where they cannot be evenly."""
        if self.sharding is None or not self.sharding.spec or self.sharding.spec[0] is None:
            return array
        names = self.sharding.spec[0]
        listed = [names] if isinstance(names, str) else names
        devices = prod(self.sharding.mesh.shape[name] for name in listed)
        if array.shape[axis] % devices:
            return array
        free = PartitionSpec.UNCONSTRAINED
        spec = PartitionSpec(*(names if each == axis else free for each in range(array.ndim)))
        within = isinstance(self.sharding.mesh, AbstractMesh)  # whose axes `automatic` has changed
        target = spec if within else NamedSharding(self.sharding.mesh, spec)
        return jax.lax.with_sharding_constraint(array, target)


def explicit_sharding(name: str, tree: Any) -> Any:
    """Return how the first array of samples lies on a mesh with explicit axes, if on one.

    Raises inside `shard_map` and its like, where the function of this name sees one device's rows alone.
    """
    if AxisType.Manual in jax.sharding.get_abstract_mesh().axis_types:
        msg = (
            f"{name}: expected a batch that is whole, though it may be spread over devices, got the part "
            "that shard_map or pmap cuts off for one of them; use jax.jit on arrays with shardings"
        )
        raise ValueError(msg)
    for leaf in jax.tree.leaves(tree):
        if not is_batched(leaf):
            continue
        sharding = jax.typeof(leaf).sharding
        if AxisType.Explicit in sharding.mesh.axis_types:
            return sharding
    return None


def lay_like(old: jax.Array, new: jax.Array) -> jax.Array:
    """Return an array that lies on the devices as the one does whose place it takes.

    On automatic axes XLA is free to lay a result out as what was multiplied to get it.
    """
    return shard_alike(old, new)[1]


def automatic(function: Callable[..., Any], given: Sequence[Any], sharding: Any, outputs: Any) -> Any:
    """Run a function with the explicit axes of a mesh made automatic; what it returns lies as `outputs` say.

    Explicit axes ask every operation where its result lies. What a score needs of a batch has one answer
    for each, which XLA finds: rows stay where they are, sums are everywhere.
    """
    mesh = sharding.mesh
    kinds = zip(mesh.axis_names, mesh.axis_types, strict=True)
    names = tuple(name for name, kind in kinds if kind == AxisType.Explicit)
    with jax.sharding.use_abstract_mesh(mesh):
        return jax.sharding.auto_axes(function, axes=names, out_sharding=outputs)(*given)
