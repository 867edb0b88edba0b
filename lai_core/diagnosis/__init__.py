"""Which sample of a batch makes its gradient: exact norms and shares, and what is said of them."""

from lai_core.diagnosis.report import Diagnosis, diagnose
from lai_core.diagnosis.spikes import SpikeRule

__all__ = ["Diagnosis", "SpikeRule", "diagnose"]
