"""Pages that run code link to their executed notebook, which myst-nb writes as it reads the page."""

from __future__ import annotations

import os
from pathlib import Path

from docutils import nodes
from sphinx.addnodes import download_reference


def add_link(app, page):
    """Put the link below the title of a page that has code cells."""
    cells = (node for node in page.findall(nodes.container) if node.get("nb_element") == "cell_code")
    title = page.next_node(nodes.title)
    if title is None or next(cells, None) is None:
        return
    path = Path(app.env.mystnb_config.output_folder, f"{app.env.docname}.ipynb")
    link = download_reference(reftarget="/" + os.path.relpath(path, app.srcdir))
    link += nodes.inline("", "Download this page as a notebook")
    title.parent.insert(1, nodes.paragraph("", "", link, classes=["notebook"]))


def setup(app):
    """Add the link before Sphinx collects what a page offers for download (at priority 500)."""
    app.connect("doctree-read", add_link, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
