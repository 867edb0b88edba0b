"""What the paper's text says of its own tables, and what the tables say: arithmetic, no experiment.

``CLAIMS`` feeds the page of the claims and the test of their verdicts.
"""

from __future__ import annotations

import statistics
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.support.ledger import ROOT

TABLES = tomllib.loads((ROOT / "docs" / "paper_tables.toml").read_text(encoding="utf-8"))
FINETUNE, SCORES, COST = TABLES["finetune"], TABLES["classification"], TABLES["cost"]


@dataclass(frozen=True)
class Claim:
    """A sentence about a table.

    Attributes
    ----------
    said
        The paper's words; in parentheses, what a table says without words.
    place
        Where it says them.
    found
        Computes the figures that the table gives, in the sentence's own unit.
    holds
        Whether those figures agree with the words.
    remark
        What else a reader should know.
    """

    said: str
    place: str
    found: Callable[[], Sequence[float]]
    holds: Callable[[Sequence[float]], bool]
    remark: str = ""
    digits: int = 1

    @property
    def verdict(self) -> bool:
        """Whether the claim holds."""
        return self.holds(self.found())

    @property
    def figures(self) -> str:
        """The figures as the page prints them."""
        return ", ".join(f"{figure:.{self.digits}f}" for figure in self.found())


def changes(table: dict[str, list[float]], new: str, old: str) -> list[float]:
    """Subtract column by column."""
    return [left - right for left, right in zip(table[new], table[old], strict=True)]


def shares(table: dict[str, list[float]], new: str, old: str) -> list[float]:
    """Divide column by column, in percent."""
    return [100 * left / right for left, right in zip(table[new], table[old], strict=True)]


def best() -> list[str]:
    """Name the best method of every column of Table 3."""
    rows = SCORES["accuracy"]
    return [
        max((row[index], name) for name, row in rows.items() if index < len(row))[1]
        for index in range(len(SCORES["columns"]))
    ]


def averages_off() -> list[float]:
    """Give how far each printed average of Table 3 is from the mean of its row."""
    return [abs(statistics.mean(row) - SCORES["average"][name]) for name, row in SCORES["accuracy"].items()]


CLAIMS = (
    Claim(
        "accuracy improvements of 0.6–1.2% are achieved across the four datasets",
        "Section 5, Table 2",
        lambda: changes(FINETUNE["accuracy"], "LAI", "Vanilla"),
        lambda found: min(found) > 0.55 and max(found) < 1.25,
        "0.6 to 1.4: MRPC goes from 72.0 to 73.4",
    ),
    Claim(
        "our method involves processing only half or fewer training samples",
        "Section 5, Table 2",
        lambda: shares(FINETUNE["samples"], "LAI", "Vanilla"),
        lambda found: max(found) <= 50,
        "true of RTE; the others keep a little over half",
        2,
    ),
    Claim(
        "validation loss decreases by nearly 20%",
        "Section 5, Table 2, SST-2",
        lambda: [100 - shares(FINETUNE["loss"], "LAI", "Vanilla")[0]],
        lambda found: 19 <= found[0] <= 20,
    ),
    Claim(
        "reductions of 30–50% are observed on the other three datasets",
        "Section 5, Table 2",
        lambda: [100 - share for share in shares(FINETUNE["loss"], "LAI", "Vanilla")[1:]],
        lambda found: min(found) >= 30 and max(found) <= 50,
    ),
    Claim(
        "slight improvements are observed",
        "Section 5, Table 1, perplexity",
        lambda: changes(TABLES["pretrain"]["perplexity"], "LAI", "Baseline"),
        lambda found: max(found) < 0,
        "a millionth of the perplexity; one run, without a spread",
        6,
    ),
    Claim(
        "[ghost] achieving over 5% improvement on average [over IP]",
        "Section 6, Table 3",
        lambda: [100 * SCORES["average"]["Ghost"] / SCORES["average"]["IP"] - 100],
        lambda found: found[0] > 5,
        "percent of IP's accuracy; in points, the unit of Table 2's sentence, it is 4.51",
        2,
    ),
    Claim(
        "our LAI further outperforms ghost influence in most cases",
        "Section 6, Table 3, LAI minus Ghost",
        lambda: changes(SCORES["accuracy"], "LAI", "Ghost"),
        lambda found: sum(change > 0 for change in found) > len(found) / 2,
        "5 of 6, two of them by 0.1 or less, with a spread of 0.5 to 1.2",
        2,
    ),
    Claim(
        "[LAI] maintaining improved performance in general [over LLI]",
        "Section 6, Table 3, LAI minus LLI",
        lambda: changes(SCORES["accuracy"], "LAI", "LLI"),
        lambda found: sum(change > 0 for change in found) > len(found) / 2,
        "3 of 6: LLI is the better one on CIFAR-100N, 20News-N and Emotion-N",
        2,
    ),
    Claim(
        "(the best entry of each column is bold)",
        "Section 6, Table 3",
        lambda: [sum(bold != name for bold, name in zip(SCORES["bold"], best(), strict=True))],
        lambda found: found[0] == 0,
        "columns whose bold entry is not the largest: on Emotion-N IP has 89.30, bold is LiSSA's 89.24",
        0,
    ),
    Claim(
        "(the averages)",
        "Section 6, Table 3",
        lambda: [max(averages_off())],
        lambda found: found[0] < 0.006,
        "the largest distance of a printed average from the mean of its row",
        3,
    ),
    Claim(
        "ghost influence takes over 2.5 times running time [...] on 20News-N in terms of GFLOP",
        "Section 6, Table 4",
        lambda: [COST["operations"]["Ghost"][2] / COST["operations"][name][2] for name in ("LLI", "LAI")],
        lambda found: min(found) > 2.5,
        "operations, no times are reported; on the other datasets 1.84 to 1.85",
        2,
    ),
    Claim(
        "nearly 1.5 times memory over LLI or LAI on 20News-N",
        "Section 6, Table 4",
        lambda: [COST["memory"]["Ghost"][2] / COST["memory"][name][2] for name in ("LLI", "LAI")],
        lambda found: all(1.45 <= ratio <= 1.5 for ratio in found),
        "1.49 over LAI; over LLI it is 1.59",
        2,
    ),
    Claim(
        "LAI requires almost the same computational resources as LLI",
        "Section 6, Table 4, operations",
        lambda: [share - 100 for share in shares(COST["operations"], "LAI", "LLI")],
        lambda found: max(found) < 1,
        "percent more",
        2,
    ),
    Claim(
        "LAI requires almost the same computational resources as LLI",
        "Section 6, Table 4, memory",
        lambda: [share - 100 for share in shares(COST["memory"], "LAI", "LLI")],
        lambda found: max(found) < 5,
        "percent more; Emotion-N's 9053.64 looks like a slip of the pen for 8053.64",
    ),
)
