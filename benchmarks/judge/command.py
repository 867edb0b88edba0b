"""`python -m benchmarks judge`: every library that is installed on every case, as a table and as JSON."""

import datetime
import json
import re
import traceback
import warnings
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.judge.libraries import LIBRARIES, ExplainsNoneError
from benchmarks.judge.zoo import CASES, COUPLED, MODES, build

WRITTEN = Path("build") / "judge.json"
RECORD = Path(__file__).parent / "record.json"
BOUNDS = {torch.float64: 1e-9, torch.float32: 1e-4}
"""Errors of rounding stay far below, errors of meaning far above."""
BFLOAT16 = 0.05
SAYS_SO = re.compile(r"support|functorch|vmap")
"""What a message of torch's says of a library's limit."""
NAMES_A_LAYER = re.compile(r"\blayer\b", re.IGNORECASE)
"""A warning that says of which layer a number is not to be trusted; others warn of deprecations and hooks."""


def judge(library: str, name: str) -> dict[str, Any]:
    """Return what a library does with a case: verdict, relative error, reason, scope."""
    asked = LIBRARIES[library]
    row = {"relative_error": None, "scope": "outside" if name in asked.outside else "inside"}
    try:
        torch.manual_seed(1)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found, names = asked.ask(build(name))
    except ExplainsNoneError:
        return row | {"verdict": "part", "reason": "explains none of the parameters"}
    except Exception as problem:  # whatever a user would see
        return row | judge_error(problem)
    row |= judge_number(name, found.detach(), list(names))
    warned = [str(each.message) for each in caught if NAMES_A_LAYER.search(str(each.message))]
    if row["verdict"] == "wrong" and warned:
        row |= {"verdict": "refused", "reason": shorten(f"warned: {warned[0]}")}
    return row


def judge_number(name: str, found: Tensor, names: list[str]) -> dict[str, Any]:
    """Compare with a loop of autograd over the parameters that a library names."""
    gradients = build(name).gradients()
    error = relative_error(found, gradients, names)
    bound = BFLOAT16 if "bfloat16" in name else BOUNDS[found.dtype]
    row = {"verdict": "exact", "reason": "", "relative_error": float(f"{error:.0e}")}
    if name in MODES and relative_error(found, build(name, training=False).gradients(), names) <= bound:
        return row | {"verdict": "part", "reason": "the gradients of eval mode, in which it puts the model"}
    if name.startswith(COUPLED):
        reason = "a number, although no sample has a gradient of its own"
        return row | {"verdict": "wrong", "reason": reason, "relative_error": None}
    if not error <= bound:  # nor is a NaN right
        return row | {"verdict": "wrong", "reason": f"relative error {error:.0e}"}
    if left := [each for each in gradients if each not in names and gradients[each].abs().max() > 0]:
        return row | {"verdict": "part", "reason": "without " + ", ".join(left)}
    return row


def relative_error(found: Tensor, gradients: dict[str, Tensor], names: list[str]) -> float:
    """Return the largest error of inner products, beside the largest of the exact ones."""
    rows = torch.cat([gradients[each] for each in names], 1)
    exact = rows @ rows.T
    return float((found.to(exact) - exact).abs().max() / exact.abs().max())


def judge_error(problem: Exception) -> dict[str, Any]:
    """Tell an error that a library raises itself, or that names its limit, from any other."""
    last = traceback.extract_tb(problem.__traceback__)[-1]
    torchs = "/torch/" in last.filename or Path(__file__).parent.as_posix() in last.filename
    raised = (last.line or "").startswith("raise") or isinstance(problem, AssertionError)
    refused = SAYS_SO.search(str(problem)) or (raised and not torchs)
    reason = shorten(f"{type(problem).__name__}: {problem}")
    return {"verdict": "refused" if refused else "crash", "reason": reason}


def shorten(text: str) -> str:
    return " ".join(text.split())[:160]


def run(libraries: tuple[str, ...], cases: tuple[str, ...], *, pin: bool) -> None:
    """Judge, print, write; exit with an error where an answer of this library is wrong."""
    versions = {}
    for name in libraries or LIBRARIES:
        try:
            versions[name] = version(LIBRARIES[name].package)
        except PackageNotFoundError:
            print(f"{name}: not installed; `make peers` installs {LIBRARIES[name].package}")
    record: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for library in versions:
            record[library] = {name: judge(library, name) for name in cases or CASES}
            for name, row in record[library].items():
                remark = " (outside its scope)" if row["scope"] == "outside" else ""
                print(f"{library:18}{name:38}{row['verdict']}{remark}  {row['reason']}")
    versions["torch"] = torch.__version__
    record |= {"versions": versions, "date": datetime.date.today().isoformat()}
    WRITTEN.parent.mkdir(exist_ok=True)
    text = re.sub(r"\n   +|\n  (?=})", " ", json.dumps(record, indent=1))  # a cell a line
    for path in [WRITTEN, RECORD] if pin else [WRITTEN]:
        path.write_text(text + "\n", encoding="utf-8")
    if wrong := [name for name, row in record.get("lai_torch", {}).items() if row["verdict"] == "wrong"]:
        raise SystemExit("lai_torch is wrong: " + ", ".join(wrong))
