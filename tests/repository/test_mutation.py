"""The mutants of `make mutation`: every kind is found, none breaks the syntax, none is named in vain."""

import tomllib

from tests.mutation.places import places, sources
from tests.support import ledger

SOURCE = '''
"""A docstring with 1 + 1."""

def f(xp, x, y, flag):
    if x < y and not flag:
        raise ValueError("1 + 1 is not 3")
    total = xp.sum(abs(x) * 2.0, axis=0) - y**2
    total += xp.matmul(x, y)
    return xp.reshape(xp.max(-total), (-1,))
'''


def test_mutants_of_every_kind_compile(tmp_path):
    path, source = tmp_path / "module.py", SOURCE.encode()
    path.write_text(SOURCE)
    found = places(path, tmp_path)
    for place in found:
        start, end = place.span
        compile(source[:start] + place.new.encode() + source[end:], place.file, "exec")
    changes = {place.name.partition("f: ")[2] for place in found}
    assert changes == {
        "x < y and (not flag) -> (x < y or not flag)",
        "x < y -> (x <= y)",
        "not flag -> (flag)",
        "xp.sum(abs(x) * 2.0, axis=0) - y ** 2 -> (xp.sum(abs(x) * 2.0, axis=0) + y ** 2)",
        "abs(x) * 2.0 -> (abs(x) / 2.0)",
        "abs(x) -> (x)",
        "2.0 -> (4.0)",
        "axis=0 -> axis=1",
        "y ** 2 -> (y * 2)",
        "2 -> (3)",
        "total += xp.matmul(x, y) -> total -= xp.matmul(x, y)",
        "xp.matmul(x, y) -> (xp.matmul(y, x))",
        "xp.reshape(xp.max(-total), (-1,)) -> (xp.reshape((-1,), xp.max(-total)))",
        "xp.max(-total) -> (xp.min(-total))",
        "-total -> (total)",
    }


def test_equivalent_mutants_are_mutants():
    root = ledger.ROOT
    named = tomllib.loads((root / "tests/mutation/equivalent.toml").read_text(encoding="utf-8"))
    listed = {p.name for file in sources(root) for p in places(file, root)}
    assert set(named) <= listed
    assert all(named.values())
