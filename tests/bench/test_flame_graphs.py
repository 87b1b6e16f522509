"""Stacks of perf, folded and drawn."""

import re
import xml.dom.minidom
from collections import Counter

from bench import flame_graphs

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


def test_equal_stacks_are_counted_together_from_the_outermost_function() -> None:
    assert flame_graphs.fold(SCRIPT.splitlines()) == {
        ("python3", "[unknown]", "outer<int> (x)", "inner"): 2,
        ("swapper", "idle"): 1,
    }


def test_each_function_is_a_box_with_its_share() -> None:
    svg = flame_graphs.draw(flame_graphs.fold(SCRIPT.splitlines()), "one & two")
    xml.dom.minidom.parseString(svg)
    assert re.findall("<title>(.*?)</title>", svg) == [
        "python3: 66.7%", "[unknown]: 66.7%", "outer&lt;int&gt; (x): 66.7%", "inner: 66.7%",
        "swapper: 33.3%", "idle: 33.3%",
    ]  # fmt: skip


def test_names_of_functions_cannot_become_tags() -> None:
    hostile = '"><script>alert(1)</script>'
    svg = flame_graphs.draw(Counter({("python3", hostile): 1}), hostile)
    names = {node.tagName for node in xml.dom.minidom.parseString(svg).getElementsByTagName("*")}
    assert "script" not in names
    assert "&lt;script&gt;" in svg


def test_no_samples_are_an_empty_picture() -> None:
    assert xml.dom.minidom.parseString(flame_graphs.draw(flame_graphs.fold([]), "none"))
