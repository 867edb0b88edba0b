"""`python -m experiments STUDY`: run a study, show what it found, write it under `build/`."""

import click

from experiments.measured.command import measured
from experiments.noisy_labels.command import noisy_labels


@click.group(help="Studies: each trains models, shows a table, and writes its figures as JSON and pictures.")
def studies() -> None:
    """Collect the studies."""


studies.add_command(noisy_labels)
studies.add_command(measured)

if __name__ == "__main__":
    studies(prog_name="python -m experiments")
