"""Long runs: what is killed and started again loses nothing, and what goes on holds on to nothing."""

import subprocess
import sys

import pytest

from workloads.killed import JOBS

pytestmark = pytest.mark.slow


def run(pytestconfig, *command):
    """Run a module in a process of its own, which may fork; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=pytestconfig.rootpath,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("job", ["score_dataset", "stream", "curated run"])
def test_a_run_that_is_killed_at_twenty_random_points_loses_nothing(pytestconfig, job):
    assert run(pytestconfig, "workloads.killed", job, "20").startswith("20 kills")


def test_a_trainer_that_is_killed_goes_on_from_its_last_whole_checkpoint(pytestconfig):
    assert run(pytestconfig, "workloads.killed", "CuratedTrainer", "5").startswith("5 kills")


def test_every_job_is_killed():
    assert set(JOBS) == {"score_dataset", "stream", "curated run", "CuratedTrainer"}


def test_a_thousand_steps_hold_on_to_nothing(pytestconfig):
    before, after = map(int, run(pytestconfig, "workloads.steady", "1000").split())
    assert after < 1.01 * before
