"""Attacks: bad input, failing disks and hostile text at their worst; `make attack`.

`ATTACK=short` takes seconds to a minute a file and runs in CI; `ATTACK=full` takes minutes and
tries everything.
"""

import os
from typing import Literal

import pytest

Depth = Literal["short", "full"]


@pytest.fixture(scope="session")
def depth() -> Depth:
    """How much is tried: a sample that finds the kind of fault, or every case."""
    return "full" if os.environ.get("ATTACK", "short") == "full" else "short"
