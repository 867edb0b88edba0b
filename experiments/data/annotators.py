"""Real annotators: short texts, each rated by 15 to 99 people from -4 to 4 (the data of VADER, MIT).

`make data` fetches the package that holds them, by its hash; it is read in place and never installed. The
right label is the sign of the mean rating. The given one is made as CIFAR-10N's `worse_label`: a wrong one if
any of three annotators is wrong. A rating of zero is a coin.
"""

import ast
import hashlib
import io
import re
import tarfile
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

HERE = Path(__file__).parent
FOLDER = HERE.parents[1] / "build" / "data"
PACKAGE, FILE = "vaderSentiment", "vaderSentiment-3.3.2.tar.gz"
CLEAR = 0.5
"""Texts whose mean rating is nearer to zero have no right label, and are left out."""


def fetched() -> bool:
    """Say whether the archive is there."""
    return (FOLDER / FILE).exists()


def archive(folder: Path = FOLDER) -> Path:
    """Return the path of the archive; refuse one whose bytes are not those that are pinned."""
    path = folder / FILE
    if not path.exists():
        msg = f"{PACKAGE}: expected its archive at {path}; `make data` fetches it"
        raise FileNotFoundError(msg)
    lines = (HERE / "archives.txt").read_text(encoding="utf-8")
    if hashlib.sha256(path.read_bytes()).hexdigest() not in re.findall(r"sha256:(\w+)", lines):
        msg = f"{PACKAGE}: {path} is not the archive whose hash is pinned; remove it and run `make data`"
        raise ValueError(msg)
    return path


class Rated(NamedTuple):
    """A text, the mean of its ratings, and the ratings."""

    text: str
    mean: float
    ratings: list[int]


@lru_cache(maxsize=2)
def rated(corpus: str = "movieReviewSnippets", path: Path | None = None) -> list[Rated]:
    """Read one corpus from the package's source archive, which holds an archive of ratings."""
    with tarfile.open(path or archive()) as outer:
        inner = io.BytesIO(_read(outer, "hutto_ICWSM_2014.tar.gz"))
        with tarfile.open(fileobj=inner) as tar:
            means, raw = (
                [row.split("\t") for row in _read(tar, f"/{corpus}_{end}.txt").decode("latin-1").splitlines()]
                for end in ("GroundTruth", "anonDataRatings")
            )
    ratings = {row[0]: ast.literal_eval(row[3]) for row in raw if len(row) > 3}
    found = [Rated(row[2], float(row[1]), ratings[row[0]]) for row in means if row[0] in ratings]
    return [one for one in found if abs(one.mean) >= CLEAR]


def _read(tar: tarfile.TarFile, end: str) -> bytes:
    held = tar.extractfile(next(one for one in tar if one.name.endswith(end)))
    assert held is not None
    return held.read()


def given_label(one: Rated, random: np.random.Generator) -> int:
    """Return the label that the worst of three annotators, drawn at random, gives: 1 for a positive text."""
    right = int(one.mean > 0)
    drawn = random.choice(one.ratings, 3, replace=False)
    votes = np.where(drawn == 0, random.integers(0, 2, 3), drawn > 0)
    return right if (votes == right).all() else 1 - right


@lru_cache(maxsize=1)
def features(width: int = 64) -> np.ndarray:
    """Return `(n, width)`: weighted counts of words and pairs of words, reduced without a label."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    counted = TfidfVectorizer(ngram_range=(1, 2), min_df=3, sublinear_tf=True)
    counts = counted.fit_transform(one.text for one in rated())
    found = TruncatedSVD(width, random_state=0).fit_transform(counts)
    return (found / found.std(axis=0)).astype(np.float32)
