"""Statements under Coq's kernel: read from ``proofs/coq``, compiled and audited by ``make kernel``.

A statement is a ``Definition`` in ``Statements/CHAPTER.v`` there, below a comment ``(* Implements: slug *)``,
or ``(* Refutes: slug *)`` where what is printed is false; its proof is the theorem of the same name in
``proofs/coq/CHAPTER.v``. A comment before each hypothesis has the ledger's words for it, or ``meaning`` where
the hypothesis says what a symbol is. What the paper only defines is the ``Definition`` below
``(* Defines: slug *)``.

A statement that assumes something has a witness, the lemma of its name in ``proofs/coq/Witnesses/CHAPTER.v``:
something closed and not degenerate that satisfies the hypotheses. ``proofs/coq/Witness.v`` computes from the
statement what its witness has to show. So has a definition that assumes something and that a statement
concludes with.

``proofs/coq/uses.lock`` has, for each theorem, those that its proof uses, by way of any lemmas: read from the
kernel's own proof terms.

``python -m tests.support.kernel`` compiles under ``build/kernel``, prints each theorem with its axioms,
writes ``build/kernel.json``, and exits with 1 if anything is wrong; ``--lock`` writes ``uses.lock``.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = "coq libcoq-mathcomp-ssreflect libcoq-mathcomp-algebra libcoq-mathcomp-algebra-tactics"
ABSENT = (
    f"coqc is not installed, so no theorem was checked. Debian: apt-get install {PACKAGES}. "
    "KERNEL=required makes this an error."
)
CLOSED = "Closed under the global context"
FREE = "assumes nothing"
MEANING = "meaning"

_COMMENT = re.compile(r"\(\*(.*?)\*\)", re.DOTALL)
_SENTENCE = re.compile(r"(?:\(\*.*?\*\)|[^(]|\((?!\*))*?\.(?=\s|$)", re.DOTALL)
_DEFINITION = re.compile(r"(?:\s|\(\*.*?\*\))*Definition\s+(\w+)", re.DOTALL)
_LINK = re.compile(r"\(\*\s*(Implements|Refutes):\s*([\w, -]+?)\s*\*\)")
_DEFINES = re.compile(r"\(\*\s*Defines:\s*([\w, -]+?)\s*\*\)\s*Definition\s+(\w+)")
_NAMED = re.compile(r"^(?:Lemma|Theorem) (\w+)", re.MULTILINE)
_QUALIFIED = re.compile(r"(?<![\w.])([A-Z]\w*\.\w+)(?![\w.])")
_LEMMA = re.compile(r"^Lemma (\w+) : ltac:\(witness ", re.MULTILINE)
_NAMES = re.compile(r"^concludes @?([\w.]+)$", re.MULTILINE)
_WITNESSES = "From mathcomp Require Import all_ssreflect all_algebra. From LAI Require Import Witness."
_BINDERS = re.compile(r",|(?<![\\\w])in(?!\w)")


@dataclass(frozen=True)
class Claim:
    """One statement: where it is, which slugs it is about, what it assumes, its text."""

    chapter: str
    name: str
    line: int
    implements: tuple[str, ...]
    refutes: tuple[str, ...]
    hypotheses: tuple[str, ...]
    unnamed: tuple[str, ...]
    text: str

    @property
    def key(self) -> str:
        """Name the statement in the lock file of uses."""
        return f"{self.chapter}.{self.name}"


def claims(root: Path = ROOT) -> list[Claim]:
    """Read every statement that names a slug, in the order of the files."""
    found = []
    for path in _statement_files(root):
        text = path.read_text(encoding="utf-8")
        for match in _SENTENCE.finditer(text):
            sentence = match.group()
            definition = _DEFINITION.match(sentence)
            links = _LINK.findall(sentence)
            if definition is None or not links:
                continue
            slugs = {
                word: tuple(s.strip() for kind, listed in links if kind == word for s in listed.split(","))
                for word in ("Implements", "Refutes")
            }
            body = sentence[definition.end() :]
            named = [_words(words) for words in _COMMENT.findall(body)]
            claim = Claim(
                chapter=path.stem,
                name=definition.group(1),
                line=text.count("\n", 0, match.start() + definition.start(1)) + 1,
                implements=slugs["Implements"],
                refutes=slugs["Refutes"],
                hypotheses=tuple(dict.fromkeys(words for words in named if words != MEANING)),
                unnamed=tuple(_unnamed(body)),
                text="Definition" + sentence.partition("Definition")[2],
            )
            found.append(claim)
    return found


def defined(root: Path = ROOT) -> dict[str, list[str]]:
    """Name, for each slug that the paper only defines, the definitions of it: ``CHAPTER.name``."""
    found: dict[str, list[str]] = {}
    for path in _statement_files(root):
        for slugs, name in _DEFINES.findall(path.read_text(encoding="utf-8")):
            for slug in slugs.split(","):
                found.setdefault(slug.strip(), []).append(f"{path.stem}.{name}")
    return found


def witnessed(root: Path = ROOT) -> set[str]:
    """Name the statements, ``CHAPTER.name``, whose witness is written down."""
    paths = sorted((root / "proofs/coq/Witnesses").glob("*.v"))
    return {f"{path.stem}.{name}" for path in paths for name in _LEMMA.findall(path.read_text("utf-8"))}


def _statement_files(root: Path) -> list[Path]:
    return sorted((root / "proofs/coq/Statements").glob("*.v"))


def _words(text: str) -> str:
    return " ".join(text.split())


def _unnamed(body: str) -> Iterator[str]:
    """Give the hypotheses, of the whole statement, that no comment names."""
    start, depth, position = body.index(":=") + 2, 0, body.index(":=") + 2
    while position < len(body):
        comment = _COMMENT.match(body, position)
        if comment:
            position = comment.end()
            continue
        depth += (body[position] in "([{") - (body[position] in ")]}")
        binders = _BINDERS.match(body, position) if depth == 0 else None
        arrow = depth == 0 and body.startswith("->", position) and body[position - 1] != "<"
        if arrow and not body[start:position].lstrip().startswith("(*"):
            yield _words(_COMMENT.sub(" ", body[start:position]))
        position = binders.end() if binders else position + 1 + arrow
        start = position if binders or arrow else start


def compiled(root: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Compile every file under ``build/kernel``; what did not change since the last time is kept."""
    build = root / "build" / "kernel"
    sources = sorted((root / "proofs/coq").rglob("*.v"))
    names = [path.relative_to(root / "proofs/coq").as_posix() for path in sources]
    for path, name in zip(sources, names, strict=True):
        copy = build / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if not copy.exists() or copy.read_bytes() != path.read_bytes():
            shutil.copyfile(path, copy)
    options = "-R . LAI\n-arg -w -arg none\n"
    (build / "_CoqProject").write_text(options + "\n".join(names) + "\n", encoding="utf-8")
    made = subprocess.run(
        ["coq_makefile", "-f", "_CoqProject", "-o", "CoqMakefile"],
        cwd=build,
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        return made
    jobs = f"-j{os.cpu_count() or 1}"
    command = ["make", "-f", "CoqMakefile", jobs]
    return subprocess.run(command, cwd=build, capture_output=True, text=True, check=False)


def audit(root: Path = ROOT) -> dict[str, str]:
    """Ask the kernel for each statement's theorem and witness, and for the axioms below them.

    An answer is filed under ``CHAPTER.name``, that about its witness under ``witness CHAPTER.name``.
    """
    found, written = claims(root), witnessed(root)
    files = {name for claim in found for name in (claim.chapter, f"Statements.{claim.chapter}")}
    files |= {f"Witnesses.{key.partition('.')[0]}" for key in written}
    head = [_WITNESSES, *(f"Require LAI.{name}." for name in sorted(files))]
    asked = [
        f"Goal True. let t := eval red in LAI.Statements.{claim.key} in concludes t. Abort."
        for claim in found
    ]
    used = sorted(
        {".".join(name.split(".")[-2:]) for name in _NAMES.findall(_answered([*head, *asked], root))}
    )
    lines = [*head]
    for claim in found:
        key, statement = claim.key, f"LAI.Statements.{claim.key}"
        lines += _asked(key, f"Definition checked : {statement} := LAI.{key}.")
    for key in [*(claim.key for claim in found), *used]:
        statement = f"LAI.Statements.{key}"
        if key in written:
            term = f"LAI.Witnesses.{key} : ltac:(witness {statement})"
            lines += _asked(f"witness {key}", f"Definition checked := {term}.")
        else:
            lines += [_title(f"witness {key}"), f"Goal True. assumes {statement}. Abort."]
    parts = dict(part.split("\n", 1) for part in _answered(lines, root).split("== ")[1:])
    return {key: _words(part) for key, part in parts.items()}


def _answered(lines: list[str], root: Path) -> str:
    """Run sentences after what was compiled, and give what they print."""
    build = root / "build" / "kernel"
    (build / "Audit.v").write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = ["coqtop", "-q", "-w", "none", "-R", ".", "LAI", "-batch", "-l", "Audit.v"]
    run = subprocess.run(command, cwd=build, capture_output=True, text=True, check=False)
    if run.returncode:
        last = run.stdout.split("== ")[-1].split("\n")[0] if "== " in run.stdout else "kernel"
        raise RuntimeError(f"{last}: {_words(run.stderr)}")
    return run.stdout


def uses(root: Path = ROOT) -> dict[str, list[str]]:
    """Read which theorems each theorem's proof uses, from the kernel's terms, of what `compiled` left.

    A lemma that is no statement stands for what it uses itself.
    """
    build, keys = root / "build" / "kernel", {claim.key for claim in claims(root)}
    paths = sorted((root / "proofs/coq").glob("*.v"))
    names = [f"{path.stem}.{name}" for path in paths for name in _NAMED.findall(path.read_text("utf-8"))]
    lines = [f"Require LAI.{path.stem}." for path in paths] + ["Set Printing Depth 1000000."]
    lines += [f"{_title(name)}\nPrint LAI.{name}." for name in names]
    # From standard input, as a name that a section has closed over is an error that may be passed over.
    run = subprocess.run(
        ["coqtop", "-q", "-w", "none", "-R", ".", "LAI"],
        cwd=build,
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=True,
    )
    terms = dict(part.split("\n", 1) for part in run.stdout.split("== ")[1:])
    known = set(names)
    direct = {name: set(_QUALIFIED.findall(term)) & known - {name} for name, term in terms.items()}

    def reached(name: str) -> set[str]:
        found, pending = set(), [*direct[name]]
        while pending:
            other = pending.pop()
            if other not in found:
                found.add(other)
                pending += [] if other in keys else direct[other]
        return found & keys

    return {key: sorted(reached(key)) for key in sorted(keys)}


def recorded_uses(root: Path = ROOT) -> dict[str, list[str]]:
    """Read what ``--lock`` wrote of them."""
    lines = (root / "proofs/coq/uses.lock").read_text(encoding="utf-8").splitlines()
    return {key: used for key, *used in map(str.split, lines)}


def _asked(key: str, definition: str) -> list[str]:
    return [_title(key), definition, "Print Assumptions checked.", "Reset checked."]


def _title(key: str) -> str:
    return f'Goal True. idtac "== {key}". Abort.'


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Check everything, or write the lock file; return the exit status."""
    if shutil.which("coqc") is None:
        print(ABSENT)
        return int(os.environ.get("KERNEL") == "required")
    result = compiled(root)
    if result.returncode:
        print(result.stderr)
        return 1
    used = uses(root)
    if arguments == ["--lock"]:
        lines = "".join(f"{' '.join([key, *others])}\n" for key, others in used.items())
        (root / "proofs/coq/uses.lock").write_text(lines, encoding="utf-8")
        return 0
    try:
        answers = audit(root)
    except RuntimeError as error:
        print(error)
        return 1
    # A witness that is closed needs no line of its own.
    shown = {
        key: answer
        for key, answer in answers.items()
        if not (key.startswith("witness ") and answer in (CLOSED, FREE))
    }
    for key, answer in shown.items():
        print(f"{key}: {'no axiom' if answer == CLOSED else answer}")
    if used != recorded_uses(root):
        print("the proofs use other theorems than proofs/coq/uses.lock says (--lock writes it)")
    (root / "build" / "kernel.json").write_text(json.dumps(answers, indent=1) + "\n", encoding="utf-8")
    wrong = [key for key, answer in shown.items() if answer != CLOSED]
    theorems = [key for key in answers if not key.startswith("witness ")]
    witnesses = sum(answers[f"witness {key}"] == CLOSED for key in theorems)
    print(f"{len(theorems)} theorems, {witnesses} witnesses, the others assume nothing; {len(wrong)} wrong")
    return int(bool(wrong or used != recorded_uses(root)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
