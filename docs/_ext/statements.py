"""What the ledger knows, on the page: verdict boxes, evidence, the equation index, sources.

Everything shown is computed: links from the sources (`tests.support.ledger`), outcomes from
``build/equations.json`` where a full run has left one.

* ``{verdict} slug``, a directive: the box below a formula; its content says why.
* ``{statement}`slug` ``, a role: a link with the statement's title.
* ``{evidence}`slug` ``, a role: links to the tests and proofs of a statement.
* ``{equation-index}``, a directive: the filterable table of all statements.
"""

from __future__ import annotations

import ast
import html
import json
import re
from collections import defaultdict

from docutils import nodes
from docutils.statemachine import StringList
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from sphinx.util.docutils import SphinxDirective, SphinxRole

from tests.support import ledger

NAMES = {
    "exact": "Exact",
    "needs assumptions": "Needs assumptions",
    "false as printed": "False as printed",
    "schematic": "Schematic",
}
NAMESPACES = ("numpy", "torch", "jax", "strict")


class Known:
    """The ledger, the links and the outcomes of the last full run, read once for a build."""

    def __init__(self) -> None:
        """Read everything."""
        self.entries = ledger.read()
        self.links = ledger.find()
        path = ledger.ROOT / "build" / "equations.json"
        self.run = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

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

    def namespaces(self, slug: str) -> list[str]:
        """Name the array namespaces on which its tests ran."""
        cases = {case for test in self.run.get(slug, {}).get("tests", {}) for case in test.split("[")[1:]}
        words = {word for case in cases for word in re.split(r"\W+", case)}
        return [name for name in NAMESPACES if name in words]

    def verified(self, slug: str) -> str:
        """Give one word for the last full run."""
        found = self.run.get(slug, {})
        outcomes = set((found.get("tests", {}) | found.get("proofs", {})).values())
        if not outcomes:
            return "no run"
        return "passed" if outcomes == {"passed"} else "failed"


def _known(env) -> Known:
    if not hasattr(env.app, "ledger_known"):
        env.app.ledger_known = Known()
    return env.app.ledger_known


def _node_page(node: str) -> str:
    return "source/" + node.partition("::")[0].removesuffix(".py")


def _anchor(node: str) -> str:
    return node.partition("::")[2].replace("::", ".")


def _short(node: str) -> str:
    path, _, name = node.partition("::")
    return f"{path.rpartition('/')[2]}::{name.replace('::', '.')}"


def _formula(slug: str) -> str:
    """Spell the anchor that Sphinx gives a labelled formula."""
    return nodes.make_id(f"equation-{slug}")


class source_link(nodes.General, nodes.Inline, nodes.TextElement):  # noqa: N801
    """A link to a function in a source page; resolved once the page's address is known."""


class index_table(nodes.General, nodes.Element):  # noqa: N801
    """The place of the equation index; filled once all labels are known."""


def _source(node: str, text: str | None = None) -> source_link:
    return source_link("", "", nodes.literal("", text or _short(node)), node=node)


def _reference(role: str, domain: str, target: str, text: nodes.Node, env) -> nodes.Node:
    from sphinx.addnodes import pending_xref

    reference = pending_xref(
        "",
        text,
        refdomain=domain,
        reftype=role,
        reftarget=target,
        refdoc=env.docname,
        refexplicit=True,
        refwarn=True,
    )
    if domain == "py":
        reference["py:module"] = reference["py:class"] = None
    return reference


def _title(slug: str, env) -> nodes.Node:
    entry = _known(env).entries[slug]
    return source_link("", "", nodes.inline("", entry.title), statement=slug)


