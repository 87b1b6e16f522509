"""roquet produce that stops half-way: what is sent is the first part, and the rest is named."""

import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.cli.running import must_fail, roquet, wait_for_topic

from roquet.cli.messaging import produce
from roquet.client.producer import Producer
from roquet.model.errors import CallRefused, CallTimeout, RoquetError, UsageError
from roquet.model.message import Message
from roquet.model.results import SendReceipt
from roquet.wire.codes import ResponseCode

CLUSTER = {"default_queue_count": 2}

LINES = [f"line {number}" for number in range(1, 351)]
TYPED = "\n".join(LINES)

QUOTA = CallRefused(ResponseCode.SYSTEM_BUSY, "quota: try again in 12 ms")
LATE = CallTimeout("no answer")


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> list[Exception | None]:
    """What becomes of each batch: None sends it; when the list is empty all are sent."""
    outcomes: list[Exception | None] = []
    send = Producer.send_batch

    async def send_batch(self: Producer, messages: Sequence[Message], **_: Any) -> SendReceipt:
        if outcomes and (error := outcomes.pop(0)) is not None:
            raise error
        return await send(self, messages)

    monkeypatch.setattr(Producer, "send_batch", send_batch)
    monkeypatch.setattr(produce, "BATCH_LINES_MAX", 100)
    return outcomes


def stored(namesrv: str, topic: str, count: int) -> list[str]:
    wait_for_topic(namesrv, topic)
    shown = roquet("message", "find", topic, "--count", "10000", "--json", "-n", namesrv).stdout
    bodies = [json.loads(line)["body"] for line in shown.splitlines()]
    assert len(bodies) == count
    return bodies


def test_going_on_from_the_named_line_sends_each_line_once(
    namesrv: str, failing: list[Exception | None]
) -> None:
    failing += [None, QUOTA]
    words = ["produce", "half", "-q", "-n", namesrv]
    with pytest.raises(RoquetError) as stopped:
        roquet(*words, typed=TYPED)
    first, *rest = str(stopped.value).split("\n")
    assert "quota: try again in 12 ms" in first
    assert rest == ["100 messages sent, not lines 101 to 200: go on with --from-line 101"]
    roquet(*words, "--from-line", "101", typed=TYPED)
    assert sorted(stored(namesrv, "half", 350)) == sorted(LINES)


def test_a_send_whose_answer_is_lost_may_come_twice(
    namesrv: str, failing: list[Exception | None]
) -> None:
    failing += [LATE]
    text = "not lines 1 to 100: go on with --from-line 1\nwhether it was stored is not known"
    must_fail(RoquetError, text, "produce", "lost", "-n", namesrv, typed=TYPED)


def test_a_failure_is_tried_again_for_as_long_as_is_said(
    namesrv: str, failing: list[Exception | None]
) -> None:
    failing += [None, QUOTA, QUOTA]
    roquet("produce", "again", "-q", "--retry-for", "30s", "-n", namesrv, typed=TYPED)
    assert sorted(stored(namesrv, "again", 350)) == sorted(LINES)


def test_a_failure_that_stays_is_not_tried_again(
    namesrv: str, failing: list[Exception | None]
) -> None:
    failing += [CallRefused(ResponseCode.MESSAGE_ILLEGAL, "no"), QUOTA]
    words = ["produce", "stays", "--retry-for", "30s", "-n", namesrv]
    must_fail(RoquetError, "0 messages sent", *words, typed=TYPED)
    assert failing == [QUOTA]


def test_a_line_that_is_too_long_is_named_and_those_before_it_are_sent(namesrv: str) -> None:
    typed = "one\n\ntwo\n" + "x" * (5 << 20) + "\nfour"
    words = ["produce", "long", "-q", "-n", namesrv]
    text = r"limit of 4194304\n2 messages sent, not line 4: go on with --from-line 4, or with 5"
    must_fail(RoquetError, text, *words, typed=typed)
    roquet(*words, "--from-line", "5", typed=typed)
    assert sorted(stored(namesrv, "long", 3)) == ["four", "one", "two"]


def test_lines_with_long_properties_are_not_too_long_together(namesrv: str) -> None:
    long = f"x={'p' * 30_000}"
    roquet("produce", "wide", "-q", "--property", long, "-n", namesrv, typed=TYPED)
    assert sorted(stored(namesrv, "wide", 350)) == sorted(LINES)


def test_a_message_that_is_sent_many_times_counts_those_that_were(
    namesrv: str, failing: list[Exception | None]
) -> None:
    failing += [None, None, QUOTA]
    words = ["produce", "copies", "-m", "x", "--count", "450", "-q", "-n", namesrv]
    must_fail(RoquetError, "200 of 450 messages sent", *words)


def test_receipts_of_a_batch_have_an_id_and_an_offset_each(namesrv: str) -> None:
    sent = roquet("produce", "each", "--json", "-n", namesrv, typed="one\ntwo\nthree\n")
    receipts = [json.loads(line) for line in sent.stdout.splitlines()]
    assert [one["offset"] for one in receipts] == [0, 1, 2]
    wait_for_topic(namesrv, "each")
    for receipt, body in zip(receipts, ("one", "two", "three"), strict=True):
        shown = roquet("message", "show", receipt["offset_message_id"], "--json", "-n", namesrv)
        message = json.loads(shown.stdout)
        assert (message["body"], message["message_id"]) == (body, receipt["message_id"])


async def test_a_terminal_is_told_that_it_is_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Terminal(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal(io.BytesIO(b"one\n")))
    assert [line async for lines in produce.stdin_reads() for line, _ in lines] == [b"one", b""]
    assert capsys.readouterr().err == "each line that you type is a message (Ctrl-D ends)\n"


def test_delayed_lines_are_sent_one_by_one(namesrv: str) -> None:
    sent = roquet("produce", "later", "--delay", "1s", "-n", namesrv, typed="one\ntwo")
    assert len(sent.stdout.splitlines()) == 2


def test_lines_with_a_priority_share_its_queue(namesrv: str) -> None:
    sent = roquet("produce", "urgent", "--priority", "0", "--json", "-n", namesrv, typed="one\ntwo")
    assert [json.loads(line)["queue"] for line in sent.stdout.splitlines()] == [0, 0]


def test_wrong_use_is_named(namesrv: str, tmp_path: Path) -> None:
    words = ["produce", "wrong", "-n", namesrv]
    must_fail(UsageError, "--file .*: No such file", *words, "-f", tmp_path / "missing")
    must_fail(UsageError, "--file .*: Is a directory", *words, "-f", tmp_path)
    must_fail(UsageError, "--from-line is one of stdin", *words, "-m", "x", "--from-line", "2")
