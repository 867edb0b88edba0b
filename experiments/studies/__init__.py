"""One module a study; the registry of all of them."""

from experiments.harness.study import Study
from experiments.studies import cost, dynamics, fidelity, finetuning, noisy_labels, pretraining

ORDER = (fidelity, pretraining, finetuning, noisy_labels, cost, dynamics)
"""That of the paper's sections 5 and 6."""
STUDIES: dict[str, Study] = {study.STUDY.name: study.STUDY for study in ORDER}
