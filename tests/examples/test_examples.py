"""Every example runs, and shows what it says."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SHOWS = {
    "accelerate_loop": lambda plain, curated: curated > plain,
    "jax_flax": lambda plain, curated: curated > plain,
    "lightning_callback": lambda plain, curated: curated > plain,
    "transformers_trainer": lambda clean, noise: noise > 0.3 > clean,
}


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # the trainers' own
@pytest.mark.parametrize("name", sorted(SHOWS))
def test_an_example_shows_what_it_says(name):
    assert SHOWS[name](*runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"]())


def test_every_example_is_run():
    elsewhere = {"trl_sft"}  # in test_trl_trainer.py
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(SHOWS) | elsewhere
