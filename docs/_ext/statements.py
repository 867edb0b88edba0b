"""What the ledger knows, on the page: verdict boxes and evidence.

Everything shown is computed: links from the sources (`tests.support.ledger`), outcomes from
``build/equations.json`` where a full run has left one.

* ``{verdict} slug``, a directive: the box below a formula; its content says why.
* ``{statement}`slug` ``, a role: a link with the statement's title.
* ``{evidence}`slug` ``, a role: links to the tests and proofs of a statement.
* Below ``Implements :eq:`slug`.`` in a function's docstring: what the statement assumes.
"""

from __future__ import annotations

import re
from html import escape

from docutils import nodes
from docutils.statemachine import StringList
from knowledge import (
    Known,
    anchor,
    formula_address,
    formula_anchor,
    hypotheses,
    kernel_page,
    known_of,
    node_page,
    short,
)
from sphinx.addnodes import pending_xref
from sphinx.util.docutils import SphinxDirective, SphinxRole

from experiments.harness.page import markdown
from tests.support import ledger, proved


class source_link(nodes.General, nodes.Inline, nodes.TextElement):  # noqa: N801
    """A link to a function in a source page; resolved once the page's address is known."""


def _source(node: str, text: str | None = None) -> source_link:
    return source_link("", "", nodes.literal("", text or short(node)), node=node)


def _coq(path: str, claim, text: str | None = None) -> source_link:
    shown = nodes.inline("", text) if text else nodes.literal("", f"{claim.chapter}.v, {claim.name}")
    return source_link("", "", shown, page=kernel_page(path), name=claim.name)


def _function(name: str, env) -> nodes.Node:
    reference = pending_xref(
        "",
        nodes.literal("", name),
        refdomain="py",
        reftype="obj",
        reftarget=name,
        refdoc=env.docname,
        refexplicit=True,
        refwarn=True,
    )
    reference["py:module"] = reference["py:class"] = None
    return reference


def _title(slug: str, env) -> nodes.Node:
    entry = known_of(env).entries[slug]
    return source_link("", "", nodes.inline("", entry.title), statement=slug)


