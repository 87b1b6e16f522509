"""Apache's own tests of replication, each with the tests here that show as much.

A line whose test is renamed or removed fails.
"""

import re
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parent


def test_what_apaches_tests_show_is_shown_here() -> None:
    lines = (TESTS / "genuine_replication_cases.txt").read_text().splitlines()
    named = [line.strip().partition("::") for line in lines if line.startswith(" ")]
    assert len(named) > 50
    for path, _, name in named:
        text = (TESTS / path).read_text()
        assert re.search(rf"^(async )?def test_{name}\(", text, re.MULTILINE), f"{path}: {name}"
