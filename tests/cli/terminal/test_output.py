import asyncio
import io
import json
import threading

import pytest
import typer

from roquet.cli.terminal import output
from roquet.model.errors import RoquetError, UsageError


def test_a_body_is_one_line_cut_where_it_is_longer() -> None:
    assert output.one_line(b"a\nb\tc", 10) == "a b c"
    assert output.one_line(b"0123456789", 10) == "0123456789"
    assert output.one_line(b"0123456789+", 10) == "012345678…"
    assert output.one_line(b"\xff", 10) == "\N{REPLACEMENT CHARACTER}"


def test_a_time_is_a_moment_or_a_number_of_milliseconds() -> None:
    assert output.parse_time_ms("1700000000000", "--to") == 1_700_000_000_000
    assert output.parse_time_ms("2026-01-31T12:00+00:00", "--to") == 1_769_860_800_000
    for nonsense in ("yesterday", "", "-1", "2026-13-01", "99999-01-01"):
        with pytest.raises(UsageError, match=r"--to: .* is no time like 2026-01-31T12:00"):
            output.parse_time_ms(nonsense, "--to")


def test_no_time_is_a_dash() -> None:
    assert (output.time_text(None), output.time_text(0), output.time_text(-1)) == ("-", "-", "-")
    assert output.time_text(2**63 - 1) == "-"
    assert len(output.time_text(1_700_000_000_000)) == len("2026-01-31 12:00:00")


def test_an_interrupt_ends_the_wait_for_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()
    monkeypatch.setattr(typer, "confirm", lambda *_, **__: answered.wait(30))

    async def interrupted() -> None:
        async with asyncio.timeout(0.05):
            await output.confirm("Sure?", yes=False)

    with pytest.raises(TimeoutError):
        asyncio.run(interrupted())
    assert not answered.is_set()
    answered.set()


async def test_a_question_without_a_terminal_names_the_option_yes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    with pytest.raises(RoquetError, match=r"nothing was done: .* --yes does not ask"):
        await output.confirm("Delete it?", yes=False)


def test_a_pipe_gets_each_row_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    output.console().print(output.table(("first", "second"), [("a" * 100, "b" * 100)]))
    assert capsys.readouterr().out.splitlines()[1].split() == ["a" * 100, "b" * 100]


def test_with_yes_no_question_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(output.confirm("Sure?", yes=True))
    assert capsys.readouterr() == ("", "")


def test_a_preview_leaves_stdout_to_json(capsys: pytest.CaptureFixture[str]) -> None:
    output.show_preview(["one goes"], dry_run=True, json=False)
    assert capsys.readouterr() == ("one goes\nnothing was changed (--dry-run)\n", "")
    output.show_preview(["one goes"], dry_run=False, json=True)
    assert capsys.readouterr() == ("", "one goes\n")


def test_a_line_stays_one_line_and_commands_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    output.echo("a\nroquet: forged\x1b[2J\x9b\u202e\ud800")
    output.echo("b\x07", err=True)
    captured = capsys.readouterr()
    assert captured.out == r"a\nroquet: forged\x1b[2J\x9b\u202e\ud800" + "\n"
    assert captured.err == r"b\x07" + "\n"


def test_a_body_keeps_its_line_breaks_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    output.echo_lines("a\r\n\tb\x1b]52;c;x\x07\rc", indent="  ")
    assert capsys.readouterr().out == "  a\n  \tb" + r"\x1b]52;c;x\x07\rc" + "\n"


def test_raw_bytes_are_as_they_are(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    output.echo_raw(b"\x1b\xff\n")
    assert capsysbinary.readouterr().out == b"\x1b\xff\n\n"


def test_a_line_is_rewritten_by_us_alone(capsys: pytest.CaptureFixture[str]) -> None:
    output.rewrite_line("g\x1b[5A waits")
    # Typer leaves out our own escape sequence where there is no terminal.
    assert capsys.readouterr().err == "\rg" + r"\x1b[5A waits"


def test_json_has_every_value_and_commands_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    output.echo_json([{"key": "\x1b\x9b\u202e日本"}, {"key": "\ud800!"}])
    first, second = capsys.readouterr().out.splitlines()
    assert first == r'{"key":"\u001b\u009b\u202e日本"}'
    assert json.loads(first) == {"key": "\x1b\x9b\u202e日本"}
    assert json.loads(second) == {"key": "\ufffd\ufffd\ufffd!"}


def test_tables_take_no_markup_and_no_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    row = ("[red]:smile:\x1b[31m", output.styled_text("c\x1b]8;;http://x\x07", "bold"), 1_000, None)
    output.console().print(output.table(("[b]group[/b]", "owner", "", ""), [row]))
    output.console().print("[/]\x9b")
    output_text = capsys.readouterr().out
    assert r"[red]:smile:\x1b[31m" in output_text
    assert r"c\x1b]8;;http://x\x07" in output_text
    assert output_text.splitlines()[1].split()[-2:] == ["1,000", "-"]
    assert output_text.splitlines()[-1] == r"[/]\x9b"


def test_a_question_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    questions: list[str] = []

    def confirm(text: str, **_: object) -> bool:
        questions.append(text)
        return True

    monkeypatch.setattr(typer, "confirm", confirm)
    asyncio.run(output.confirm("Delete \x1b[2K?", yes=False))
    assert questions == [r"Delete \x1b[2K?"]
