"""Scores whose checks are remembered are those of `lai_scores`, and so are the refusals."""

import random

import numpy as np
import pytest

import lai_core as lai
from lai_core._adapters import LaiScores

WIDTH, OUTPUTS = 3, 2


def drawn(*shape, kind=np.float32):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(kind)


def trace(samples=4, *, positions=2, bias=(True, True), kind=np.float32, width=WIDTH, valid=None, last=1):
    """Return a trace of two layers; each option is something that checks look at."""
    first = lai.LayerTrace(
        drawn(samples, positions, width, kind=kind), bias=bias[0], name="first", valid=valid
    )
    gradients = drawn(samples, positions, OUTPUTS, kind=kind) if last else None
    head = lai.LayerTrace(drawn(samples, positions, WIDTH, kind=kind), gradients, bias=bias[1], name="head")
    return lai.Trace([first, head])


TRACES = {
    "plain": trace(),
    "more samples": trace(6),
    "more positions": trace(positions=3),
    "half": trace(kind=np.float16),
    "double": trace(kind=np.float64),
    "no bias": trace(bias=(False, True)),
    "wider": trace(width=WIDTH + 1),
    "no gradients": trace(last=False),
    "masked": trace(valid=np.array([[True, False]] * 4)),
    "masked by what is no mask": trace(valid=np.ones((4, 2), np.float32)),
    "another kind": lai.Trace(
        [lai.ReadoutTrace(drawn(4, 2, WIDTH), bias=True, name="first"), trace().layers[1]]
    ),
    "one layer": lai.Trace(trace().layers[1:]),
    "a key that cannot be compared": lai.Trace(
        [lai.LayerTrace(drawn(4, 2, WIDTH), bias=True, weight=np.ones(2)), trace().layers[1]]
    ),
    "no array": lai.Trace([lai.LayerTrace([1.0], bias=True), trace().layers[1]]),
    "no trace": "trace",
}
SIDES = {
    "tokens": lai.summarize(trace(5), "lai"),
    "mean": lai.summarize(trace(5), "lai", positions="mean"),
    "another": lai.summarize(trace(7), "lai"),
    "double": lai.summarize(trace(5, kind=np.float64), "lai"),
    "no bias": lai.summarize(trace(5, bias=(False, True)), "lai"),
    "of another estimator": lai.summarize(trace(5), "lli"),
    "a trace": trace(5),
}
OPTIONS = ({}, {"positions": "mean"}, {"positions": "tokens"}, {"layer_weights": (1.0, 2.0)})


def said(scores, *given, **options):
    try:
        return scores(*given, **options)
    except (ValueError, TypeError, AttributeError) as error:
        return type(error), str(error)


@pytest.mark.parametrize("order", range(4))
def test_remembered_checks_find_what_checks_find(order):
    draw = random.Random(order)
    asked = []
    for side in draw.sample(list(SIDES), len(SIDES)) * 2:  # what was checked holds for one summary's form
        pairs = [(side, one, options) for one in TRACES for options in OPTIONS]
        asked += draw.sample(pairs, len(pairs) // 2) * 2
    remembering = LaiScores()
    for side, one, options in asked:
        given = SIDES[side], TRACES[one]
        found, expected = said(remembering, *given, **options), said(lai.lai_scores, *given, **options)
        assert type(found) is type(expected), (side, one, options, found, expected)
        if isinstance(expected, tuple):
            assert found == expected, (side, one, options)
        else:
            assert found.dtype == expected.dtype
            assert (found == expected).all(), (side, one, options)


def test_a_form_is_checked_once(monkeypatch):
    from lai_core.estimators import _sides

    checks = []
    check = _sides.check_summary
    monkeypatch.setattr(_sides, "check_summary", lambda *given: checks.append(given) or check(*given))
    remembering = LaiScores()
    for samples in (4, 4, 6, 4, 6):
        remembering(SIDES["tokens"], trace(samples))
    remembering(SIDES["another"], trace(4))  # of the same form as the first
    assert len(checks) == 2
    remembering(SIDES["double"], trace(4))
    assert len(checks) == 3
