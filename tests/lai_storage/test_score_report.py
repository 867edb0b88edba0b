"""The page about a data set's scores: what it says is what the table holds, and it loads nothing."""

import base64
import io
import math
import re

import numpy as np
import pyarrow as pa
import pytest
from lai_storage.report import write_report
from PIL import Image


def table(**changed):
    columns = {
        "id": ["<b>", "two", "three", "four"],
        "score": [-4.0, -1.0, 0.5, math.nan],
        "standard_error": [1.0, 1.0, 1.0, math.nan],
        "loss": [0.5, 3.0, 1.0, math.inf],
        "gradient_norm": [1.0, 2.0, 3.0, math.nan],
        "group": [0, 0, 1, 1],
        "rank": [1, 2, 3, None],
    }
    return pa.table(columns | changed)


def reported(given, folder, **options):
    write_report(given, folder / "page.html", **options)
    page = (folder / "page.html").read_text()
    plain = re.sub("<[^>]*>", " ", re.sub("<svg.*</svg>", "", page, flags=re.DOTALL))
    return page, " ".join(plain.split())


def test_the_page_counts_lists_and_groups(tmp_path):
    own = table().append_column('nearest "5"', pa.array([0.1, 0.9, 0.5, 0.2]))
    page, words = reported(own, tmp_path, title="Nine & more", worst=2)
    assert "Nine &amp; more" in page
    assert "4 samples: 2 with a negative score (66.7%), 1 of them by more than two standard errors" in words
    heads = "id score standard_error loss gradient_norm group rank nearest &#34;5&#34;"
    assert f"Lowest scores {heads} &lt;b&gt; -4 1 0.5 1 0 1 0.1 two -1 1 3 2 0 2 0.9 Largest" in words
    assert f"Largest own losses {heads} two -1 1 3 2 0 2 0.9 three" in words
    assert "Groups group samples negative scores mean score mean loss 0 2 1 -2.5 1.75 1 1 0 0.5 1" in words
    assert "is empty" not in words
    assert not re.search(r"(src|href)=\"(?!#)http", page)
    assert re.findall('aria-label="([^"]*)"', page) == ["Scores against losses"]
    assert "<?xml" not in page


def test_unfit_tables_are_refused(tmp_path):
    with pytest.raises(ValueError, match="expected one row a sample, got 4 rows of 1 samples"):
        write_report(table(id=["one"] * 4), tmp_path / "page.html")
    with pytest.raises(TypeError, match=r"table: expected what score_dataset or read_scores returned, got D"):
        write_report(table().to_pandas(), tmp_path / "page.html")


def test_samples_are_shown_as_given(tmp_path):
    """Text is escaped; arrays and PIL's images are images within the page, to the pixel."""
    pixels = np.random.default_rng(0).integers(0, 255, (4, 5, 3), dtype=np.uint8)
    told = {"<b>": "a <i>text</i>", "two": pixels, "three": Image.fromarray(pixels), "four": None}
    page, words = reported(table(), tmp_path, show=told.get, worst=3)
    assert "Lowest scores id sample score standard_error loss" in words
    assert page.count("a &lt;i&gt;text&lt;/i&gt;") == 2  # by score, and by loss
    images = re.findall(r'<img alt="" src="data:image/png;base64,([^"]*)">', page)
    assert len(images) == 4
    for image in images:
        shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(image))).convert("RGB"))
        np.testing.assert_array_equal(shown, pixels)


@pytest.mark.parametrize("shown", [None, 3, np.zeros((3, 4, 5)), Image.new("CMYK", (2, 2))])
def test_unfit_samples_are_named(tmp_path, shown):
    with pytest.raises(TypeError, match=r"^show: expected text, an array .*, got .*: "):
        write_report(table(), tmp_path / "page.html", show=lambda name: shown)


def test_lists_stop_and_empty_columns_explain(tmp_path):
    many = pa.table(
        {
            "id": range(30),
            "score": [*(0.25 - number for number in range(28)), math.nan, 0.0],
            "standard_error": [10.0] * 30,
            "loss": [float(number) for number in range(30)],
            "gradient_norm": [math.nan] * 30,
        }
    )
    page, words = reported(many, tmp_path)
    assert "30 samples: 27 with a negative score (93.1%), 7 of them by more than two standard errors" in words
    assert "errors; 1 whose score is not a number" in words
    assert "The column gradient_norm is empty: only ghost, lli, and lai without" in words
    assert "column standard_error is empty" not in words
    lowest, losses = (
        re.findall(r"<tr><td>(\d+)</td>", part) for part in page.split("Largest own losses</h2>")
    )
    assert lowest == [str(number) for number in range(27, 7, -1)]
    assert losses == ["29", *(str(number) for number in range(27, 8, -1))]
    assert "Groups" not in page
