"""The site's own check of its links can fail."""

import importlib.util
import inspect
import json
import re
import types

import jsonschema
import lai_torch
import pytest
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.ext import napoleon

from lai_core import assumptions, bounds, calibration, influence, propagation, shapley, variance
from lai_core.estimators.catalogue import CATALOGUE
from tests.support import ledger

PUBLIC = [
    getattr(module, name)
    for module in (assumptions, bounds, calibration, influence, propagation, shapley, variance)
    for name in module.__all__
]


def extension(name):
    spec = importlib.util.spec_from_file_location(name, ledger.ROOT / "docs/_ext" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_links_that_lead_nowhere_and_tables_shown_as_their_source_are_named(tmp_path):
    (tmp_path / "theory").mkdir()
    (tmp_path / "index.html").write_text(
        '<a href="theory/noise.html#here">1</a> <a href="theory/noise.html#nowhere">2</a>'
        '<a class="x" href="missing.html">3</a> <a href="#self">4</a> <a href="https://example.org/#x">5</a>'
        "<table><tr><td>| 1 |</td></tr></table>"
    )
    table = "<p>| a | b |\n| -- | -- |</p>"
    (tmp_path / "theory" / "noise.html").write_text(f'<p id="here"></p>{table}<a href="../index.html">x</a>')
    anchors = extension("anchors")
    assert anchors.broken(tmp_path) == [
        f"index.html: {link}" for link in ("#self", "missing.html", "theory/noise.html#nowhere")
    ]
    assert anchors.unmade(tmp_path) == ["theory/noise.html"]


@pytest.mark.parametrize("name", ["choosing", "options"])
def test_the_tables_of_estimators_have_a_row_for_each(name):
    _, _, *rows = extension("site_tables").estimators(name).splitlines()
    assert [row.split("`")[1] for row in rows] == [each.name for each in CATALOGUE]
    assert len({row.count("|") for row in rows}) == 1


def test_shapes_in_annotations_are_shown_with_the_parameters():
    """A shape, one of two, those of a sequence, and what comes back; nothing where none is named."""
    fields = {
        ":param alpha: A.": ":type alpha: ``(L, n_val, n_train)``",
        ":param low: Low.": ":type low: ``(L,) or (L, n_val, n_train)``",
        ":returns: *tuple of arrays*.": ":returns: *tuple of arrays* ``(n_train,), (n_train,)``.",
    }
    shown = list(extension("shapes").with_shapes(list(fields), bounds.lai_gap_range))
    assert [line for line in shown if line not in fields] == list(fields.values())
    assert list(extension("shapes").with_shapes([":param jacobians: J."], propagation.vjp_recursion)) == [
        ":type jacobians: ``each (..., d_below, d_above)``",
        ":param jacobians: J.",
    ]
    plain = [":param rho: A rate.", ":returns: *float or array* -- A sum."]
    assert list(extension("shapes").with_shapes(plain, bounds.geometric_sum)) == plain


def test_types_are_shown_where_they_can_be_read():
    kind = extension("shapes").kind
    names = inspect.signature(lai_torch.score_dataset).parameters
    shown = {name: kind(parameter.annotation) for name, parameter in names.items()}
    assert shown["model"] == "Module"
    assert shown["parts"] == "int | None"
    assert shown["estimator"] == "str | Estimator"
    assert shown["dataset"] == ""  # anything
    policy = inspect.signature(lai_torch.KeepBelowLoss).parameters["policy"]
    assert kind(policy.annotation) == "Callable[..., Tensor]"


def test_what_a_docstring_leaves_to_its_modules_glossary_is_shown_with_it():
    """Each parameter of each function that refers to one: its own words first, in the signature's order."""
    module = extension("shapes")
    config = napoleon.Config(napoleon_use_param=True, napoleon_use_rtype=False)
    referring = [one for one in PUBLIC if module.GLOSSARY.search(one.__doc__ or "")]
    for function in referring:
        lines = napoleon.NumpyDocstring(inspect.getdoc(function), config).lines()
        shown = module.with_glossary(lines, function, config)
        named = [field[1] for line in shown if (field := module.PARAMETER.match(line))]
        assert named == list(inspect.signature(function).parameters), function.__name__
        assert not module.GLOSSARY.search("\n".join(shown))
    assert len(referring) > 50
    written = [
        "Bound",
        ":math:`x`. Arguments: :mod:`lai_core.bounds`.",
        ":param errors: Own.",
        ".. rubric:: E",
    ]
    shown = module.with_glossary(written, bounds.certified_regret_bound, config)
    words = ":param approximation: Exact and approximate scores; positive helps."
    expected = ["Bound", ":math:`x`.", words, written[2], ":returns: *array*", written[3]]
    assert [line for line in shown if line] == expected


def quoted(first, second, third, fourth: str | None = None):
    """Refer to `extension` and `trace`.

    Parameters
    ----------
    first, second
        As for `quoting`; second is longer
        than a line.
    third
        As for `nothing_of_this_name`.
    fourth
        Its own: not as for `quoting`.
    """


def quoting(first, second):
    """Describe two parameters.

    Parameters
    ----------
    first
        The first, whose text
        has two lines.
    second
        The second.
    """


def test_what_a_docstring_leaves_to_another_function_is_repeated():
    config = napoleon.Config(napoleon_use_param=True, napoleon_use_rtype=False)
    lines = napoleon.NumpyDocstring(inspect.getdoc(quoted), config).lines()
    module = extension("shapes")
    shown = module.with_referred(lines, quoted, config)
    assert [line.strip() for line in shown if line.strip()][1:] == [
        ":param first: The first, whose text",
        "has two lines.",
        ":param second: The second. Second is longer than a line.",
        ":param third: As for `nothing_of_this_name`.",
        ":param fourth: Its own: not as for `quoting`.",
    ]
    assert ":type fourth: ``str | None``" in module.with_shapes(shown, quoted)


def test_parameters_that_are_described_together_stand_together():
    """Two names with one text are one entry, each with its own type; another text is an entry of its own."""
    listed = nodes.bullet_list()
    for name, kind, text in (("a", "", "One text."), ("b", " (int)", "One text."), ("c", "", "Another.")):
        shown = [addnodes.literal_strong("", name), *([nodes.Text(kind)] if kind else []), nodes.Text(" – ")]
        listed += nodes.list_item("", nodes.paragraph("", "", *shown, nodes.Text(text)))
    page = nodes.section("", addnodes.desc_content("", listed))
    extension("shapes").join_parameters(None, page)
    shown = [entry.astext() for entry in page.findall(nodes.list_item)]
    assert shown == ["a, b (int) – One text.", "c – Another."]


def test_a_property_whose_first_line_has_a_colon_is_shown_as_it_is_written():
    lines = ["Why not: the operation that has none."]
    extension("public_modules").plain_property(None, "attribute", "a.reason", None, None, lines)
    config = napoleon.Config(napoleon_use_param=True, napoleon_use_rtype=False)
    shown = napoleon.NumpyDocstring(lines, config, what="attribute", name="a.reason").lines()
    assert [line.strip() for line in shown if line] == ["\\", "Why not: the operation that has none."]


def test_a_fields_default_is_no_method():
    skip = extension("public_modules").skip_default
    policy = inspect.getattr_static(lai_torch.KeepBelowLoss, "policy")
    assert skip(None, "class", "policy", policy, False, None)
    for name in ("__call__", "measure"):
        method = inspect.getattr_static(lai_torch.KeepReducible, name)
        assert skip(None, "class", name, method, False, None) is None


def test_a_class_shows_what_it_inherits_from_private_classes_alone():
    stops = extension("public_modules").bases_shown_elsewhere
    assert stops("lai_torch.MixtureSampler")[0] == "Sampler"
    assert stops("lai_torch.MixtureStream")[0] == "IterableDataset"
    assert not {"Draws", "ShuffledDraws"} & {
        *stops("lai_torch.MixtureStream"),
        *stops("lai_jax.MixtureBatches"),
    }


def test_every_public_module_has_a_page_of_the_reference():
    modules = {name for name, _ in extension("public_modules").documented("lai_core")}
    pages = {path.stem for path in (ledger.ROOT / "docs/reference/mathematics").glob("*.md")}
    assert {name.split(".")[1] for name in modules} == pages
    for page in pages:
        text = (ledger.ROOT / f"docs/reference/mathematics/{page}.md").read_text(encoding="utf-8")
        assert f"```{{public-modules}} lai_core.{page}\n" in text
    assert "lai_core.estimators.policies" in modules


def test_a_picture_names_only_what_is_there_and_says_it_in_words():
    stages = extension("stages")
    stages.check_defined("adapters/lai_torch/curator.py::Curator.step")
    with pytest.raises(ValueError, match=r"'Curator.walk' to be defined in adapters/lai_torch/curator.py"):
        stages.check_defined("adapters/lai_torch/curator.py::Curator.walk")
    drawn = stages.svg("A step", [("score", "multiplies", "a.py::f", "scores")], "back")
    assert "<title>A step</title><desc>score: multiplies; it hands on scores." in drawn
    assert drawn.count("currentColor") == len(re.findall('(?:fill|stroke)="(?!none)[a-zC]', drawn))


def test_a_page_with_cells_offers_its_notebook_and_others_none(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ledger.ROOT / "docs/_ext"))
    for name, cell in {"index": "", "cells": "```{code-cell}\n1 + 1\n```\n"}.items():
        head = "---\nfile_format: mystnb\nkernelspec:\n  name: python3\n---\n\n" if cell else ""
        (tmp_path / f"{name}.md").write_text(f"{head}# Title\n\n{cell or 'Words.'}\n")
    settings = {"extensions": ["myst_nb", "notebooks"], "nb_execution_mode": "off", "html_theme": "basic"}
    built = tmp_path / "built"
    app = Sphinx(tmp_path, None, built, built / "trees", "html", settings, status=None, warning=None)
    app.build()
    (link,) = re.findall(r'href="(_downloads/[^"]*\.ipynb)"', (built / "cells.html").read_text())
    assert json.loads((built / link).read_text())["cells"][1]["source"] == ["1 + 1"]
    assert "_downloads" not in (built / "index.html").read_text()


