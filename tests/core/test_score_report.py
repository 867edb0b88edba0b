"""The page about a data set's scores: what it says is what the table holds, and it loads nothing."""

import math
import re

import pyarrow as pa
import pytest

from lai_core.storage.report import write_report


def table(**changed):
    columns = {
        "id": ["<b>", "two", "three", "four"],
        "score": [-4.0, -1.0, 2.0, math.nan],
        "standard_error": [1.0, 1.0, 1.0, math.nan],
        "loss": [0.5, 3.0, 1.0, math.inf],
        "gradient_norm": [1.0, 2.0, 3.0, math.nan],
        "group": [0, 0, 1, 1],
        "rank": [1, 2, 3, None],
    }
    return pa.table(columns | changed)


def test_the_page_counts_lists_and_groups(tmp_path):
    write_report(table(), tmp_path / "page.html", title="Nine & more", worst=2)
    page = (tmp_path / "page.html").read_text()
    words = " ".join(re.sub("<[^>]*>", " ", re.sub("<svg.*</svg>", "", page, flags=re.DOTALL)).split())
    assert "Nine &amp; more" in page
    assert "4 samples: 2 with a negative score (66.7%), 1 of them by more than two standard errors" in words
    assert "Lowest scores id score standard_error loss gradient_norm group rank &lt;b&gt; -4 1 0.5" in words
    assert "Largest own losses id score standard_error loss gradient_norm group rank two -1 1 3" in words
    assert (
        "Groups group samples negative scores mean score mean loss 0 2 100.0% -2.5 1.75 1 1 0.0% 2 1" in words
    )
    assert not re.search(r"(src|href)=\"(?!#)http", page)


def test_a_column_of_ones_own_is_drawn_and_listed(tmp_path):
    own = table().append_column('nearest "5"', pa.array([0.1, 0.9, 0.5, 0.2]))
    write_report(own, tmp_path / "page.html", worst=1)
    page = (tmp_path / "page.html").read_text()
    assert "Largest nearest &#34;5&#34;" in page
    assert "nearest &#34;5&#34;; and scores against losses" in page
    words = " ".join(re.sub("<[^>]*>", " ", page).split())
    assert "rank nearest &#34;5&#34; two -1 1 3 2 0 2 0.9" in words


def test_a_table_of_several_checkpoints_is_refused(tmp_path):
    with pytest.raises(ValueError, match="expected one row a sample, got 4 rows of 1 samples"):
        write_report(table(id=["one"] * 4), tmp_path / "page.html")
