"""One module a study; the registry of all of them."""

from experiments.harness.study import Study
from experiments.studies import dynamics, fidelity, noisy_labels

STUDIES: dict[str, Study] = {
    study.name: study for study in (fidelity.STUDY, noisy_labels.STUDY, dynamics.STUDY)
}
"""In the order of the paper's sections 5 and 6."""
