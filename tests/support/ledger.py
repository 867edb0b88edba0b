"""The ledger: every statement of the paper, and what stands behind it in this repository.

``docs/equations.toml`` says what cannot be derived. The rest is found in the sources, by
reading them and never by running them:

* functions, by the docstring line ``Implements :eq:`slug`.``;
* tests, by ``@pytest.mark.equation("slug")`` under ``tests/``;
* proofs, by ``@settled("slug", STATEMENT, MUTANTS)`` or the same mark under ``proofs/``;
* pages, by the labelled formula ``$$ ... $$ (slug)`` under ``docs/theory/``.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VERDICTS = ("exact", "needs assumptions", "false as printed", "schematic", "assumption")
SOURCES = ("equation", "display", "assumption", "text", "new")
KINDS = ("definition", "identity", "bound", "claim", "assumption")

_IMPLEMENTS = re.compile(r"Implements\s+((?::eq:`[^`]+`[\s,]*(?:and\s+)?)+)")
_MATHEMATICS = re.compile(r"\$([^$]+)\$")
_ROLE = re.compile(r":eq:`([^`]+)`")
_LABEL = re.compile(r"^\$\$\s*\(([\w-]+)\)\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Entry:
    """What the ledger says of one statement."""

    title: str
    source: tuple[str, ...]
    place: str
    kind: str
    verdict: str
    given: str
    printed: str = ""
    attained: bool = False
    corrected: tuple[str, ...] = ()
    reason: str = ""
    outside: str = ""
    satisfied: str = ""
    violated: str = ""


@dataclass
class Links:
    """What stands behind each slug: dotted functions, node ids, pages."""

    functions: dict[str, list[str]] = field(default_factory=dict)
    tests: dict[str, list[str]] = field(default_factory=dict)
    proofs: dict[str, list[str]] = field(default_factory=dict)
    pages: dict[str, list[str]] = field(default_factory=dict)


def read(root: Path = ROOT) -> dict[str, Entry]:
    tables = tomllib.loads((root / "docs" / "equations.toml").read_text(encoding="utf-8"))
    entries = {}
    for slug, table in tables.items():
        lists = {name: tuple(table.get(name, ())) for name in ("source", "corrected")}
        entries[slug] = Entry(**(table | lists))
    return entries


def find(root: Path = ROOT) -> Links:
    """Find every link in the sources."""
    links = Links()
    exported = exported_names(root / "lai_core" / "__init__.py")
    for path in sorted((root / "lai_core").rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        module = ".".join(part for part in parts if not part.startswith("_"))
        for name, node in definitions(ast.parse(path.read_text(encoding="utf-8"))):
            home = "lai_core" if name.partition(".")[0] in exported else module
            for slug in implemented(ast.get_docstring(node) or ""):
                links.functions.setdefault(slug, []).append(f"{home}.{name}")
    for folder, found in (("tests", links.tests), ("proofs", links.proofs)):
        for path in sorted((root / folder).rglob("*.py")):
            if path.name.startswith(("test_", "prove_")):
                for slug, node in _marked(path, root):
                    found.setdefault(slug, []).append(node)
    for path in sorted((root / "docs" / "theory").glob("*.md")):
        for slug in _LABEL.findall(path.read_text(encoding="utf-8")):
            links.pages.setdefault(slug, []).append(path.relative_to(root).as_posix())
    return links


def problems(ledger: Mapping[str, Entry], links: Links) -> list[str]:
    """List everything that keeps the ledger from being whole, one line each."""
    return [
        *(line for slug, entry in ledger.items() for line in _wrong_entry(slug, entry, ledger)),
        *(
            f"{slug}: unknown slug, named by {kind} {', '.join(places)}"
            for kind in ("functions", "tests", "proofs", "pages")
            for slug, places in getattr(links, kind).items()
            if slug not in ledger
        ),
        *(f"{slug}: labelled twice, in {pages}" for slug, pages in links.pages.items() if pages[1:]),
        *(line for slug, entry in ledger.items() for line in _missing_links(slug, entry, links)),
    ]


def is_counterexample(node: str) -> bool:
    """Whether a test says by its name that it pins a counterexample."""
    return "counterexample" in node.rpartition("::")[2]


def _wrong_entry(slug: str, entry: Entry, ledger: Mapping[str, Entry]) -> Iterator[str]:
    if entry.verdict not in VERDICTS:
        yield f"{slug}: verdict {entry.verdict!r} is none of {VERDICTS}"
    if entry.kind not in KINDS:
        yield f"{slug}: kind {entry.kind!r} is none of {KINDS}"
    if not entry.source or not set(entry.source) <= set(SOURCES):
        yield f"{slug}: source {entry.source} is not among {SOURCES}"
    if not entry.given.strip():
        yield f'{slug}: does not say what is assumed; "none" if nothing is'
    if entry.attained and entry.kind != "bound":
        yield f"{slug}: only a bound can be attained"
    if entry.printed and entry.verdict != "needs assumptions":
        yield f"{slug}: only a statement that needs assumptions says apart which of them the paper states"
    examples = bool(entry.satisfied), bool(entry.violated)
    if {entry.kind == "assumption", *examples} != {entry.verdict == "assumption"}:
        yield f"{slug}: an assumption, and nothing else, says what satisfies it and what violates it"
    if entry.reason and entry.source != ("text",):
        yield f"{slug}: only a claim in running text may carry a reason instead of a proof"
    if entry.verdict == "false as printed" and not entry.corrected:
        yield f"{slug}: false as printed, and no corrected statement"
    for other in entry.corrected:
        if other not in ledger:
            yield f"{slug}: corrected by {other!r}, which is not in the ledger"


def _missing_links(slug: str, entry: Entry, links: Links) -> Iterator[str]:
    """Ask for function, test, proof and page; a claim in text may lean on its correction."""
    leaning = entry.source == ("text",)
    behind = (slug, *entry.corrected) if leaning else (slug,)
    wanted = [] if entry.reason else ["functions", "tests", "proofs"]
    for kind in wanted:
        found = getattr(links, kind)
        names = (slug,) if kind == "tests" else behind
        if not any(name in found for name in names):
            yield f"{slug}: no {kind[:-1]}"
    if slug not in links.pages:
        yield f"{slug}: no page"
    pinned = any(is_counterexample(node) for node in links.tests.get(slug, ()))
    if entry.verdict == "false as printed" and not pinned:
        yield f"{slug}: false as printed, and no test with 'counterexample' in its name"


def hypotheses(entry: Entry) -> str:
    """Say what is assumed, and of an assumption what satisfies it and what does not."""
    if entry.verdict == "assumption":
        return f"Satisfied by: {entry.satisfied}. Violated by: {entry.violated}."
    printed = entry.verdict in {"false as printed", "schematic"}
    if entry.given == "none":
        return "The text states no assumption." if printed else "No assumption."
    return f"{'The text assumes' if printed else 'Assume'}: {entry.given}."


def assumed(entry: Entry) -> list[str]:
    """List the hypotheses of a statement, one by one."""
    return [] if entry.given == "none" else entry.given.split("; ")


def stated(entry: Entry) -> list[str] | None:
    """List the hypotheses that the paper states where it prints what then fails; None where nothing fails."""
    if entry.verdict == "false as printed":
        return assumed(entry)
    return entry.printed.split("; ") if entry.printed else None


def assumptions(slugs: Iterable[str], entries: Mapping[str, Entry]) -> list[str]:
    """Give the lines with which a function's page says what these statements assume."""
    by_words: dict[str, list[str]] = {}
    for slug in dict.fromkeys(slugs):
        by_words.setdefault(hypotheses(entries[slug]), []).append(slug)
    lines = []
    for words, named in by_words.items():
        whose = " and ".join(f":eq:`{slug}`" for slug in named) + ". " if len(by_words) > 1 else ""
        lines.append(whose + _MATHEMATICS.sub(r":math:`\1`", words))
    return lines


