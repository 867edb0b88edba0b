"""Real annotators: short texts, each rated by 15 to 99 people from -4 to 4 (the data of VADER, MIT).

The right label is the sign of the mean rating. The given one is made as CIFAR-10N's are: one annotator's,
of three's majority, or a wrong one if any of three is wrong (`worst`). A rating of zero is a coin.
"""

import ast
import io
import tarfile
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.data.archives import archive

CLEAR = 0.5
"""Texts whose mean rating is nearer to zero have no right label, and are left out."""
KINDS = ("one", "majority", "worst")


class Rated(NamedTuple):
    """A text, the mean of its ratings, and the ratings."""

    text: str
    mean: float
    ratings: list[int]


@lru_cache(maxsize=2)
def rated(corpus: str = "movieReviewSnippets", path: Path | None = None) -> list[Rated]:
    """Read one corpus from the package's source archive, which holds an archive of ratings."""
    with tarfile.open(path or archive("vaderSentiment")) as outer:
        inner = next(one for one in outer if one.name.endswith("hutto_ICWSM_2014.tar.gz"))
        held = outer.extractfile(inner)
        assert held is not None
        with tarfile.open(fileobj=io.BytesIO(held.read())) as tar:
            means, raw = (_rows(tar, f"/{corpus}_{end}.txt") for end in ("GroundTruth", "anonDataRatings"))
    ratings = {row[0]: ast.literal_eval(row[3]) for row in raw if len(row) > 3}
    found = [Rated(row[2], float(row[1]), ratings[row[0]]) for row in means if row[0] in ratings]
    return [one for one in found if abs(one.mean) >= CLEAR]


def _rows(tar: tarfile.TarFile, end: str) -> list[list[str]]:
    held = tar.extractfile(next(one for one in tar.getmembers() if one.name.endswith(end)))
    assert held is not None
    return [row.split("\t") for row in held.read().decode("latin-1").splitlines()]


def given_label(one: Rated, kind: str, random: np.random.Generator) -> int:
    """Return the label that annotators drawn at random give, 1 for a positive text."""
    right = int(one.mean > 0)
    drawn = random.choice(one.ratings, 3, replace=False)
    votes = np.where(drawn == 0, random.integers(0, 2, 3), drawn > 0)
    if kind == "worst":
        return right if (votes == right).all() else 1 - right
    return int(votes[0] if kind == "one" else votes.sum() >= 2)


@lru_cache(maxsize=2)
def features(corpus: str = "movieReviewSnippets", width: int = 64) -> np.ndarray:
    """Return `(n, width)`: weighted counts of words and pairs of words, reduced without a label."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    counted = TfidfVectorizer(ngram_range=(1, 2), min_df=3, sublinear_tf=True)
    found = TruncatedSVD(width, random_state=0).fit_transform(
        counted.fit_transform(one.text for one in rated(corpus))
    )
    return (found / found.std(axis=0)).astype(np.float32)
