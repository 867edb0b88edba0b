"""Which samples are bad? Scores of a whole data set: as one table, or batch by batch on any engine."""

from lai_jax.dataset.scorer import Scorer
from lai_jax.dataset.table import score_dataset, top_samples

__all__ = ["Scorer", "score_dataset", "top_samples"]
