"""Stacks of perf, folded and drawn."""

import re
import runpy
import sys
import xml.dom.minidom
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"

SCRIPT = """\
python3
\t          26babc inner
\t    7f09a2e5ea00 outer<int> (x)
\t               1 [unknown]

python3
\t          26babc inner
\t    7f09a2e5ea00 outer<int> (x)
\t               1 [unknown]

swapper
\tffffffff815e6055 idle
"""


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(sys, "path", [*sys.path])
    return runpy.run_path(str(BENCH / "flame_graphs.py"))


def test_equal_stacks_are_counted_together_from_the_outermost_function(
    graphs: dict[str, Any],
) -> None:
    assert graphs["fold"](SCRIPT.splitlines()) == {
        ("python3", "[unknown]", "outer<int> (x)", "inner"): 2,
        ("swapper", "idle"): 1,
    }


def test_each_function_is_a_box_with_its_share(graphs: dict[str, Any]) -> None:
    svg = graphs["draw"](graphs["fold"](SCRIPT.splitlines()), "one & two")
    xml.dom.minidom.parseString(svg)
    assert re.findall("<title>(.*?)</title>", svg) == [
        "python3: 66.7%", "[unknown]: 66.7%", "outer&lt;int&gt; (x): 66.7%", "inner: 66.7%",
        "swapper: 33.3%", "idle: 33.3%",
    ]  # fmt: skip


def test_names_of_functions_cannot_become_tags(graphs: dict[str, Any]) -> None:
    hostile = '"><script>alert(1)</script>'
    svg = graphs["draw"]({("python3", hostile): 1}, hostile)
    names = {node.tagName for node in xml.dom.minidom.parseString(svg).getElementsByTagName("*")}
    assert "script" not in names
    assert "&lt;script&gt;" in svg


def test_no_samples_are_an_empty_picture(graphs: dict[str, Any]) -> None:
    assert xml.dom.minidom.parseString(graphs["draw"](graphs["fold"]([]), "none"))
