"""What a page has of the paper is the paper's: its displays word for word."""

import re
import tomllib

import pytest

from tests.support import ledger
from tests.support.displays import spelled

PAPER = tomllib.loads((ledger.ROOT / "docs" / "paper_displays.toml").read_text(encoding="utf-8"))
ENTRIES = ledger.read()
DISPLAY = re.compile(r"^\$\$\n((?:(?!^\$\$).)*?)\n\$\$ \(([\w-]+)\)$", re.MULTILINE | re.DOTALL)


def shown():
    """Give each labelled display of the theory pages, with the paragraph before it."""
    found = {}
    for path in sorted((ledger.ROOT / "docs" / "theory").glob("*.md")):
        text = path.read_text(encoding="utf-8")
        for match in DISPLAY.finditer(text):
            found[match[2]] = match[1], text[: match.start()].rstrip().rpartition("\n\n")[2]
    return found


SHOWN = shown()


def test_exactly_the_papers_displays_are_listed():
    printed = {slug for slug, entry in ENTRIES.items() if {"equation", "display"} & set(entry.source)}
    assert printed == set(PAPER["display"])
    assert len(printed) == 37  # 25 labels, and 12 displays without one
    assert sum("assumption" in entry.source for entry in ENTRIES.values()) == 4


@pytest.mark.parametrize("slug", PAPER["display"])
def test_displays_match_the_paper(slug):
    assert spelled(SHOWN[slug][0]) == spelled(PAPER["display"][slug])


@pytest.mark.parametrize("slug", PAPER["inline"])
def test_inline_formulas_match_the_paper(slug):
    assert spelled(PAPER["inline"][slug]) in spelled(SHOWN[slug][0])


def test_sentence_displays_are_marked_as_ours():
    sentences = {slug for slug, entry in ENTRIES.items() if entry.source == ("text",)}
    silent = [
        slug for slug in sentences - set(PAPER["inline"]) if "in our words" not in SHOWN[slug][1].lower()
    ]
    assert silent == []


def test_named_displays_state_verdict_and_assumptions():
    for path in (ledger.ROOT / "docs" / "theory").glob("*.md"):
        text = path.read_text(encoding="utf-8")
        boxes = re.findall(r"^`{3,}\{verdict\} ([\w-]+)$", text, re.MULTILINE)
        assert boxes == [slug for _, slug in DISPLAY.findall(text)], path.name
    lines = [ledger.hypotheses(ENTRIES[slug]) for slug in SHOWN]
    assumed = r"Assume: .+\.|The text assumes: .+\.|No assumption\.|The text states no assumption\."
    said = rf"{assumed}|Satisfied by: .+\. Violated by: .+\."
    assert all(re.fullmatch(said, line) for line in lines)
