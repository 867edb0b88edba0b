"""One module a study; the registry of all of them."""

from experiments.harness.study import Study
from experiments.studies import cost, dynamics, fidelity, noisy_labels, pretraining

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (fidelity.STUDY, pretraining.STUDY, noisy_labels.STUDY, cost.STUDY, dynamics.STUDY)
}
"""In the order of the paper's sections 5 and 6."""
