"""Every command writes any text to a terminal of any encoding."""

import io
import json
import logging
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from typer.main import get_command

from roquet.cli import main
from roquet.cli.terminal import output
from roquet.client import Message
from roquet.client.blocking import ConsumeFrom, ConsumerConfig, Producer, PushConsumer
from roquet.testing.cluster import BlockingCluster

HOSTILE = "caf\u00e9 \u20ac \U0001f600 half \ud83d"
"""Latin-1 has its first word, ASCII none, and UTF-8 all but the last."""

KEY = "caf\u00e9\ud83d"
BODY = HOSTILE.encode("utf-8", "surrogatepass")

DECODED = {"ascii": "utf-8"}
"""Click writes its errors in UTF-8 where the terminal says ASCII."""

ENCODINGS = ["ascii", "latin-1", "utf-8"]


@pytest.fixture(scope="module")
def hostile() -> Iterator[str]:
    """The name server of a cluster with hostile text in its messages and dead letters."""
    with BlockingCluster(default_queue_count=1) as cluster:
        address = cluster.namesrv_addr
        config = ConsumerConfig(consume_from=ConsumeFrom.FIRST, retries_max=0)
        with Producer(address) as producer:
            properties = {HOSTILE: HOSTILE}
            producer.send(Message("t", BODY, tag=KEY, keys=(KEY,), properties=properties))
        with PushConsumer(address, group="g", topic="t", config=config) as consumer:
            (message,) = consumer.fetch(1)
            message.dead_letter()
        yield address


class Run:
    """What a command wrote, and its exit code."""

    def __init__(self, code: object, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


def run(monkeypatch: pytest.MonkeyPatch, encoding: str, words: Sequence[str]) -> Run:
    """Run `roquet`, as the program does, on streams of an encoding."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding) for _ in range(2)]
    code: object = 0
    with monkeypatch.context() as patch:
        patch.setattr(sys, "argv", ["roquet", *words])
        patch.setattr(sys, "stdout", streams[0])
        patch.setattr(sys, "stderr", streams[1])
        try:
            main.main()
        except SystemExit as end:
            code = end.code
    for handler in list(logging.getLogger().handlers):
        if getattr(handler, "stream", None) is streams[1]:
            logging.getLogger().removeHandler(handler)
    written = []
    for stream in streams:
        stream.flush()
        written.append(stream.buffer.getvalue().decode(DECODED.get(encoding, encoding)))
    return Run(code, *written)


READS: Sequence[Sequence[str]] = [
    ["consume", "t", "--count", "1"],
    ["consume", "t", "--count", "1", "--json"],
    ["consume", "t", "--count", "1", "--format", HOSTILE + "{body}{tag}{properties}"],
    ["message", "find", "t"],
    ["message", "find", "t", "--json"],
    ["message", "find", "t", "--key", KEY],
    ["message", "at", "t", "broker-a", "0", "0"],
    ["message", "at", "t", "broker-a", "0", "0", "--json"],
    ["dlq", "ls"],
    ["dlq", "show", "g"],
    ["dlq", "show", "g", "--json"],
    ["dlq", "resend", "g", "--key", KEY, "--dry-run"],
    ["set-aside", "ls"],
    ["topic", "ls"],
    ["topic", "show", "t"],
    ["group", "ls"],
    ["group", "show", "g"],
    ["group", "reset", "g", "-t", "t", "--to", "first", "--dry-run"],
    ["cluster", "show"],
    ["broker", "settings", "broker-a"],
]


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("words", READS, ids=lambda words: " ".join(map(ascii, words))[:60])
def test_what_clients_sent_is_shown_whole_or_as_escapes(
    monkeypatch: pytest.MonkeyPatch, hostile: str, encoding: str, words: Sequence[str]
) -> None:
    done = run(monkeypatch, encoding, [*words, "-n", hostile])
    assert "Traceback" not in done.err
    assert done.code in (0, None), done.err
    assert done.out.isascii() or encoding != "ascii"
    for line in done.out.splitlines() if "--json" in words else ():
        row: Any = json.loads(line)
        if "body" in row:
            assert row["body"].startswith("caf\u00e9 \u20ac \U0001f600")


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_errors_name_what_was_given(
    monkeypatch: pytest.MonkeyPatch, hostile: str, encoding: str
) -> None:
    for words in (["topic", "show", HOSTILE], ["consume", HOSTILE], [HOSTILE], ["acl", HOSTILE]):
        done = run(monkeypatch, encoding, [*words, "-n", hostile])
        assert (done.code, done.out) == (2, "")
        assert "Traceback" not in done.err


def leaves(command: Any, path: Sequence[str] = ()) -> Iterator[Sequence[str]]:
    """The paths of all commands, and of their groups."""
    yield path
    for name in getattr(command, "commands", ()):
        yield from leaves(command.commands[name], [*path, name])


COMMANDS = list(leaves(get_command(main.app)))


def test_the_help_of_every_command_and_a_wrong_option_of_it_fit_latin_1(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert len(COMMANDS) > 60
    for path in COMMANDS:
        helped = run(monkeypatch, "latin-1", [*path, "--help"])
        assert (helped.code, helped.err) == (0, ""), path
        wrong = run(monkeypatch, "latin-1", [*path, f"--{HOSTILE}"])
        assert wrong.code == 2, path
        assert "Traceback" not in wrong.err, path


def test_escapes_are_those_of_json() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), "ascii")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        output.accept_any_text()
        output.echo_json([{"a": "\u20ac\U0001f600"}])
        output.echo("\u20ac")
    written = stream.buffer.getvalue().decode("ascii")
    first, second = written.splitlines()
    assert json.loads(first) == {"a": "\u20ac\U0001f600"}
    assert second == "\\u20ac"
