import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from io import StringIO

import pytest
from tests.cli.running import must_fail, roquet
from typer.main import get_command

from roquet.cli.main import app
from roquet.cli.operator_command import Result
from roquet.cli.process import runtime
from roquet.cli.terminal import output
from roquet.cli.terminal.printable_console import PrintableConsole
from roquet.cli.watching import watch, with_seconds
from roquet.model.errors import ConnectFailed, RoquetError
from roquet.testing.cluster import BlockingCluster

pytestmark = pytest.mark.virtual_time

Look = Callable[[], Awaitable[Result]]


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Look]:
    """Looks with these results, or errors; the last one is followed by the stop signal."""

    def make(*results: Result | RoquetError) -> Look:
        stop, left = asyncio.Event(), [*results]
        monkeypatch.setattr(runtime, "stop_signal", lambda: stop)

        async def look() -> Result:
            result = left.pop(0)
            if not left:
                stop.set()
            if isinstance(result, RoquetError):
                raise result
            return result

        return look

    return make


ONE = Result(json=[{"n": 1}], text=["one"], hints=["try two"])
BAD = Result(json=[{"n": 2}], text=["two"], faults=["broker-b is away"])


async def test_a_pipe_gets_a_block_for_each_look(
    looks: Callable[..., Look], capsys: pytest.CaptureFixture[str]
) -> None:
    await watch(looks(ONE, BAD), 5, as_json=False)
    first, second, rest = capsys.readouterr().out.split("\n\n")
    assert first.splitlines()[1:] == ["one", "try two"]
    assert second.splitlines()[1:] == ["two", "broker-b is away"]
    assert second[:2] == "20", "the time of the look"
    assert rest == ""


async def test_json_is_the_lines_of_each_look_and_later_errors_are_lines_too(
    looks: Callable[..., Look], capsys: pytest.CaptureFixture[str]
) -> None:
    await watch(looks(ONE, ConnectFailed("nobody is there"), BAD), 5, as_json=True)
    printed = capsys.readouterr()
    shown = [json.loads(line) for line in printed.out.splitlines()]
    assert shown == [{"n": 1}, {"fault": "nobody is there"}, {"n": 2}]
    assert printed.err.splitlines() == ["nobody is there", "broker-b is away"]


async def test_an_error_of_the_first_look_ends_the_command(looks: Callable[..., Look]) -> None:
    with pytest.raises(ConnectFailed):
        await watch(looks(ConnectFailed("nobody is there"), ONE), 5, as_json=False)


async def test_a_terminal_shows_the_newest_look_in_place_of_the_one_before(
    looks: Callable[..., Look], monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = StringIO()
    console = PrintableConsole(file=screen, force_terminal=True, width=40, height=4)
    monkeypatch.setattr(output, "console", lambda: console)
    long = Result(json=[], text=[f"line {n} \x1b[2J" for n in range(9)])
    await watch(looks(ONE, long, BAD), 5, as_json=False)
    shown = screen.getvalue()
    assert shown.index("one") < shown.index("line 1") < shown.index("\ntwo")
    assert "line 8" not in shown, "one screen at most"
    assert "\x1b[2J" not in shown, "what messages and names hold cannot steer the terminal"
    assert "\x1b[1A\x1b[2K" in shown, "lines of the look before are erased"


@pytest.mark.parametrize(
    ("words", "parsed"),
    [
        ("ls --watch", "ls --watch 2.0"),
        ("ls -w 5 --json", "ls -w 5 --json"),
        ("ls --watch --json", "ls --watch 2.0 --json"),
        ("show -w orders", "show -w 2.0 orders"),
        ("ls --watch=3", "ls --watch=3"),
        ("", ""),
    ],
)
def test_the_number_of_seconds_may_be_left_out(words: str, parsed: str) -> None:
    assert " ".join(with_seconds(words.split())) == parsed


def watchable(command: object, path: tuple[str, ...] = ()) -> Iterator[str]:
    if any(param.name == "watch" for param in command.params):  # type: ignore[attr-defined]
        yield " ".join(path)
    for name, one in getattr(command, "commands", {}).items():
        yield from watchable(one, (*path, name))


def test_what_shows_and_lists_the_cluster_can_be_watched() -> None:
    assert {*watchable(get_command(app))} == {
        *("topic ls", "topic show", "group ls", "group show", "cluster show", "cluster replicas"),
    }


@pytest.mark.virtual_time(False)
def test_less_than_a_tenth_of_a_second_is_refused_and_a_first_error_is_one() -> None:
    refused = roquet("topic", "ls", "--watch", "0")
    assert (refused.exit_code, "0.1" in refused.output) == (2, True)
    must_fail(RoquetError, "127.0.0.1:1", "topic", "ls", "--watch", "-n", "127.0.0.1:1")


@pytest.mark.slow
@pytest.mark.virtual_time(False)
@pytest.mark.skipif(sys.platform == "win32", reason="ends processes by signals")
async def test_watching_goes_on_until_ctrl_c_which_is_no_failure() -> None:
    with BlockingCluster(brokers=1) as cluster:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "roquet", "cluster", "replicas", "--watch", "0.2", "--json"),
            *("-n", cluster.namesrv_addr),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        assert process.stdout is not None
        async with asyncio.timeout(60):
            lines = [await process.stdout.readline() for _ in range(2)]
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 0
    assert [json.loads(line)["broker_id"] for line in lines] == [0, 0]