class Verdict(SphinxDirective):
    """The box below a formula."""

    required_arguments = 1
    has_content = True

    def run(self):
        slug = self.arguments[0]
        known = known_of(self.env)
        if slug not in known.entries:
            raise self.error(f"unknown slug {slug!r}")
        entry = known.entries[slug]
        word = entry.verdict.replace(" ", "-")
        box = nodes.container(classes=["verdict", f"verdict-{word}"])
        printed = "new" not in entry.source
        head = nodes.paragraph(classes=["verdict-head"])
        head += nodes.inline("", known.badge(slug), classes=["verdict-word"])
        head += nodes.inline(
            "", f"{known.place(slug)} · {entry.kind}" if printed else entry.kind, classes=["verdict-place"]
        )
        head += nodes.literal("", slug, classes=["verdict-slug"])
        box += head
        assumed = StringList([hypotheses(entry)], source=slug)
        self.state.nested_parse(assumed, self.content_offset, box)
        self.state.nested_parse(self.content, self.content_offset, box)
        box += self._rows(slug, entry, known)
        for claim in known.claims:
            if slug in claim.implements + claim.refutes:
                box += self._theorem(claim, known)
        return [box]

    def _theorem(self, claim, known):
        """Fold a statement as the kernel reads it, with the ledger's words before each hypothesis."""
        word = "Refuted" if claim.refutes else "Proved"
        title = f"{word} under the kernel: {claim.chapter}.v, {claim.name}"
        listing = nodes.literal_block(claim.text, claim.text, language="coq")
        witness = nodes.paragraph("", "", nodes.inline("", "Witness: ", classes=["verdict-key"]))
        if claim.key in known.witnessed:
            path = f"proofs/coq/Witnesses/{claim.chapter}.v"
            witness += [_coq(path, claim, "something that satisfies the hypotheses")]
            witness += nodes.Text(f", {known.axioms(f'witness {claim.key}')}")
        else:
            witness += nodes.Text("none needed, as it assumes nothing")
        opened = nodes.raw("", f"<details><summary>{escape(title)}</summary>", format="html")
        return [opened, listing, witness, nodes.raw("", "</details>", format="html")]

    def _rows(self, slug, entry, known):
        rows = nodes.bullet_list(classes=["verdict-links"])
        functions = [_function(name, self.env) for name in known.links.functions.get(slug, [])]
        tests = self._evidence(slug, known.links.tests, known)
        proofs = self._evidence(slug, known.links.proofs, known)
        corrected = [_title(other, self.env) for other in entry.corrected]
        evidence = known.evidence(slug)
        decided = proved.decided(entry, evidence)
        scope = known.run.get(slug, {}).get("scope")
        for name, found in (
            ("See instead" if entry.verdict == "false as printed" else "Made precise by", corrected),
            ("Computed by", functions),
            ("Tested by", tests),
            ("Proved by", proofs),
            ("Checked by a kernel, for every size", self._kernel(slug, known, "implements")),
            ("Refuted by a kernel, for every size", self._kernel(slug, known, "refutes")),
            ("Scope of the proof", [nodes.inline("", scope)] if scope else []),
            ("Verdict decided by", [nodes.inline("", decided)] if "new" not in entry.source else []),
            ("What is proved", [nodes.inline("", " · ".join(evidence))]),
            ("Rests on", [_title(other, self.env) for other in sorted(known.rests_on.get(slug, ()))]),
            ("Used by", [_title(other, self.env) for other, used in known.rests_on.items() if slug in used]),
            ("Sharp", [nodes.inline("", "a search over entries reaches it")] if entry.attained else []),
        ):
            if found:
                line = nodes.paragraph("", "", nodes.inline("", f"{name}: ", classes=["verdict-key"]))
                for count, link in enumerate(found):
                    line += [nodes.Text(", "), link] if count else [link]
                rows += nodes.list_item("", line)
        if entry.reason:
            rows += nodes.list_item("", nodes.paragraph("", f"Why it has no proof: {entry.reason}"))
        if entry.outside:
            rows += nodes.list_item(
                "", nodes.paragraph("", f"Why the kernel has no theorem: {entry.outside}")
            )
        return rows

    def _kernel(self, slug, known, relation):
        """Link the statements under Coq's kernel that are about this one, and their proofs."""
        shown = []
        for claim in known.claims:
            if slug in getattr(claim, relation):
                holder = nodes.inline("", "", _coq(f"proofs/coq/Statements/{claim.chapter}.v", claim))
                holder += [nodes.Text(" ("), _coq(f"proofs/coq/{claim.chapter}.v", claim, "proof")]
                laws = proved.LAWS if claim.key in known.finite else ""
                holder += nodes.Text(f", {known.axioms(claim.key)}){laws}")
                shown.append(holder)
        return shown

    def _evidence(self, slug, links, known):
        """Name the first three, counterexamples before others; number the rest."""
        ordered = sorted(links.get(slug, []), key=lambda node: not ledger.is_counterexample(node))
        shown = []
        for count, node in enumerate(ordered, start=1):
            holder = nodes.inline("", "", _source(node, None if count <= 3 else f"{count}"))
            outcome = known.summary(slug, node)
            if outcome and (count <= 3 or not outcome.startswith("passed")):
                holder += nodes.inline("", f" {outcome}", classes=["verdict-outcome"])
            shown.append(holder)
        return shown


class StatementRole(SphinxRole):
    """A link to a statement, by its title."""

    def run(self):
        if self.text not in known_of(self.env).entries:
            message = self.inliner.reporter.error(f"unknown slug {self.text!r}", line=self.lineno)
            return [self.inliner.problematic(self.rawtext, self.rawtext, message)], [message]
        return [_title(self.text, self.env)], []


