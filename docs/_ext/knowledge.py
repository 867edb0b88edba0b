"""What the pages know: the ledger, the links and the outcomes of the last full run."""

from __future__ import annotations

import json
import re
import tomllib

from docutils import nodes

from tests.support import kernel, ledger, proved


def _read(name: str) -> dict:
    path = ledger.ROOT / "build" / name
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def hypotheses(entry) -> str:
    """Say what is assumed, in a page's spelling, and what the paper states where that does not suffice."""
    assumed = re.sub(
        r"^(No assumption\.|The text states no assumption\.|[\w ]+:)|(?<=\. )(Violated by:)",
        r"*\g<0>*",
        ledger.hypotheses(entry),
    )
    return assumed + (f" *The text states:* {entry.printed}." if entry.printed else "")


class Known:
    """The ledger, the links and the outcomes of the last full run, read once for a build."""

    def __init__(self) -> None:
        """Read everything."""
        self.entries = ledger.read()
        self.links = ledger.find()
        self.run = _read("equations.json")
        self.claims = kernel.claims()
        self.defined = kernel.defined()
        self.witnessed = kernel.witnessed()
        self.audited = _read("kernel.json")
        self.proved = proved.proofs()
        self.finite = proved.finite_laws()
        self.theorems = proved.kernel()
        self.rests_on = proved.rests_on()
        numbers = ledger.ROOT / "docs" / "paper_numbers.toml"
        self.numbers = tomllib.loads(numbers.read_text(encoding="utf-8"))

    def place(self, slug: str) -> str:
        """Say where the paper prints a statement, with the numbers of its display."""
        place, numbers = self.entries[slug].place, self.numbers.get(slug, [])
        return place if "Eq." in place or not numbers else f"{place}, Eq. {', '.join(map(str, numbers))}"

    def axioms(self, key: str) -> str:
        """Say what the last ``make kernel`` found below a theorem, or below a ``witness CHAPTER.name``."""
        found = self.audited.get(key)
        return "not run" if found is None else "no axiom" if found == kernel.CLOSED else found

    def evidence(self, slug: str) -> list[str]:
        """Say how a statement is proved and tested, from the strongest kind to the weakest."""
        entry = self.entries[slug]
        return proved.evidence(
            slug,
            self.proved,
            self.theorems,
            self.run.get(slug, {}),
            refuted=entry.verdict == "false as printed",
            defined=self.defined.get(slug, ()),
            open_because=entry.reason or entry.outside,
        )

    def badge(self, slug: str) -> str:
        """Name the verdict on a printed statement; of one of ours, say whether its proof cites a part."""
        entry, settled = self.entries[slug], [proof for proof in self.proved if slug in proof.slugs]
        if "new" not in entry.source:
            return entry.verdict.capitalize()
        if any(proof.cites for proof in settled):
            return "Proved from cited results"
        return "Proved here" if slug in self.links.proofs else "Ours"

    def outcomes(self, slug: str, node: str) -> dict[str, str]:
        """Give the outcomes of a test or proof in the last full run, by parametrised name."""
        found = self.run.get(slug, {})
        every = found.get("tests", {}) | found.get("proofs", {})
        return {name: outcome for name, outcome in every.items() if name.partition("[")[0] == node}

    def summary(self, slug: str, node: str) -> str:
        """Say in a few words what the last full run found."""
        outcomes = self.outcomes(slug, node)
        if not outcomes:
            return "not run" if self.run else ""
        bad = sorted({outcome for outcome in outcomes.values() if outcome != "passed"})
        runs = f" ({len(outcomes)} cases)" if len(outcomes) > 1 else ""
        return f"{', '.join(bad) if bad else 'passed'}{runs}"

    def verified(self, slug: str) -> str:
        """Give one word for the last full run."""
        found = self.run.get(slug, {})
        outcomes = set((found.get("tests", {}) | found.get("proofs", {})).values())
        if not outcomes:
            return "no run"
        return "passed" if outcomes == {"passed"} else "failed"


def known_of(env) -> Known:
    """Give what is known, read once for a build."""
    if not hasattr(env.app, "ledger_known"):
        env.app.ledger_known = Known()
    return env.app.ledger_known


def node_page(node: str) -> str:
    return "source/" + node.partition("::")[0].removesuffix(".py")


def kernel_page(path: str) -> str:
    return "source/" + path.removesuffix(".v")


def anchor(node: str) -> str:
    """Name the function's anchor on that page."""
    return node.partition("::")[2].replace("::", ".")


def short(node: str) -> str:
    path, _, name = node.partition("::")
    return f"{path.rpartition('/')[2]}::{name.replace('::', '.')}"


def formula_anchor(slug: str) -> str:
    """Spell the anchor that Sphinx gives a labelled formula."""
    return nodes.make_id(f"equation-{slug}")


def formula_address(app, docname: str, slug: str) -> str | None:
    """Give the address of a labelled formula as seen from a page."""
    target = app.env.get_domain("math").equations.get(slug)
    if target is None:
        return None
    return f"{app.builder.get_relative_uri(docname, target[0])}#{formula_anchor(slug)}"