class Verdict(SphinxDirective):
    """The box below a formula."""

    required_arguments = 1
    has_content = True

    def run(self):
        slug = self.arguments[0]
        known = _known(self.env)
        if slug not in known.entries:
            raise self.error(f"unknown slug {slug!r}")
        entry = known.entries[slug]
        word = entry.verdict.replace(" ", "-")
        box = nodes.container(classes=["verdict", f"verdict-{word}"])
        printed = "new" not in entry.source
        label = NAMES[entry.verdict] if printed else "Proved here" if slug in known.links.proofs else "Ours"
        head = nodes.paragraph(classes=["verdict-head"])
        head += nodes.inline("", label, classes=["verdict-word"])
        head += nodes.inline(
            "", f"{entry.place} · {entry.kind}" if printed else entry.kind, classes=["verdict-place"]
        )
        head += nodes.literal("", slug, classes=["verdict-slug"])
        box += head
        self.state.nested_parse(self.content, self.content_offset, box)
        box += self._rows(slug, entry, known)
        return [box]

    def _rows(self, slug, entry, known):
        rows = nodes.bullet_list(classes=["verdict-links"])
        functions = [
            _reference("obj", "py", name, nodes.literal("", name), self.env)
            for name in known.links.functions.get(slug, [])
        ]
        tests = self._evidence(slug, known.links.tests, known)
        proofs = self._evidence(slug, known.links.proofs, known)
        corrected = [_title(other, self.env) for other in entry.corrected]
        scope = known.run.get(slug, {}).get("scope")
        for name, found in (
            ("See instead" if entry.verdict == "false as printed" else "Made precise by", corrected),
            ("Computed by", functions),
            ("Tested by", tests),
            ("Proved by", proofs),
            ("Scope of the proof", [nodes.inline("", scope)] if scope else []),
        ):
            if found:
                line = nodes.paragraph("", "", nodes.inline("", f"{name}: ", classes=["verdict-key"]))
                for count, link in enumerate(found):
                    line += [nodes.Text(", "), link] if count else [link]
                rows += nodes.list_item("", line)
        if entry.reason:
            rows += nodes.list_item("", nodes.paragraph("", f"Why it has no proof: {entry.reason}"))
        return rows

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
        if self.text not in _known(self.env).entries:
            message = self.inliner.reporter.error(f"unknown slug {self.text!r}", line=self.lineno)
            return [self.inliner.problematic(self.rawtext, self.rawtext, message)], [message]
        return [_title(self.text, self.env)], []


class EvidenceRole(SphinxRole):
    """Links to the tests and proofs of statements, separated by commas."""

    def run(self):
        known = _known(self.env)
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


class EquationIndex(SphinxDirective):
    """The table of all statements."""

    def run(self):
        return [index_table()]


class PublicModules(SphinxDirective):
    """A section for every public module of a package whose names the package does not export."""

    required_arguments = 1

    def run(self):
        package = self.arguments[0]
        folder = ledger.ROOT / package
        exported = ledger._exported(folder / "__init__.py")
        text = []
        modules = [path for path in folder.glob("[!_]*") if path.suffix == ".py" or path.is_dir()]
        for path in sorted(modules):
            source = path / "__init__.py" if path.is_dir() else path
            tree = ast.parse(source.read_text(encoding="utf-8"))
            names = {name for name, _ in ledger._definitions(tree) if name[0] != "_" and "." not in name}
            if path.is_dir() or names - exported:
                module = f"{package}.{path.stem}"
                text += ["", f"## `{module}`", "", "```{eval-rst}", f".. automodule:: {module}"]
                text += ["   :members:", *(["   :imported-members:"] if path.is_dir() else []), "```"]
        place = nodes.Element()
        self.state.nested_parse(StringList(text, source=package), 0, place, match_titles=True)
        return place.children


def resolve(app, doctree, docname):
    """Give every link its address, now that all pages are known."""
    known = _known(app.env)
    labels = app.env.get_domain("math").equations

    def statement_uri(slug):
        target = labels.get(slug)
        if target is None:
            return None
        return f"{app.builder.get_relative_uri(docname, target[0])}#{_formula(slug)}"

    for link in list(doctree.findall(source_link)):
        if "statement" in link:
            uri = statement_uri(link["statement"])
        else:
            page = app.builder.get_relative_uri(docname, _node_page(link["node"]))
            uri = f"{page}#{_anchor(link['node'])}"
        children = link.children
        new = (
            nodes.reference("", "", *children, refuri=uri, internal=True)
            if uri
            else nodes.inline("", "", *children)
        )
        link.replace_self(new)
    slugs = {_formula(slug): slug for slug in known.entries}
    for link in doctree.findall(nodes.reference):
        slug = slugs.get((link.get("refuri") or "#" + link.get("refid", "")).rpartition("#")[2])
        if slug and re.fullmatch(r"\(\d+\)", link.astext()):
            link.children = [nodes.inline("", known.entries[slug].title)]
    for place in list(doctree.findall(index_table)):
        place.replace_self(nodes.raw("", _table(known, statement_uri, app, docname), format="html"))


