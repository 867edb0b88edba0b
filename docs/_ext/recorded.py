"""Pages whose cells train: their outputs are committed under `docs/recorded`, and the build reads them.

A record is the executed notebook of a page. Where a page's code is no longer that of its record, the build
runs the page; `tests/repository/test_recorded.py` says so, and reruns each. ``make recorded``, or
``python docs/_ext/recorded.py NAME ...``, writes the records anew.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from jupyter_cache import get_cache
from jupyter_cache.executors.utils import single_nb_execution
from myst_nb.core.read import read_myst_markdown_notebook

DOCS = Path(__file__).resolve().parents[1]
RECORDS = DOCS / "recorded"
PAGES = ("curate-jax", "curate-torch", "score-dataset", "transformers")


def page(name):
    """Return a page of the guide as a notebook that has not run."""
    return read_myst_markdown_notebook((DOCS / "guide" / f"{name}.md").read_text(encoding="utf-8"))


def record(name):
    return RECORDS / f"{name}.ipynb"


def code(notebook):
    """Return what an output depends on: the code of each cell, and how the page shows it."""
    cells = (cell for cell in notebook.cells if cell.cell_type == "code")
    return [(cell.source, {key: cell.metadata.get(key) for key in ("tags", "mystnb")}) for cell in cells]


def write(name):
    """Run a page, and write its record: code cells and outputs, without times."""
    notebook = page(name)
    found = single_nb_execution(notebook, cwd=str(DOCS / "guide"), timeout=None, allow_errors=False)
    if found.err is not None:
        raise found.err
    notebook.cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata.pop("execution", None)
        # what a library warns of depends on the machine, and names its paths
        cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
    python = {"name": "python", "pygments_lexer": "ipython3"}
    notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"], "language_info": python}
    RECORDS.mkdir(exist_ok=True)
    nbformat.write(notebook, record(name))


def fill_cache(app):
    """Put the records where a build looks for outputs."""
    cache = get_cache(app.config.nb_execution_cache_path)
    for path in sorted(RECORDS.glob("*.ipynb")):
        cache.cache_notebook_file(path, overwrite=True, check_validity=False)


def setup(app):
    app.connect("builder-inited", fill_cache)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


if __name__ == "__main__":
    sys.path.insert(0, str(DOCS))
    import conf  # noqa: F401  # the environment of the kernels

    for chosen in sys.argv[1:] or PAGES:
        print(chosen)
        write(chosen)
