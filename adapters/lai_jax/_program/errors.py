"""What is said when a model cannot be explained."""

import sysconfig
from pathlib import Path
from typing import Any

_LIBRARIES = (
    *(sysconfig.get_paths()[key] for key in ("purelib", "platlib", "stdlib")),
    str(Path(__file__).parents[1]),  # this package itself
)

INSTEAD = "lai_jax.exact_scores works for any model in which samples do not meet"


class UnexplainedError(ValueError):
    """The program does something whose per-sample gradients are not known exactly."""

    def locate(self, eqn: Any) -> "UnexplainedError":
        """Return the error with the user's line that called what raised it, if it names none."""
        message, line = str(self), _line(eqn)
        head, colon, rest = message.partition(": ")
        name, space, how = rest.partition(" ")
        if line is None or how.startswith("(") or name.endswith(":") or not colon:
            return self
        return UnexplainedError(f"{head}{colon}{name} ({line}){space}{how}")


def _line(eqn: Any) -> str | None:
    """Return where in the user's program an equation comes from: ``model.py:12``; None if not known."""
    traceback = eqn.source_info.traceback
    for frame in [] if traceback is None else traceback.frames:  # innermost first
        if not frame.file_name.startswith(_LIBRARIES):
            return f"{frame.file_name.rsplit('/', 1)[-1]}:{frame.line_num}"
    return None


def place(eqn: Any) -> str:
    """Say which operation of the user's program an equation is: ``dot_general (model.py:12)``."""
    line = _line(eqn)
    return str(eqn.primitive.name) if line is None else f"{eqn.primitive.name} ({line})"


def couples(eqn: Any, how: str) -> UnexplainedError:
    return UnexplainedError(
        f"apply, loss: {place(eqn)} {how}, so that one sample's loss depends on other samples of the batch "
        "and has no gradient of its own; use running statistics (evaluation mode), or a loss of each "
        "sample alone; if samples are in fact independent, make apply and loss accept a batch of one, so "
        "that independence can be tested"
    )


def unknown(eqn: Any, what: str) -> UnexplainedError:
    return UnexplainedError(f"apply, loss: {place(eqn)} is not followed: {what}; {INSTEAD}")
