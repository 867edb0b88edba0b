"""What `make docs` does not show: the check of links can fail, tables and pages are complete."""

import importlib
import json
import pkgutil
import re
import sys
import types

import jsonschema
import pytest

import lai_core
from tests.support import ledger

sys.path.append(str(ledger.ROOT / "docs" / "_ext"))

import anchors
import ledger_data
import statements

EXPORTED = set(lai_core.__all__)


def test_broken_links_and_tables_are_named(tmp_path):
    (tmp_path / "theory").mkdir()
    (tmp_path / "index.html").write_text(
        '<a href="theory/noise.html#here">1</a> <a href="theory/noise.html#nowhere">2</a>'
        '<a class="x" href="missing.html">3</a> <a href="#self">4</a> <a href="https://example.org/#x">5</a>'
        "<table><tr><td>| 1 |</td></tr></table>"
    )
    table = "<p>| a | b |\n| -- | -- |</p>"
    (tmp_path / "theory" / "noise.html").write_text(f'<p id="here"></p>{table}<a href="../index.html">x</a>')
    assert anchors.broken(tmp_path) == [
        f"index.html: {link}" for link in ("#self", "missing.html", "theory/noise.html#nowhere")
    ]
    assert anchors.unmade(tmp_path) == ["theory/noise.html"]


def test_public_modules_have_reference_pages():
    shown = set()
    for path in (ledger.ROOT / "docs/reference/mathematics").glob("*.md"):
        shown |= set(re.findall(r"^\.\. automodule:: (\S+)$", path.read_text(encoding="utf-8"), re.MULTILINE))
    modules = [info.name for info in pkgutil.walk_packages(lai_core.__path__, "lai_core.")]
    public = {}
    for name in (name for name in modules if "._" not in name):
        held = vars(importlib.import_module(name)).items()
        public[name] = [each for each, value in held if getattr(value, "__module__", "") == name]
    own = {name for name, held in public.items() if not {each for each in held if each[0] != "_"} <= EXPORTED}
    left = {name for name in own - shown if name.rpartition(".")[0] not in shown}  # by its package's entry
    assert left == shown - set(public) == set()
    assert "lai_core.estimators.policies" in own


def test_site_fetches_nothing_from_elsewhere():
    static = ledger.ROOT / "docs/_static"
    assert (static / "mathjax" / "tex-svg.js").stat().st_size > 1_000_000
    assert (static / "mathjax" / "LICENSE").exists()
    for path in [*static.glob("*.css"), *static.glob("*.js")]:
        assert "//" not in path.read_text(encoding="utf-8").replace("// ", ""), path.name


@pytest.fixture
def site():
    """Stand for the application: no page has an address."""
    equations = types.SimpleNamespace(equations={})
    env = types.SimpleNamespace(get_domain=lambda name: equations)
    env.app = types.SimpleNamespace(env=env)
    return env.app


def test_ledger_data_fits_schema_and_paper(site):
    found, schema = ledger_data.data(site), json.loads(ledger_data.SCHEMA.read_text())
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


def test_function_pages_state_their_assumptions(site):
    lines = ["Bound it.", "", "Implements :eq:`lli` and", ":eq:`ghost-bias`.", "", "Returns"]
    statements.show_assumptions(site, "function", "f", None, None, lines)
    bias, text = ":eq:`ghost-bias`. Assume: ", "is the only use of :math:`W` and of :math:`b` on a sample"
    assert lines[4:6] == ["", ":eq:`lli`. No assumption."]
    assert lines[7].startswith(bias)
    assert text in lines[7]
    assert lines[8:] == ["", "Returns"]