def implemented(docstring: str) -> list[str]:
    """List the slugs that a docstring says its function implements."""
    return [slug for listed in _IMPLEMENTS.findall(docstring) for slug in _ROLE.findall(listed)]


def exported_names(path: Path) -> set[str]:
    if not path.exists():
        return set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def definitions(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, node
        if isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef):
                    yield f"{node.name}.{inner.name}", inner


def _marked(path: Path, root: Path) -> Iterator[tuple[str, str]]:
    """Slugs on functions, on their classes and on the whole module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    place = path.relative_to(root).as_posix()
    everywhere = [
        slug
        for node in tree.body
        if isinstance(node, ast.Assign) and any(getattr(t, "id", "") == "pytestmark" for t in node.targets)
        for slug in slugs_of(node.value)
    ]
    for name, node in definitions(tree):
        if not isinstance(node, ast.FunctionDef):
            continue
        outer = next((c for c in tree.body if isinstance(c, ast.ClassDef) and node in c.body), None)
        decorators = [*node.decorator_list, *(outer.decorator_list if outer else [])]
        for slug in [*everywhere, *(s for decorator in decorators for s in slugs_of(decorator))]:
            if node.name.startswith(("test_", "prove_")):
                yield slug, f"{place}::{name.replace('.', '::')}"


def slugs_of(tree: ast.AST) -> Iterable[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"pytest.mark.equation", "settled"}:
            yield from (a.value for a in node.args if isinstance(a, ast.Constant))
