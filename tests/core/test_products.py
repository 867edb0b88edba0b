"""Matrix products go through the one function that torch's autocast does not reach."""

import re
from pathlib import Path

import lai_core

PRODUCTS = re.compile(r"\bxp\.(matmul|tensordot|vecdot|einsum|linalg\.matmul)\(|^\s[^\"#>]*[\w)\]] @ [\w(]")


def test_no_product_bypasses_the_autocast_guard():
    folder = Path(lai_core.__file__).parent
    found = [
        f"{path.relative_to(folder)}:{number}: {line.strip()}"
        for path in folder.rglob("*.py")
        if path.name != "namespace.py"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if PRODUCTS.search(line)
    ]
    assert not found, found
