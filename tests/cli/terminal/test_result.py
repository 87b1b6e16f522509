import pytest

from roquet.cli.terminal.result import Result, show_text
from roquet.model.errors import ConnectFailed

ALL = Result(
    json=[{"a": 1}, 2],
    text=["one", "two"],
    hints=["try this"],
    notes=["left out"],
    faults=["broker-b is away"],
)


def test_text_and_hints_are_left_out_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    for as_json, out, err in (
        (False, "one\ntwo\n", "try this\nleft out\nbroker-b is away\n"),
        (True, '{"a":1}\n2\n', "left out\nbroker-b is away\n"),
    ):
        with pytest.raises(SystemExit) as ended:
            ALL.show(as_json=as_json)
        assert ended.value.code == 1
        assert capsys.readouterr() == (out, err)


def test_a_result_without_a_fault_ends_with_0_and_an_error_comes_last(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Result(json=[], text=["one"]).show(as_json=False)
    with pytest.raises(ConnectFailed):
        Result(json=[], text=["two"], error=ConnectFailed("gone")).show(as_json=False)
    assert capsys.readouterr().out == "one\ntwo\n"


def test_lines_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    show_text(["\x1b[2J", "[bold]x"])
    assert capsys.readouterr().out == "\\x1b[2J\n[bold]x\n"
