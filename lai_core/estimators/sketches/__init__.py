r"""Random sketches of the output gradients: LAI on exact pairs of tokens at a fraction of the outputs.

With as many outputs as a vocabulary has words, what LAI's exact pairs of positions cost is the number
of outputs: `n t d_L D` multiply-adds, `D` the layers' summed widths. A sketch adds the outputs up in
`width` random groups with random signs, the same on both sides, and `d_L` becomes `width`.
"""

from lai_core.estimators.sketches._sketch import sketch_outputs, sketch_variance

__all__ = ["sketch_outputs", "sketch_variance"]
