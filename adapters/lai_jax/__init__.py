"""lai_core for JAX: from any function of parameters to a trace, and back into the training loop."""

from lai_jax import _pytrees as _pytrees
from lai_jax.trace import trace

__all__ = ["trace"]
