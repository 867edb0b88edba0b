"""The gallery's cards: for each example what it printed, as bars; the figures are committed.

``python docs/_ext/gallery.py NAME ...`` runs examples, all without a name, and writes the figures anew.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html import escape
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
FIGURES = ROOT / "docs" / "gallery.json"
TWO = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
"""How an example starts that trains on two processes."""


class Card(NamedTuple):
    """An example: its title, what its bars measure, and for each bar where it is printed."""

    title: str
    measure: str
    printed: dict[str, str]
    start: tuple[str, ...] = ()


ACCURACY = {"plain": r"plain ([\d.]+%)", "curated": r"curated ([\d.]+%)"}
DROPPED = {"of clean text": r"dropped ([\d.]+%)", "of noise": r"([\d.]+%) of the noise"}
WRONG = {"samples that hurt": r"([\d.]+%) of them"}
ON_IMAGES = "accuracy on clean images"
CARDS = {
    "accelerate_loop": Card("accelerate", ON_IMAGES, ACCURACY),
    "lightning_callback": Card("Lightning", ON_IMAGES, ACCURACY),
    "whole_run": Card("A whole run", ON_IMAGES, ACCURACY),
    "jax_flax": Card("flax nnx", ON_IMAGES, ACCURACY),
    "jax_equinox": Card("equinox and grain", ON_IMAGES, ACCURACY),
    "jax_haiku": Card("haiku", ON_IMAGES, ACCURACY),
    "sources": Card(
        "Several sources",
        ON_IMAGES,
        {"even shares": r"accuracy ([\d.]+%)", "shares that move": r"(?s)accuracy.*accuracy ([\d.]+%)"},
    ),
    "transformers_trainer": Card("transformers' Trainer", "dropped", DROPPED),
    "trl_sft": Card("TRL's SFTTrainer", "kept, where 60% of the text is clean", {"kept": r"kept ([\d.]+%)"}),
    "trl_grpo": Card(
        "TRL's GRPO",
        "prompts answered right",
        {
            arm: arm + r": ([\d.]+%)"
            for arm in ("solved prompts alone", "every rollout", "prompts with variance", "curated")
        },
    ),
    "torchtitan_style": Card(
        "In torchtitan's manner",
        "noise among what trains",
        {name: rf"(?m)^{name}\t.*\tnoise ([\d.]+)" for name in ("plain", "keep_top", "keep_positive")},
        TWO,
    ),
    "score_corpus": Card("datasets.map", "wrong labels, 36% of all", WRONG),
    "ray_data": Card("Ray Data", "wrong labels, 36% of all", WRONG),
}


def run(name):
    """Run an example, and return its figures: shares, by bar."""
    done = subprocess.run(
        [sys.executable, *CARDS[name].start, f"examples/{name}.py"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    figures = {}
    for bar, pattern in CARDS[name].printed.items():
        (number,) = re.search(pattern, done.stdout).groups()
        figures[bar] = round(float(number.rstrip("%")) / (100 if number.endswith("%") else 1), 4)
    return figures


def cards():
    """Return all cards as HTML, in markdown, each a link to its example."""
    figures = json.loads(FIGURES.read_text(encoding="utf-8"))
    drawn = "\n".join(_card(name, figures[name]) for name in CARDS)
    return f'```{{raw}} html\n<div class="gallery">\n{drawn}\n</div>\n```'


def _card(name, figures):
    """Draw one card: a bar for each figure, the last one in the site's colour."""
    title, measure = escape(CARDS[name].title), escape(CARDS[name].measure)
    bars = []
    for place, bar in enumerate(CARDS[name].printed):
        y, width = 22 * place, 100 * figures[bar]
        chosen = ' class="chosen"' if place == len(figures) - 1 else ""
        bars += [
            f'<text x="0" y="{y + 15}">{escape(bar)}</text>',
            f'<rect x="165" y="{y + 3}" width="{width:.1f}" height="15"{chosen}/>',
            f'<text x="{171 + width:.1f}" y="{y + 15}">{width:.3g}%</text>',
        ]
    head = f'<svg viewBox="0 0 318 {22 * len(figures)}" role="img" aria-label="{title}">'
    link = f'<a class="card" href="#{name.replace("_", "-")}">'
    return f"{link}<b>{title}</b><br><small>{measure}</small>{head}{''.join(bars)}</svg></a>"


if __name__ == "__main__":
    for chosen in sys.argv[1:] or CARDS:
        known = json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.exists() else {}
        known[chosen] = run(chosen)
        print(chosen, known[chosen], flush=True)
        FIGURES.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
