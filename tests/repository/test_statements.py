"""Every statement of the paper, in this repository: listed, linked, compared, summarised."""

import ast
import graphlib
import importlib
import itertools

from proofs import _meaning, _structure, _words
from proofs._harness import MEANING, Statement
from tests.support import kernel, ledger
from tests.support import proved as evidence
from tests.support.stated import PREDICATES


def test_statements_have_functions_tests_proofs_pages():
    assert ledger.problems(ledger.read(), ledger.find()) == []


def proved():
    """Give each proved statement by slug, with the file that proves it."""
    for path in sorted((ledger.ROOT / "proofs").glob("prove_*.py")):
        for name, value in vars(importlib.import_module(f"proofs.{path.stem}")).items():
            if isinstance(value, Statement):
                yield f"{path.stem}.{name}", value


def test_ledger_and_proof_hypotheses_agree():
    entries = ledger.read()
    groups = (_structure.BY_QUOTIENTS, _structure.BY_NUMBERS, _structure.BY_LAWS)
    structural = [*itertools.chain(*groups, _structure.BY_FORM, _structure.OPEN)]
    stated, unknown, used = {}, [], set()
    for name, statement in proved():
        known = {*ledger.assumed(entries[statement.slug]), MEANING}
        relations = [relation for depth in statement.depths for relation in statement.given(depth)]
        words = {part for relation in relations for part in relation.of.split("; ")}
        unknown += [(name, part) for part in words - known]
        stated.setdefault(statement.slug, set()).update(words, _meaning.SIGNS.get(statement.slug, ()))
    assert unknown == []
    for slug, words in stated.items():
        left = set(ledger.assumed(entries[slug])) - words
        assert left <= set(structural), slug
        used |= left
    assert len(structural) == len(set(structural))
    assert set(structural) == used


def test_symbol_signs_are_hypotheses_or_meanings():
    entries = ledger.read()
    unknown = [
        (slug, words)
        for slug, listed in _meaning.SIGNS.items()
        for words in set(listed) - {*ledger.assumed(entries[slug]), *_meaning.KINDS}
    ]
    assert unknown == []


def test_word_meanings_file_is_current():
    assert _words.write() == _words.FILE.read_text(encoding="utf-8")


def test_listed_signs_are_used_by_proofs():
    used = {}
    for _, statement in proved():
        depth = statement.depths[-1]
        found = _meaning.assumed_by_symbols(statement.relations(depth), statement.given(depth))
        used.setdefault(statement.slug, set()).update(found)
    listed = {slug: _meaning.allowed_of(slug) for slug in _meaning.SIGNS}
    assert {slug: words - used[slug] for slug, words in listed.items() if words - used[slug]} == {}


def test_unbounded_scopes_need_induction_or_kernel():
    compared = {proof.statement for proof in evidence.proofs() if proof.compared}
    general = compared | {name for name, statement in proved() if statement.slug in evidence.kernel()}
    assert [
        name
        for name, statement in proved()
        if evidence.EVERY_SIZE.search(statement.scope) and name not in general
    ] == []


def test_every_statement_has_a_proof():
    assert sorted(proof.statement for proof in evidence.proofs()) == sorted(name for name, _ in proved())


def test_underived_statements_have_kernel_theorems():
    known = {slug for slug, theorems in evidence.kernel().items() if any("Implements" in t for t in theorems)}
    entries = ledger.read()
    for proof in evidence.proofs():
        if not proof.derived:
            assert known.issuperset(proof.slugs), proof.node
            assert {entries[slug].source for slug in proof.slugs} == {("new",)}, proof.node


def test_no_statement_rests_on_itself():
    order = list(graphlib.TopologicalSorter(evidence.rests_on()).static_order())  # raises CycleError
    assert len(order) > 15


def test_random_variable_theorems_state_finite_laws():
    finite = evidence.finite_laws()
    assert {"Decay.decay_bounds_gain", "Noise.output_fluctuation"} <= finite
    assert not any(name.startswith(("Gap.", "Geometric.", "Ghost.")) for name in finite)
    assert {claim.key for claim in kernel.claims() if claim.chapter == "Variance"} <= finite
    (line,) = evidence.evidence("app-var-eps", [], evidence.kernel(), {})
    assert line.startswith("every size, laws with finitely many outcomes: proof assistant (Variance.v, ")


def test_summary_lists_statements_by_verdict():
    text = (ledger.ROOT / "docs/theory/right-and-wrong.md").read_text(encoding="utf-8")
    sections = dict(part.split("\n", 1) for part in text.split("\n## ")[1:])
    headings = {
        "exact": "Right as printed",
        "needs assumptions": "Needs assumptions",
        "false as printed": "False as printed",
        "schematic": "Schematic",
        "assumption": "Assumptions",
    }
    left_out = [
        slug
        for slug, entry in ledger.read().items()
        if "new" not in entry.source and f"{{statement}}`{slug}`" not in sections[headings[entry.verdict]]
    ]
    assert left_out == []


def compared_statements():
    """Statements that tests name, as `module.NAME`, whatever they call the module."""
    for path in (ledger.ROOT / "tests").rglob("test_*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "proofs"]
        modules = {alias.asname or alias.name: alias.name for node in imports for alias in node.names}
        for node in tree.body:
            if isinstance(node, ast.Assign):
                names, values = (getattr(side, "elts", [side]) for side in (node.targets[0], node.value))
                pairs = zip(names, values, strict=False)
                modules |= {n.id: modules[v.id] for n, v in pairs if getattr(v, "id", None) in modules}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and getattr(node.value, "id", None) in modules:
                yield f"{modules[node.value.id]}.{node.attr}"


def test_statements_with_arguments_are_compared():
    compared = set(compared_statements())
    assert [name for name, value in proved() if value.arguments and name not in compared] == []


EXACT = "tests/core/test_exact_counterexamples.py"


def test_failing_statements_have_exact_counterexamples():
    exact = {
        slug
        for slug, nodes in ledger.find().tests.items()
        if any(node.startswith(EXACT) and ledger.is_counterexample(node) for node in nodes)
    }
    fails = {slug for slug, entry in ledger.read().items() if ledger.stated(entry) is not None}
    assert exact == fails
    source = (ledger.ROOT / EXACT).read_text(encoding="utf-8")
    constants = [node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)]
    assert not any(isinstance(value, float) for value in constants)


def test_exact_counterexamples_satisfy_stated_hypotheses():
    tree = ast.parse((ledger.ROOT / EXACT).read_text(encoding="utf-8"))
    tests = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for slug, nodes in ledger.find().tests.items():
        for name in (node.rpartition("::")[2] for node in nodes if node.startswith(EXACT)):
            words = [node for line in tests[name].body for node in ast.walk(line)]
            assert any(isinstance(node, ast.Name) and node.id == "admit" for node in words), name
            assert any(isinstance(node, ast.Constant) and node.value == slug for node in words), (name, slug)


def test_stated_hypotheses_are_all_tried():
    entries = ledger.read().values()
    stated = {words for entry in entries for words in ledger.stated(entry) or ()}
    assert stated == set(PREDICATES)