class EvidenceRole(SphinxRole):
    """Links to the tests and proofs of statements, separated by commas."""

    def run(self):
        known = known_of(self.env)
        found = []
        for slug in self.text.split(","):
            for word, nodes_ in (("test", known.links.tests), ("proof", known.links.proofs)):
                exact = known.entries[slug.strip()].verdict == "exact"
                chosen = nodes_.get(slug.strip(), [])
                pinned = [node for node in chosen if ledger.is_counterexample(node) and not exact]
                for node in (pinned or chosen)[:2]:
                    found += [
                        nodes.Text(" · ") if found else nodes.Text(""),
                        _source(node, "counterexample" if pinned else word),
                    ]
        return found, []


def resolve(app, doctree, docname):
    """Give every link its address, now that all pages are known; name formulas by their titles."""
    for link in list(doctree.findall(source_link)):
        if "statement" in link:
            uri = formula_address(app, docname, link["statement"])
        elif "page" in link:
            uri = f"{app.builder.get_relative_uri(docname, link['page'])}#{link['name']}"
        else:
            page = app.builder.get_relative_uri(docname, node_page(link["node"]))
            uri = f"{page}#{anchor(link['node'])}"
        children = link.children
        plain = nodes.inline("", "", *children)
        link.replace_self(nodes.reference("", "", *children, refuri=uri, internal=True) if uri else plain)
    entries = known_of(app.env).entries
    slugs = {formula_anchor(slug): slug for slug in entries}
    for link in doctree.findall(nodes.reference):
        slug = slugs.get((link.get("refuri") or "#" + link.get("refid", "")).rpartition("#")[2])
        if slug and re.fullmatch(r"\(\d+\)", link.astext()):
            link.children = [nodes.inline("", entries[slug].title)]


def show_assumptions(app, what, name, obj, options, lines):
    """Say below the line that names a docstring's statements what these assume."""
    said = ledger.assumptions(ledger.implemented("\n".join(lines)), known_of(app.env).entries)
    if said:
        first = next(at for at, line in enumerate(lines) if line.startswith("Implements"))
        end = lines.index("", first) if "" in lines[first:] else len(lines)
        lines[end:end] = [text for line in said for text in ("", line)]


def list_statements():
    """Return all statements as tables in markdown: by the paper's sections, then ours."""
    known, groups = Known(), {}
    for slug, entry in known.entries.items():
        cells = (
            f"{{statement}}`{slug}` `{slug}`",
            known.place(slug),
            known.badge(slug),
            ", ".join(f"{{statement}}`{other}`" for other in entry.corrected),
            ", ".join(f"{{py:obj}}`{name}`" for name in known.links.functions.get(slug, [])),
            f"{{evidence}}`{slug}`",
        )
        part = re.match(r"(Section|Appendix)s? (\w+)", entry.place)
        if "new" in entry.source or part is None:
            key = (2, "", "Ours")
        else:
            key = (part[1] == "Appendix", part[2], f"{part[1]} {part[2]}")
        groups.setdefault(key, []).append(cells)
    head = ("statement", "place", "verdict", "see instead", "function", "evidence")
    return "\n\n".join(f"**{key[-1]}**\n\n{markdown(head, rows)}" for key, rows in sorted(groups.items()))


def outdated(app, env, added, changed, removed):
    """Read every page again: what the ledger knows may have changed where the page did not."""
    return [name for name in env.found_docs if name.startswith(("theory/", "reference/"))]


def setup(app):
    app.add_node(source_link)
    app.add_directive("verdict", Verdict)
    app.add_role("statement", StatementRole())
    app.add_role("evidence", EvidenceRole())
    app.connect("env-get-outdated", outdated)
    app.connect("autodoc-process-docstring", show_assumptions, priority=400)  # before napoleon
    app.connect("doctree-resolved", resolve)
    return {"parallel_read_safe": False, "parallel_write_safe": False}
