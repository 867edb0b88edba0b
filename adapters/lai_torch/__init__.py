"""lai_core for PyTorch: from a model to a trace, and back into the training loop."""

from lai_torch.coverage import Coverage, coverage
from lai_torch.curator import Curator, Report
from lai_torch.exact import exact_scores
from lai_torch.selfcheck import SelfCheck, selfcheck
from lai_torch.trace import trace

__all__ = ["Coverage", "Curator", "Report", "SelfCheck", "coverage", "exact_scores", "selfcheck", "trace"]
