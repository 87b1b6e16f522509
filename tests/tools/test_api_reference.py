import ast

import pytest

import api_reference
import roquet.client
from roquet.client import blocking
from roquet.model import errors


@pytest.mark.parametrize("name", api_reference.PAGES)
def test_the_written_page_equals_the_generated_one(name: str) -> None:
    written = (api_reference.REFERENCE / name).read_text("utf-8")
    assert written == api_reference.PAGES[name](), "`make map` writes it anew"


def test_the_client_page_describes_every_exported_name() -> None:
    page = api_reference.client()
    values = {"ConsumeFrom", "Compression", "MessageModel", "ReadFrom", "TransactionState"}
    documented = {name for name in roquet.client.__all__ if f"\n### {name}\n" in page}
    ours = {name for name in roquet.client.__all__ if not hasattr(errors, name)}
    assert ours - documented == values


def test_every_error_of_a_client_is_exported_and_the_page_says_which_are_definite() -> None:
    tree = {name for name in vars(errors) if isinstance(vars(errors)[name], type)}
    assert tree == set(api_reference.ADVICE)
    ours = {name for name in tree if not name.startswith("Store")}
    assert ours <= set(roquet.client.__all__)
    assert ours <= set(blocking.__all__)
    definite_by_name = {name: definite for name, (definite, _) in api_reference.ADVICE.items()}
    for kind in (errors.ConnectFailed, errors.ConnectionLost, errors.CallTimeout):
        assert definite_by_name[kind.__name__] == ("yes" if kind("x").definite else "no")


def test_a_docstrings_example_is_a_block_of_code() -> None:
    text = 'def f() -> None:\n    """Does it.\n\n        f()\n\n    And ends.\n    """'
    (node,) = ast.parse(text).body
    assert api_reference.text_of(node) == "Does it.\n\n```python\nf()\n```\n\nAnd ends."


def test_options_have_their_defaults_and_meanings() -> None:
    page = api_reference.spark_options()
    rows = {
        cells[0]: cells
        for line in page.splitlines()
        if line.startswith("| `")
        for cells in [[cell.strip() for cell in line.strip("|").split(" | ")]]
    }
    assert rows["`maxTriggerDelay`"][1] == "`15m`"
    assert rows["`batchBytes`"][1] == "`1MiB`"
    assert rows["`readFrom`"][1] == "`master`"
    assert rows["`lessDurable`"][1] == "`retry`"
    assert rows["`startingTime`"][1] == ""
    assert [option for option, cells in rows.items() if not cells[2]] == []


def test_every_setting_of_a_client_has_a_value_and_a_meaning() -> None:
    settings = api_reference.client().partition("\n## Classes")[0]
    rows = [line.split(" | ") for line in settings.splitlines() if line.startswith("| `")]
    assert len(rows) > 50
    assert [row[0] for row in rows if not row[-1].strip(" |")] == []
    assert {row[2] for row in rows if row[2].strip("`").isupper() and "'" not in row[2]} == {
        "`SYSTEM_CLOCK`"
    }
