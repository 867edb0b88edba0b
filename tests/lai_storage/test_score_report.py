"""The page about a data set's scores: what it says is what the table holds, and it loads nothing."""

import base64
import io
import math
import re

import numpy as np
import pyarrow as pa
import pytest
from lai_storage.report import write_mixture, write_report
from lai_storage.scoring import Indexed
from lai_storage.tables import read_scores
from matplotlib.figure import Figure
from PIL import Image

from lai_core.mixtures import Mixture
from tests.lai_storage.test_score_tables import load, written


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


def reported(given, folder, write=write_report, **options):
    """Return the page of a report, and its words."""
    write(given, folder / "page.html", **options)
    page = (folder / "page.html").read_text()
    plain = re.sub("<[^>]*>", " ", re.sub("<svg.*</svg>", "", page, flags=re.DOTALL))
    return page, " ".join(plain.split())


def test_the_page_counts_lists_and_groups(tmp_path):
    page, words = reported(table(), tmp_path, title="Nine & more", worst=2)
    assert "Nine &amp; more" in page
    assert "4 samples: 2 with a negative score (66.7%), 1 of them by more than two standard errors" in words
    assert "Lowest scores id score standard_error loss gradient_norm group rank &lt;b&gt; -4 1 0.5" in words
    assert "Largest own losses id score standard_error loss gradient_norm group rank two -1 1 3" in words
    assert (
        "Groups group samples negative scores mean score mean loss 0 2 100.0% -2.5 1.75 1 1 0.0% 0.5 1"
        in words
    )
    assert not re.search(r"(src|href)=\"(?!#)http", page)


def test_custom_columns_are_drawn_and_listed(tmp_path):
    own = table().append_column('nearest "5"', pa.array([0.1, 0.9, 0.5, 0.2]))
    page, words = reported(own, tmp_path, worst=1)
    assert "Largest nearest &#34;5&#34;" in page
    assert 'aria-label="Distribution: nearest &#34;5&#34;"' in page
    assert "rank nearest &#34;5&#34; two -1 1 3 2 0 2 0.9" in words


def test_tables_of_several_checkpoints_are_refused(tmp_path):
    with pytest.raises(ValueError, match="expected one row a sample, got 4 rows of 1 samples"):
        write_report(table(id=["one"] * 4), tmp_path / "page.html")


@pytest.fixture
def drawn(monkeypatch):
    """Give what is drawn, and save none of it."""
    figures = []

    def kept(self, file, **options):
        file.write("<?xml version='1.0'?><svg></svg>")
        figures.append(self)

    monkeypatch.setattr(Figure, "savefig", kept)
    return figures


def test_folders_tables_and_frames_agree(tmp_path, drawn):
    written(tmp_path / "scores", Indexed(2, 2, load))
    own = read_scores(tmp_path / "scores")
    given = tmp_path / "scores", str(tmp_path / "scores"), own, own.to_pandas()
    assert len({reported(each, tmp_path)[0] for each in given}) == 1
    with pytest.raises(TypeError, match=r"table: expected what read_scores returned, .* got list"):
        write_report([1, 2], tmp_path / "page.html")


def test_samples_are_shown_as_given(tmp_path, drawn):
    """Text is escaped; arrays, PIL's images and files are images within the page, to the pixel."""
    pixels = np.random.default_rng(0).integers(0, 255, (4, 5, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "three.bmp")
    told = {"<b>": "a <i>text</i>", "two": pixels, "three": tmp_path / "three.bmp", "four": None}
    for kinds in (told, told | {"two": Image.fromarray(pixels)}):
        page, words = reported(table(), tmp_path, show=kinds.get, worst=3)
        assert "Lowest scores id sample score standard_error loss" in words
        assert page.count("a &lt;i&gt;text&lt;/i&gt;") == 2  # by score, and by loss
        images = re.findall(r'<img alt="" src="data:image/(png|bmp);base64,([^"]*)">', page)
        assert sorted(kind for kind, _ in images) == ["bmp", "bmp", "png", "png"]
        for _, image in images:
            shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(image))).convert("RGB"))
            np.testing.assert_array_equal(shown, pixels)


