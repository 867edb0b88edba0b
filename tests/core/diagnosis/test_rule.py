"""The rules that name rows, positions and spikes, against plain statements of them, at every limit."""

import json
import math
import statistics

import numpy as np
import pytest

import lai_core as lai
from lai_core.diagnosis import SpikeRule, diagnose
from lai_core.diagnosis.rule import find_apart, find_cancelling, find_hidden, find_makers, find_span
from lai_core.diagnosis.spikes import SpikeLog

HALF = math.sqrt(0.5)
NORMS = (0.0, 4e-300, 0.5, 1.0, 1.0, 1.0, 2.0, 3.0, 4.0, 6.0, 10.0, 11.0, 20.0, 81.0, 1000.0, 1001.0, 5000.0)
LEFT = (0.0, 0.1, 0.25, 0.3, 0.4, 0.5, 0.6, HALF, 0.75, 1.0)


def list_apart(norms):
    """List the rows that stand apart, the longest first; equal ones in their order."""
    logs = [math.log(max(norm, 1e-300)) for norm in norms]
    middle = statistics.median(logs)
    spread = 1.4826 * float(np.median(np.abs(np.array(logs) - middle)))
    rows = [row for row, one in enumerate(logs) if one > middle + 3 * spread and one > middle + math.log(3)]
    return sorted(rows, key=lambda row: norms[row], reverse=True) if len(norms) > 2 else []


