"""`roquet balance` as it is typed, and as the documentation says it."""

import json
import re
import shlex
from functools import partial
from pathlib import Path

import pytest
from tests.cli import running

from roquet.model.errors import UsageError

roquet = partial(running.roquet, environ={"COLUMNS": "80", "NO_COLOR": "1"})

TOPIC = Path(__file__).resolve().parents[3] / "docs" / "topics" / "balance.md"
TYPED = re.findall(r"^\$ roquet (balance.*)$", TOPIC.read_text("utf-8"), re.MULTILINE)


def test_the_effect_of_a_fourth_consumer_is_shown() -> None:
    output = " ".join(
        roquet("balance", "--queues", "8", "--members", "3", "--then", "join").output.split()
    )
    assert "AVG moves 5, AVG_BY_CIRCLE 5" in output
    assert "STICKY 2" in output
    assert "2 is the least" in output


def test_json_is_only_json() -> None:
    fields = json.loads(roquet("balance", "--json", "--strategy", "avg").output)
    assert [strategy["name"] for strategy in fields["strategies"]] == ["AVG"]


def test_a_page_and_a_picture_are_written(tmp_path: Path) -> None:
    page, picture = tmp_path / "balance.html", tmp_path / "balance.svg"
    roquet("balance", "--then", "kill", "--html", str(page), "--svg", str(picture))
    assert page.read_text("utf-8").startswith("<!doctype html>")
    assert picture.read_text("utf-8").startswith("<svg")


@pytest.mark.parametrize("option", ["--html", "--svg"])
def test_a_path_that_cannot_be_written_is_an_error(option: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"page cannot be written: its folder does not exist"):
        roquet("balance", option, str(tmp_path / "missing" / "page"))
    with pytest.raises(UsageError, match=r"cannot be written: Is a directory"):
        roquet("balance", option, str(tmp_path))


@pytest.mark.parametrize("wrong", ["--queues=0", "--members=-1", "--brokers=27", "--then=fly"])
def test_numbers_that_make_no_sense_are_refused(wrong: str) -> None:
    result = roquet("balance", wrong)
    assert result.exit_code == 2
    assert wrong.partition("=")[0] in result.output


def test_an_unknown_strategy_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="no 'STIKY'; did you mean 'STICKY'"):
        roquet("balance", "--strategy", "STIKY")


def test_the_documentation_types_many_commands() -> None:
    assert len(TYPED) > 5


@pytest.mark.parametrize("typed", TYPED)
def test_the_documentation_shows_the_output_of_the_command(typed: str, tmp_path: Path) -> None:
    arguments = shlex.split(typed)
    pictures = [argument for argument in arguments if argument.endswith(".svg")]
    made = [str(tmp_path / a) if a in pictures else a for a in arguments]
    output = roquet(*made).output
    for name in pictures:
        assert (tmp_path / name).read_bytes() == (TOPIC.parent / name).read_bytes(), "make it again"
    text = TOPIC.read_text("utf-8")
    shown = text.partition(f"$ roquet {typed}\n")[2].partition("```")[0]
    assert [line.rstrip() for line in shown.splitlines() if line] == [
        line.rstrip() for line in output.splitlines() if line and shown.strip()
    ]
