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
    """A sentence about a table."""

    said: str  # the paper's words; in parentheses, what a table says without words
    place: str  # where it says them
    found: Callable[[], Sequence[float]]  # the figures that the table gives, in the sentence's own unit
    holds: Callable[[Sequence[float]], bool]  # whether those figures agree with the words
    remark: str = ""  # what else a reader should know
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


def wins(method: str, other: str, columns: slice = slice(None)) -> list[float]:
    """Count the columns of Table 3, and those in which one method is better than another."""
    rows = SCORES["accuracy"][method][columns], SCORES["accuracy"][other][columns]
    pairs = list(zip(*rows, strict=False))  # what ran out of memory has no figure
    return [sum(left > right for left, right in pairs), len(pairs)]


IMAGES, TEXTS = slice(4), slice(4, None)
STATIC = ("LiSSA", "DataInf", "TRAK", "IP")


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
    Claim(
        "reducing memory/FLOPs by roughly an order of magnitude",
        "Appendix B, against Table 4: Ghost over LAI, operations, then memory",
        lambda: [x / 100 for kind in ("operations", "memory") for x in shares(COST[kind], "Ghost", "LAI")],
        lambda found: min(found) > 5,
        "between 1.1 and 2.6 times",
        2,
    ),
    Claim(
        "enabling single-run training with minimal overhead",
        "Section 1, against Table 4: LAI over Vanilla, operations, then memory",
        lambda: [x / 100 for kind in ("operations", "memory") for x in shares(COST[kind], "LAI", "Vanilla")],
        lambda found: max(found) < 1.1,
        "twice the operations on images; on 20News-N fewer than plain training, which no sentence explains",
        2,
    ),
    Claim(
        "[LAI's] superior performance is achieved while requiring fewer computational resources [than Ghost]",
        "Section 6, Table 4: LAI over Ghost, operations, then memory",
        lambda: [x / 100 for kind in ("operations", "memory") for x in shares(COST[kind], "LAI", "Ghost")],
        lambda found: max(found) < 1,
        "",
        2,
    ),
    Claim(
        "LLI and LAI [...] delivering superior performance to the vanilla method",
        "Section 6, Table 3: LLI minus Vanilla, then LAI minus Vanilla",
        lambda: [x for name in ("LLI", "LAI") for x in changes(SCORES["accuracy"], name, "Vanilla")],
        lambda found: min(found) > 0,
        "both on average; on CIFAR-10N-a neither, on CIFAR-10N-r LAI alone",
        2,
    ),
    Claim(
        "In image datasets, static influence-based two-round training methods often result in [...] inferior "
        "performance",
        "Section 6, Table 3: image columns in which a static method is behind Vanilla, of how many",
        lambda: [
            sum(column) for column in zip(*(wins("Vanilla", name, IMAGES) for name in STATIC), strict=True)
        ],
        lambda found: found[0] > found[1] / 2,
        "all of them",
        0,
    ),
    Claim(
        "on text datasets, static influence-based methods tend to perform effectively",
        "Section 6, Table 3: text columns in which a static method is ahead of Vanilla, of how many",
        lambda: [
            sum(column) for column in zip(*(wins(name, "Vanilla", TEXTS) for name in STATIC), strict=True)
        ],
        lambda found: found[0] > found[1] / 2,
        "all of them; TRAK ran out of memory",
        0,
    ),
    Claim(
        "IP [...] outperforms other static influence-based methods [with] Hessian approximations",
        "Section 6, Table 3: columns in which IP is ahead of LiSSA and DataInf, of how many",
        lambda: [sum(column) for column in zip(*(wins("IP", name) for name in STATIC[:2]), strict=True)],
        lambda found: found[0] == found[1],
        "all of them; TRAK, which projects gradients, is ahead of IP on every image dataset",
        0,
    ),
    Claim(
        "SPL [...] show inconsistent results across datasets",
        "Section 6, Table 3: columns in which SPL is ahead of Vanilla, of how many",
        lambda: wins("SPL", "Vanilla"),
        lambda found: 0 < found[0] < found[1],
        "",
        0,
    ),
    Claim(
        "particularly on the challenging CIFAR-100N dataset [LAI outperforms Ghost]",
        "Section 6, Table 3: LAI minus Ghost on CIFAR-100N, and the most on the others",
        lambda: (
            [found[3] for found in [changes(SCORES["accuracy"], "LAI", "Ghost")]]
            + [max(x for i, x in enumerate(changes(SCORES["accuracy"], "LAI", "Ghost")) if i != 3)]
        ),
        lambda found: found[0] > found[1],
        "",
        2,
    ),
    Claim(
        "[saving] checkpoints every 100 steps for a total of 100 checkpoints",
        "Section 5, fidelity: 10,000 iterations",
        lambda: [10_000 / 100],
        lambda found: found[0] == 100,
        "",
        0,
    ),
    Claim(
        "(training samples per epoch of plain training are the training sets of the appendix)",
        "Section 5, Table 2, against Appendix D",
        lambda: FINETUNE["samples"]["Vanilla"],
        lambda found: list(found) == [67349, 3668, 104743, 2490],
        "",
        0,
    ),
)
