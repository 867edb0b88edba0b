"""The committed outputs of the guide's pages are those of the pages' code, and of the library as it is."""

import re
import sys

import pytest

from tests.support import ledger

sys.path.append(str(ledger.ROOT / "docs" / "_ext"))

import nbformat
import recorded
from jupyter_cache.executors.utils import single_nb_execution

AGAIN = {"curate-jax": 2, "curate-torch": 3, "score-dataset": 3, "transformers": 4}
"""In how many of a page's cells numbers are compared, too: the first training and what it printed."""
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")


def printed(cells):
    outputs = (out for cell in cells for out in cell.get("outputs", ()))
    return "".join(out.get("text", "") for out in outputs if out.get("name") != "stderr")


def differences(text, other, relative=0.02):
    """Return the pairs of numbers that are further apart than another processor's."""
    pairs = zip(NUMBER.findall(text), NUMBER.findall(other), strict=True)
    return [(a, b) for a, b in pairs if abs(float(a) - float(b)) > relative * abs(float(a)) + _last_digit(a)]


def _last_digit(number):
    digits, _, power = number.partition("e")
    return 10.0 ** (int(power or 0) - len(digits.partition(".")[2]))


@pytest.mark.parametrize("name", recorded.PAGES)
def test_records_hold_their_pages_code(name):
    found = nbformat.read(recorded.record(name), as_version=4)
    assert recorded.code(found) == recorded.code(recorded.page(name)), f"run `make recorded` ({name})"


def test_every_record_belongs_to_a_page():
    assert {path.stem for path in recorded.RECORDS.glob("*")} == set(recorded.PAGES) == set(AGAIN)


@pytest.mark.weekly
@pytest.mark.filterwarnings("default")  # of the kernel's client
@pytest.mark.parametrize("name", recorded.PAGES)
def test_pages_reproduce_recorded_output(name):
    notebook = recorded.page(name)
    notebook.cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    done = single_nb_execution(notebook, cwd=str(recorded.DOCS / "guide"), timeout=None, allow_errors=False)
    assert done.err is None
    kept, found, first = nbformat.read(recorded.record(name), as_version=4).cells, notebook.cells, AGAIN[name]
    assert printed(kept[:first])
    assert differences(printed(kept[:first]), printed(found[:first])) == []
    words, others = (NUMBER.sub("#", printed(cells)).split() for cells in (kept, found))
    assert words == others
