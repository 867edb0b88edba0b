"""Every example runs, and shows what it says."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SHOWS = {
    "accelerate_loop": lambda plain, curated: curated > plain,
    "jax_equinox": lambda plain, curated: curated > plain,
    "jax_flax": lambda plain, curated: curated > plain,
    "jax_haiku": lambda plain, curated: curated > plain,
    "lightning_callback": lambda plain, curated: curated > plain,
    "transformers_trainer": lambda clean, noise: noise > 0.3 > clean,
}


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # the trainers' own
@pytest.mark.parametrize("name", sorted(SHOWS))
def test_an_example_shows_what_it_says(name):
    assert SHOWS[name](*runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"]())


@pytest.mark.slow
def test_a_corpus_is_scored_alike_by_one_process_and_two():
    command = [
        sys.executable,
        str(EXAMPLES / "score_corpus.py"),
    ]  # it forks, which JAX's threads do not outlive
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    harmful, alike = done.stdout.splitlines()
    assert alike == "scores of 1 and 2 processes are the same"
    assert int(harmful.split()[3].rstrip("%")) > 50  # of all, 36% have one


def test_every_example_is_run_and_in_the_gallery():
    elsewhere = {"trl_sft", "score_corpus"}  # in test_trl_trainer.py, and above
    there = {path.stem for path in EXAMPLES.glob("*.py")}
    assert there == set(SHOWS) | elsewhere
    gallery = (EXAMPLES.parent / "docs/guide/examples.md").read_text(encoding="utf-8")
    assert {name for name in there if f"```{{literalinclude}} ../../examples/{name}.py" in gallery} == there
