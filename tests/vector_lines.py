"""Vectors: what genuine code answered to inputs, one JSON object a line in tests/vectors."""

import json
from pathlib import Path
from typing import Any


def vector_lines(name: str) -> list[dict[str, Any]]:
    """The lines of a file below tests/vectors, as objects with `in` and `out`."""
    text = (Path(__file__).parent / "vectors" / name).read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def vector_pairs(name: str, operation: str) -> list[tuple[Any, Any]]:
    """Input and output of each line of a file that is about one operation."""
    lines = vector_lines(name)
    return [(line["in"], line["out"]) for line in lines if line["in"]["op"] == operation]
