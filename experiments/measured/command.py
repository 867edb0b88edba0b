"""`python -m experiments measured`: measure, show, and write JSON for the page of the documentation."""

import json
import platform
from pathlib import Path
from typing import Any

import click
import torch

from experiments.measured.certificates import certificates
from experiments.measured.networks import networks
from experiments.measured.study import advice, constants


@click.command(help="Constants, advice and certificates of the theory on trained networks.")
@click.option("--only", default="", help="The networks whose name begins so; the others' numbers stay.")
@click.option("--out", type=Path, default=Path("build/experiments/measured.json"), show_default=True)
def measured(only: str, out: Path) -> None:
    """Run all three, or the first two on some networks."""
    found: dict[str, Any] = {"constants": {}, "advice": {}}
    if only and out.exists():
        found = json.loads(out.read_text(encoding="utf-8"))
    found["command"] = f"python -m experiments measured --out {out.as_posix()}"  # makes every row
    found["machine"] = f"{platform.machine()}, {platform.system()}, torch {torch.__version__}"
    for name, network in networks(only):
        found["constants"][name] = constants(network)
        found["advice"][name] = advice(network)
        click.echo(f"{name}: {json.dumps(found['constants'][name] | found['advice'][name])}")
    if not only:
        found["certificates"] = dict(certificates())
        click.echo(json.dumps(found["certificates"], indent=1))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(found, indent=1) + "\n")