def test_nothing_on_the_site_is_fetched_from_elsewhere():
    static = ledger.ROOT / "docs/_static"
    assert (static / "mathjax" / "tex-svg.js").stat().st_size > 1_000_000
    assert (static / "mathjax" / "LICENSE").exists()
    for path in [*static.glob("*.css"), *static.glob("*.js")]:
        assert "//" not in path.read_text(encoding="utf-8").replace("// ", ""), path.name


@pytest.fixture
def site(monkeypatch):
    """Stand for the application: no page has an address."""
    monkeypatch.syspath_prepend(str(ledger.ROOT / "docs/_ext"))
    equations = types.SimpleNamespace(equations={})
    env = types.SimpleNamespace(get_domain=lambda name: equations)
    env.app = types.SimpleNamespace(env=env)
    return env.app


def test_the_ledger_as_data_has_its_schema_and_the_papers_numbers(site):
    module = extension("ledger_data")
    found, schema = module.data(site), json.loads(module.SCHEMA.read_text())
    jsonschema.validate(found, schema, cls=jsonschema.Draft202012Validator)
    assert set(found) == set(ledger.read())
    labelled = {slug: entry for slug, entry in found.items() if "equation" in entry["source"]}
    numbers = [number for entry in labelled.values() for number in entry["equation_numbers"]]
    assert sorted(numbers) == list(range(1, 27))
    assert [entry for entry in labelled.values() if not entry["equation_numbers"]] == []
    assert found["app-var-eps"]["rests_on"] == []
    assert "lli-gap" in found["lli-relative-gap"]["rests_on"]
    del found["lli"]["verdict"]
    with pytest.raises(jsonschema.ValidationError, match="'verdict' is a required property"):
        jsonschema.validate(found, schema)