def _table(known, statement_uri, app, docname):
    rows = []
    for slug, entry in known.entries.items():
        source = "ours" if "new" in entry.source else "paper"
        cells = [
            f'<a href="{statement_uri(slug) or "#"}">{html.escape(entry.title)}</a><br><code>{slug}</code>',
            html.escape(entry.place),
            f'<span class="verdict-word verdict-{entry.verdict.replace(" ", "-")}">'
            f"{NAMES[entry.verdict]}</span>"
            if source == "paper"
            else "ours",
            "<br>".join(_python_link(name, app, docname) for name in known.links.functions.get(slug, [])),
            _nodes(known.links.tests.get(slug, []), app, docname),
            _nodes(known.links.proofs.get(slug, []), app, docname),
            ", ".join(known.namespaces(slug)),
            known.verified(slug),
        ]
        rows.append(
            f'<tr data-verdict="{entry.verdict}" data-source="{" ".join(entry.source)}">'
            + "".join(f"<td>{cell}</td>" for cell in cells)
            + "</tr>"
        )
    counts = defaultdict(int)
    for entry in known.entries.values():
        if "new" not in entry.source:
            counts[entry.verdict] += 1
    options = "".join(f'<option value="{v}">{NAMES[v]} ({counts[v]})</option>' for v in ledger.VERDICTS)
    sources = "".join(
        f'<option value="{s}">{t}</option>'
        for s, t in (
            ("equation", "labelled equations"),
            ("display", "unlabelled displays"),
            ("assumption", "assumptions"),
            ("text", "claims in running text"),
            ("new", "ours"),
        )
    )
    head = "".join(
        f"<th>{name}</th>"
        for name in (
            "Statement",
            "Place",
            "Verdict",
            "Function",
            "Tests",
            "Proofs",
            "Namespaces",
            "Last full run",
        )
    )
    return (
        '<div class="index-filter"><input type="search" placeholder="filter by word" aria-label="filter">'
        f'<select aria-label="verdict"><option value="">every verdict</option>{options}</select>'
        f'<select aria-label="source"><option value="">every source</option>{sources}</select>'
        f'<span class="index-count"></span></div><div class="table-wrapper">'
        f'<table class="equation-index"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _python_link(name, app, docname):
    known = app.env.get_domain("py").objects.get(name)
    text = f"<code>{html.escape(name.removeprefix('lai_core.'))}</code>"
    if known is None:
        return text
    return f'<a href="{app.builder.get_relative_uri(docname, known.docname)}#{known.node_id}">{text}</a>'


def _nodes(found, app, docname):
    links = []
    for count, node in enumerate(found, start=1):
        uri = f"{app.builder.get_relative_uri(docname, _node_page(node))}#{_anchor(node)}"
        links.append(f'<a href="{uri}" title="{html.escape(_short(node))}">{count}</a>')
    return " ".join(links)


def plain_property(app, what, name, obj, options, lines):
    """Keep napoleon from reading a type off the colon in a property's first line."""
    if what == "property":
        lines.insert(0, "")


def outdated(app, env, added, changed, removed):
    """Read every page again: what the ledger knows may have changed where the page did not."""
    return [name for name in env.found_docs if name.startswith(("theory/", "reference/"))]


def source_pages(app):
    """Show every proof and every marked test, with an anchor at each function."""
    known = _known(app.env)
    every = [
        node for found in (known.links.tests, known.links.proofs) for each in found.values() for node in each
    ]
    for path in sorted({node.partition("::")[0] for node in every}):
        yield _node_page(path), {"title": path, "body": _listing(path)}, "page.html"


def _listing(path):
    text = (ledger.ROOT / path).read_text(encoding="utf-8")
    shown = highlight(text, PythonLexer(), HtmlFormatter(nowrap=True)).splitlines()
    for name, node in ledger._definitions(ast.parse(text)):
        first = min([node.lineno, *(d.lineno for d in node.decorator_list)]) - 1
        shown[first] = f'<span id="{html.escape(name)}"></span>{shown[first]}'
    lines = "\n".join(shown)
    return f'<h1>{html.escape(path)}</h1><div class="highlight"><pre>{lines}\n</pre></div>'


def setup(app):
    """Register directives, roles and the two late steps."""
    app.add_node(source_link)
    app.add_node(index_table)
    app.add_directive("verdict", Verdict)
    app.add_directive("equation-index", EquationIndex)
    app.add_directive("public-modules", PublicModules)
    app.add_role("statement", StatementRole())
    app.add_role("evidence", EvidenceRole())
    app.connect("autodoc-process-docstring", plain_property, priority=1)
    app.connect("env-get-outdated", outdated)
    app.connect("doctree-resolved", resolve)
    app.connect("html-collect-pages", source_pages)
    return {"parallel_read_safe": False, "parallel_write_safe": False}