def list_makers(norms, products, left, excess):
    """List the rows that make a gradient of length 1; `left` is its length without the first few."""
    if len(norms) == 1:
        return [0] * bool(excess and excess > 1.5)
    most, median = max(2, len(norms) // 8), statistics.median(norms)

    def order(rows):
        along = [row for row in rows if products[row] > 0]
        return sorted(along, key=lambda row: products[row], reverse=True)[:most]

    long = [row for row, norm in enumerate(norms) if norm > 3 * median]
    rows = order(list_apart(norms) if excess is None else long)
    goal = HALF if excess is None else min(HALF, 1.5 / excess)
    enough = [count for count in range(1, len(rows) + 1) if left[count - 1] <= goal]
    tried = left[: enough[0] if enough else len(rows)]
    count = max((count for count, one in enumerate(tried, 1) if one <= HALF), default=0)
    if count and excess is not None and not enough:
        return list_makers(norms, products, left, None)
    if count:
        named = rows[:count]
        return named + [row for row in rows[count:] if norms[row] >= norms[named[-1]] / 2]
    first = products.index(max(products))
    others = statistics.median(norms[:first] + norms[first + 1 :])
    long = order(row for row, norm in enumerate(norms) if norm > 10 * others)
    for count in range(1, len(long) + 1):
        shortest, rest = min(norms[row] for row in long[:count]), left[count - 1]
        if (shortest > 1000 * others and rest <= HALF) or (count == 1 and rest <= 0.3):
            named = long[:count]
            return named + [row for row in rows if row not in named and norms[row] >= norms[named[-1]] / 2]
    return []


def test_named_makers_follow_the_stated_rule():
    draw, named = np.random.default_rng(0), 0
    for _ in range(6000):
        count = int(draw.choice([1, 2, 3, 4, 5, 7, 9, 24, 25]))
        norms = draw.choice(NORMS, count).tolist()
        products = draw.integers(-1, 6, count).astype(float).tolist()
        left = sorted(draw.choice(LEFT, 5).tolist(), reverse=bool(draw.integers(3)))
        excess = draw.choice([None, 1.5, 1.6, 2.5, 3.0, 6.0])
        for length in (1.0, 4.0):

            def drop(rows, left=left, length=length):
                assert rows
                return [length * one for one in left[: len(rows)]]

            found = find_makers(norms, products, length, drop, excess)
            assert found == list_makers(norms, products, left, excess), (norms, products, left, excess)
        named += bool(found)
    assert named > 600
    assert find_makers([1.0, 1.0], [0.0, 0.0], 0.0, lambda rows: [0.0], 2.0) == []


def test_outlying_and_cancelling_rows_follow_rules():
    draw = np.random.default_rng(1)
    for _ in range(3000):
        norms = draw.choice(NORMS, draw.integers(1, 10)).tolist()
        length = float(draw.choice([0.25, 2.0, 5.0, 40.5, 500.0]))
        apart = find_apart(norms)
        assert apart == list_apart(norms), norms
        long = [row for row in apart if norms[row] > 2 * length]
        assert find_cancelling(norms, apart, length) == (long if len(apart) > 1 else []), norms


def test_furthest_layer_outlier_is_found():
    draw, found = np.random.default_rng(2), 0
    for _ in range(2000):
        layers = {name: draw.choice(NORMS[2:], 6).tolist() for name in "abc"}
        layers["b"][2] = layers["c"][0] = 0.0
        ratios = {}
        for name, norms in layers.items():
            there = [row for row, norm in enumerate(norms) if norm]
            own = [norms[row] for row in there]
            for row in list_apart(own)[:1]:
                ratios[name] = (there[row], name, own[row] / statistics.median(own))
        best = max(ratios.values(), key=lambda one: one[2], default=None)
        assert find_hidden(layers) == best, layers
        found += best is not None
    assert found > 200


def test_spans_are_shortest_with_most_mass():
    draw = np.random.default_rng(3)
    for _ in range(3000):
        mass = draw.choice([0.0, 0.0, 1.0, 1.0, 2.0, 5.0, 9.0, 45.0], draw.integers(1, 12)).tolist()
        best = None
        for part in (0.9, 0.5):
            ranges = [(a, b) for a in range(len(mass)) for b in range(a, len(mass))]
            enough = [one for one in ranges if sum(mass[one[0] : one[1] + 1]) >= part * sum(mass)]
            first, last = min(enough, key=lambda one: one[1] - one[0])
            if best is None and sum(mass) and last - first + 1 < len(mass) / 2:
                best = first, last
        assert find_span(mass) == best, mass
    assert find_span([1.0, math.inf, *[0.0] * 9]) is None


def judge(numbers, window, warmup, deviations, ratio):
    """Say of each number whether it spikes, by the window before it."""
    known, said = [], []
    for number in numbers:
        if not math.isfinite(number):
            said.append(True)
            continue
        last = np.array(known[-window:])
        middle = np.median(last) if known else math.nan
        spread = np.median(np.abs(last - middle)) if known else math.nan
        said.append(len(known) >= warmup and number > max(middle + deviations * spread, ratio * middle))
        known.append(number)
    return said


@pytest.mark.parametrize("given", [{}, {"window": 24, "warmup": 7, "deviations": 2.0, "ratio": 1.25}])
def test_spikes_are_numbers_outside_the_window(given):
    draw, spikes = np.random.default_rng(4), 0
    options = {"window": 200, "warmup": 20, "deviations": 8.0, "ratio": 2.0} | given
    for spread in (0.01, 0.1, 0.1, 0.2, 0.2, 0.5):
        drift = np.exp(spread * draw.normal(size=500) + np.linspace(0, draw.normal(), 500))
        numbers = np.where(draw.random(500) < 0.03, 3.0 * drift, drift).round(2).tolist()
        numbers[300] = math.nan
        rule, other = SpikeRule(**given), SpikeRule(**given)
        said = []
        for step, number in enumerate(numbers):
            if step == 250:
                other.load_state_dict(json.loads(json.dumps(rule.state_dict())))
                rule = other
            said.append(rule.judge(number))
        assert said == judge(numbers, **options)
        last = [one for one in numbers if math.isfinite(one)][-options["window"] :]
        assert rule.usual == statistics.median(last)
        spikes += sum(said)
    assert spikes > 60


def test_limits_are_no_spikes():
    rule = SpikeRule(threshold=2.0)
    assert [rule.judge(one) for one in (2.0, 2.5, math.inf, 1.0)] == [False, True, True, False]
    assert (rule.usual, SpikeRule().usual) == (2.0, None)
    for last, spikes in ((2.0, False), (2.1, True)):
        rule = SpikeRule(warmup=2)
        assert [rule.judge(one) for one in (1.0, 1.0, last)] == [False, False, spikes]
    for name in ("threshold", "deviations", "ratio"):
        for value in (0.0, -1.0, math.inf):
            with pytest.raises(ValueError, match=rf"^{name}: expected a positive number, got {value}$"):
                SpikeRule(**{name: value})
    with pytest.raises(ValueError, match=r"^warmup: expected at most the window of 3 numbers, got 4$"):
        SpikeRule(window=3, warmup=4)


def test_spike_logs_limit_diagnoses_per_window(tmp_path):
    log = SpikeLog(None, SpikeRule(threshold=4.0, warmup=1, window=10), 2)
    numbers = [8.0, 2.0, 6.0, 6.0, *[2.0] * 6, 6.0, 6.0, 8.0, 8.0]
    found = [log.judge(number) for number in numbers]
    assert math.isnan(found[0])
    later = {step: one for step, one in enumerate(found) if step and one is not None}
    assert later == {2: 1.2, 10: 3.0, 12: 4.0}
    assert log.judge(9.0, known=False) is None
    other = SpikeLog(tmp_path / "none.jsonl", SpikeRule(threshold=4.0, warmup=1, window=10), 2)
    other.load_state_dict(json.loads(json.dumps(log.state_dict())))
    assert (other.step, other.state_dict()) == (15, log.state_dict())
    assert SpikeLog(None, None, 1).judge(1.0, also=True) is not None
    assert SpikeRule(ratio=0.5, deviations=0.5, threshold=0.5).judge(0.6)


def test_spikes_are_logged_as_json_lines(tmp_path):
    trace = lai.Trace([lai.LayerTrace(np.ones((3, 1)), np.array([[1.0], [1.0], [9.0]]))])
    found, log = diagnose(trace, np.ones(3)), SpikeLog(tmp_path / "spikes.jsonl", None, 3)
    for norm in (5.0, math.nan):
        log.judge(norm, also=True)
        line = log.write(found, norm, left_out=True)
    read = [json.loads(one) for one in (tmp_path / "spikes.jsonl").read_text().splitlines()]
    assert read[1] == line
    assert [(one["step"], one["norm"], one["left_out"], one["verdict"]) for one in read] == [
        (0, 5.0, True, "rows"),
        (1, None, True, "rows"),
    ]
    assert SpikeLog(None, None, 1).write(found, 2.0)["norm"] == 2.0
    SpikeLog(tmp_path / "new" / "folders" / "spikes.jsonl", None, 3).write(found, 2.0)
    with pytest.raises(IsADirectoryError):  # before the run, not at its spike
        SpikeLog(tmp_path, None, 3)
