"""One module a study; the registry of all of them."""

from matplotlib.figure import Figure

from experiments.harness import page, record
from experiments.harness.study import Shown, Study
from experiments.studies import dynamics, fidelity, finetuning, noisy_labels, pretraining, recorded

ORDER: tuple[Shown, ...] = (
    fidelity.STUDY,
    pretraining.STUDY,
    finetuning.STUDY,
    noisy_labels.STUDY,
    recorded.COST,
    dynamics.STUDY,
    recorded.MIXTURES,
)
"""That of the paper's sections 5 and 6; then sources."""
SHOWN = {study.name: study for study in ORDER}
STUDIES = {study.name: study for study in ORDER if isinstance(study, Study)}


def pictures(name: str) -> dict[str, Figure]:
    return SHOWN[name].pictures(record.read(record.RESULTS / f"{name}.json"))


def tables(name: str) -> str:
    """Write a study's committed record as tables in markdown."""
    return page.tables(SHOWN[name])


def verdicts() -> str:
    """Count what became of the paper's own claims, study by study."""
    return page.verdicts(ORDER)
