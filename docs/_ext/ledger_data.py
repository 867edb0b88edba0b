"""The ledger as data: ``statements.json``."""

from __future__ import annotations

import functools
import hashlib
import json
from pathlib import Path

from knowledge import formula_address, known_of

from tests.support import ledger

SCHEMA = Path(__file__).with_name("statements.schema.json")


def data(app):
    known = known_of(app.env)
    return {slug: _entry(app, known, slug) for slug in known.entries}


def _entry(app, known, slug):
    entry, run = known.entries[slug], known.run.get(slug, {})
    nodes_ = [*known.links.tests.get(slug, []), *known.links.proofs.get(slug, [])]
    return {
        "title": entry.title,
        "source": list(entry.source),
        "place": entry.place,
        "equation_numbers": known.numbers.get(slug, []),
        "kind": entry.kind,
        "verdict": entry.verdict,
        "hypotheses": ledger.assumed(entry),
        "corrected": list(entry.corrected),
        "functions": known.links.functions.get(slug, []),
        "tests": known.links.tests.get(slug, []),
        "proofs": known.links.proofs.get(slug, []),
        "theorems": known.theorems.get(slug, []),
        "scope": run.get("scope"),
        "evidence": known.evidence(slug),
        "rests_on": sorted(known.rests_on.get(slug, ())),
        "hashes": {path: _digest(path) for path in sorted({node.partition("::")[0] for node in nodes_})},
        "outcome": known.verified(slug),
        "page": formula_address(app, "index", slug),
    }


@functools.cache
def _digest(path):
    return hashlib.sha256((ledger.ROOT / path).read_bytes()).hexdigest()


def write(app, exception):
    if exception is None and app.builder.name == "html":
        text = json.dumps(data(app), indent=1, sort_keys=True, ensure_ascii=False)
        (Path(app.outdir) / "statements.json").write_text(text + "\n", encoding="utf-8")
        (Path(app.outdir) / SCHEMA.name).write_text(SCHEMA.read_text(encoding="utf-8"), encoding="utf-8")


def setup(app):
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
