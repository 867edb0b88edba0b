"""Which sample of a batch makes its gradient: exact norms and shares, and what is said of them."""

from lai_core.diagnosis.report import Diagnosis, diagnose
from lai_core.diagnosis.spikes import SpikeLog, SpikeRule

__all__ = ["Diagnosis", "SpikeLog", "SpikeRule", "diagnose"]
