"""Which sample of a batch makes its gradient: exact norms and shares, and what is said of them."""

from lai_core.diagnosis._noise_scale import (
    NoiseScaleEstimate,
    estimate_noise_scale,
    fieller_interval,
    gradient_noise,
)
from lai_core.diagnosis.report import Diagnosis, diagnose
from lai_core.diagnosis.spikes import SpikeLog, SpikeRule

__all__ = [
    "Diagnosis",
    "NoiseScaleEstimate",
    "SpikeLog",
    "SpikeRule",
    "diagnose",
    "estimate_noise_scale",
    "fieller_interval",
    "gradient_noise",
]