def test_empty_columns_are_explained_not_drawn(tmp_path, drawn):
    some = {"gradient_norm": [math.nan] * 4, "standard_error": [math.nan, 1.0, 1.0, math.nan]}
    page, words = reported(table(**some), tmp_path)
    drawings = ["Distribution: score", "Distribution: loss", "Distribution: standard error"]
    assert re.findall('aria-label="([^"]*)"', page) == [*drawings, "Scores against losses"]
    assert [*drawn[-1].axes[0].lines[0].get_ydata()] == [0.0, 0.0]
    assert "The column gradient_norm is empty: only ghost, lli, and lai without" in words
    assert "id score standard_error loss group rank" in words
    assert "column standard_error is empty" not in words
    assert "<?xml" not in page


def test_lists_stop_at_twenty_samples(tmp_path, drawn):
    many = pa.table(
        {
            "id": range(30),
            "score": [*(0.25 - number for number in range(28)), math.nan, 0.0],
            "standard_error": [10.0] * 30,
            "loss": [float(number) for number in range(30)],
            "gradient_norm": [1.0] * 30,
        }
    )
    page, words = reported(many, tmp_path)
    assert "30 samples: 27 with a negative score (93.1%), 7 of them by more than two standard errors" in words
    assert "errors; 1 whose score is not a number" in words
    lowest, losses = (
        re.findall(r"<tr><td>(\d+)</td>", part) for part in page.split("Largest own losses</h2>")
    )
    assert lowest == [str(number) for number in range(27, 7, -1)]
    assert losses == ["29", *(str(number) for number in range(27, 8, -1))]
    assert "Groups" not in page


def test_mixture_pages_show_shares_and_errors(tmp_path, drawn):
    mixture = Mixture([3.0, 1.0])
    for means in ([2.0, -2.0], [1.5, -1.0], [0.0, -1.0]):
        errors = [
            0.5 * (mean != -1) if mean else math.inf for mean in means
        ]  # a source that was not observed
        mixture.step(np.array(means), np.array(errors))
    _, words = reported(mixture.history, tmp_path, write_mixture, names=["good", "<bad>"])
    first, last = mixture.history[0].weights, mixture.weights
    assert f"3 updates; now good {last[0]:.1%}, &lt;bad&gt; {last[1]:.1%}." in words
    assert f"1 {first[0]:.4g} 2 0.5 {first[1]:.4g} -2 0.5 2" in words
    assert f"3 {last[0]:.4g} 0 inf {last[1]:.4g} -1 0" in words
    shares, scores = (figure.axes[0] for figure in drawn)
    assert [list(line.get_ydata()) for line in shares.lines] == [
        [update.weights[source] for update in mixture.history] for source in range(2)
    ]
    assert list(scores.lines[0].get_ydata())[:2] == [2.0, 1.5]
    assert math.isnan(scores.lines[0].get_ydata()[2])
    assert [*scores.lines[2].get_ydata()] == [0.0, 0.0]
    assert shares.get_ylim()[0] == 0.0
    edges = {tuple(map(float, corner)) for corner in scores.collections[0].get_paths()[0].vertices}
    assert edges == {(1.0, 1.5), (1.0, 2.5), (2.0, 1.0), (2.0, 2.0)}


def test_bad_histories_and_names_are_refused(tmp_path):
    mixture = Mixture(2)
    with pytest.raises(ValueError, match="history: expected at least one update, got none"):
        write_mixture(mixture.history, tmp_path / "page.html")
    mixture.step(np.array([1.0, -1.0]), np.array([0.1, 0.1]))
    with pytest.raises(ValueError, match="names: expected 2, one a source, got 1"):
        write_mixture(mixture.history, tmp_path / "page.html", names=["good"])
