"""Every statement of the paper, in this repository: listed, linked, compared, summarised."""

import ast
import graphlib
import importlib
import itertools

from proofs import _meaning, _structure
from proofs._harness import MEANING, Statement
from tests.support import kernel, ledger
from tests.support import proved as evidence
from tests.support.stated import PREDICATES


def test_ledger_has_every_statement_of_the_paper():
    entries = ledger.read()
    by_source = {
        source: [slug for slug, entry in entries.items() if source in entry.source]
        for source in ledger.SOURCES
    }
    assert len(by_source["equation"]) == 25  # those that `docs/paper_displays.toml` has
    assert len(by_source["display"]) == 12
    assert len(by_source["assumption"]) == 4


def test_every_statement_has_its_function_test_proof_and_page():
    assert ledger.problems(ledger.read(), ledger.find()) == []


def test_every_proof_file_has_at_least_three_mutants_and_says_its_scope():
    for path in sorted((ledger.ROOT / "proofs").glob("prove_*.py")):
        module = importlib.import_module(f"proofs.{path.stem}")
        tables = [value for name, value in vars(module).items() if name.endswith("MUTANTS")]
        statements = [value for value in vars(module).values() if isinstance(value, Statement)]
        assert sum(len(mutants) for mutants in tables) >= 3, path.name
        assert statements, path.name
        assert all(statement.scope for statement in statements), path.name


def proved():
    """Give each proved statement by slug, with the file that proves it."""
    for path in sorted((ledger.ROOT / "proofs").glob("prove_*.py")):
        for name, value in vars(importlib.import_module(f"proofs.{path.stem}")).items():
            if isinstance(value, Statement):
                yield f"{path.stem}.{name}", value


def test_each_hypothesis_of_the_ledger_is_one_of_its_proof_and_each_of_a_proof_one_of_the_ledger():
    entries = ledger.read()
    groups = (
        _structure.BY_QUOTIENTS,
        _structure.BY_NUMBERS,
        _structure.BY_LAWS,
    )
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


def test_each_sign_of_a_symbol_is_a_hypothesis_of_the_ledger_or_what_the_symbol_stands_for():
    entries = ledger.read()
    unknown = [
        (slug, words)
        for slug, listed in _meaning.SIGNS.items()
        for words in set(listed) - {*ledger.assumed(entries[slug]), *_meaning.KINDS}
    ]
    assert unknown == []


def test_each_sign_and_meaning_that_is_listed_is_one_that_a_proof_uses():
    used = {}
    for _, statement in proved():
        depth = statement.depths[-1]
        found = _meaning.assumed_by_symbols(statement.relations(depth), statement.given(depth))
        used.setdefault(statement.slug, set()).update(found)
    listed = {slug: _meaning.allowed_of(slug) for slug in {*_meaning.SIGNS, *_meaning.RELATIONS}}
    assert {slug: words - used[slug] for slug, words in listed.items() if words - used[slug]} == {}


def test_any_depth_is_the_scope_of_nothing_but_a_compared_induction_or_a_theorem_for_every_size():
    compared = {proof.statement for proof in evidence.proofs() if proof.compared}
    general = compared | {name for name, statement in proved() if statement.slug in evidence.kernel()}
    assert [
        name
        for name, statement in proved()
        if evidence.EVERY_SIZE.search(statement.scope) and name not in general
    ] == []


def test_every_statement_is_settled_by_a_proof():
    assert sorted(proof.statement for proof in evidence.proofs()) == sorted(name for name, _ in proved())


def test_what_is_not_derived_here_is_ours_and_a_theorem_under_the_kernel():
    known = {slug for slug, theorems in evidence.kernel().items() if any("Implements" in t for t in theorems)}
    entries = ledger.read()
    for proof in evidence.proofs():
        if not proof.derived:
            assert known.issuperset(proof.slugs), proof.node
            assert {entries[slug].source for slug in proof.slugs} == {("new",)}, proof.node


def test_no_statement_rests_on_itself():
    order = list(graphlib.TopologicalSorter(evidence.rests_on()).static_order())  # raises CycleError
    assert len(order) > 15


def test_theorems_about_random_variables_say_that_laws_are_finite():
    finite = evidence.finite_laws()
    assert {"Decay.decay_bounds_gain", "Noise.output_fluctuation"} <= finite
    assert not any(name.startswith(("Gap.", "Geometric.", "Ghost.")) for name in finite)
    assert {claim.key for claim in kernel.claims() if claim.chapter == "Variance"} <= finite
    (line,) = evidence.evidence("app-var-eps", [], evidence.kernel(), {})
    assert line.startswith("every size, laws with finitely many outcomes: proof assistant (Variance.v, ")


def test_a_statement_that_assumes_more_than_its_symbols_says_so_in_the_ledger():
    entries = ledger.read()
    for name, value in proved():
        more = any(relation.of != MEANING for depth in value.depths for relation in value.given(depth))
        assert not more or entries[value.slug].given != "none", name


def test_the_summary_page_lists_every_printed_statement_under_its_verdict():
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


def test_every_statement_that_says_its_arguments_is_compared_with_a_function():
    compared = set(compared_statements())
    assert [name for name, value in proved() if value.arguments and name not in compared] == []


EXACT = "tests/core/test_exact_counterexamples.py"


def test_every_statement_that_fails_under_what_the_paper_states_has_a_counterexample_without_rounding():
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


def test_every_exact_counterexample_is_admitted_by_what_the_paper_states():
    tree = ast.parse((ledger.ROOT / EXACT).read_text(encoding="utf-8"))
    tests = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for slug, nodes in ledger.find().tests.items():
        for name in (node.rpartition("::")[2] for node in nodes if node.startswith(EXACT)):
            words = [node for line in tests[name].body for node in ast.walk(line)]
            assert any(isinstance(node, ast.Name) and node.id == "admit" for node in words), name
            assert any(isinstance(node, ast.Constant) and node.value == slug for node in words), (name, slug)


def test_each_hypothesis_that_the_paper_states_where_it_fails_is_one_that_is_tried():
    entries = ledger.read().values()
    stated = {words for entry in entries for words in ledger.stated(entry) or ()}
    assert stated == set(PREDICATES)
