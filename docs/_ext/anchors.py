"""After the build, every internal link must lead to a page and an anchor, and every table must be one."""

from __future__ import annotations

import html
import os
import re
from pathlib import Path
from urllib.parse import unquote

from sphinx.util import logging

LOGGER = logging.getLogger(__name__)
HREF = re.compile(r'<a\b[^>]*\shref="([^"]*)"')
IDENTITY = re.compile(r'\sid="([^"]*)"')


def broken(folder: Path) -> list[str]:
    """List the links of a built site that lead nowhere."""
    pages = {path.resolve(): path.read_text(encoding="utf-8") for path in folder.rglob("*.html")}
    anchors = {path: {html.unescape(name) for name in IDENTITY.findall(text)} for path, text in pages.items()}
    found = []
    for path, text in pages.items():
        for link in {html.unescape(href) for href in HREF.findall(text)}:
            page, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", page):
                continue
            target = Path(os.path.normpath(path.parent / unquote(page))) if page else path
            exists = target in pages or target.exists()
            if not exists or (anchor and target in anchors and unquote(anchor) not in anchors[target]):
                found.append(f"{path.relative_to(folder.resolve())}: {link}")
    return sorted(found)


def unmade(folder: Path) -> list[str]:
    """List the pages of a built site that show the source of a table."""
    pages = sorted(folder.rglob("*.html"))
    return [str(p.relative_to(folder)) for p in pages if "<p>| " in p.read_text(encoding="utf-8")]


def check(app, exception):
    """Warn of each broken link and of each table that is none, which fails a build with ``-W``."""
    if exception is None and app.builder.name == "html":
        for line in broken(Path(app.outdir)):
            LOGGER.warning("broken link: %s", line)
        for line in unmade(Path(app.outdir)):
            LOGGER.warning("a table is shown as its source: %s", line)


def setup(app):
    app.connect("build-finished", check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
