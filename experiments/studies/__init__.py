"""One module a study; the registry of all of them."""

from matplotlib.figure import Figure

from experiments.harness import page, record
from experiments.harness.study import Study
from experiments.studies import (
    cost,
    dynamics,
    fidelity,
    finetuning,
    mixtures,
    noisy_labels,
    pretraining,
)

ORDER = (
    fidelity,
    pretraining,
    finetuning,
    noisy_labels,
    cost,
    dynamics,
    mixtures,
)
"""That of the paper's sections 5 and 6; then sources."""
STUDIES: dict[str, Study] = {study.STUDY.name: study.STUDY for study in ORDER}


def pictures(name: str) -> dict[str, Figure]:
    """Draw a study's committed record."""
    return STUDIES[name].pictures(record.read(record.RESULTS / f"{name}.json"))


def tables(name: str) -> str:
    """Write a study's committed record as tables in markdown."""
    return page.tables(STUDIES[name])


def verdicts() -> str:
    """Count what became of the paper's own claims, study by study."""
    return page.verdicts(STUDIES.values())
