"""roquet produce, consume: messages from options, files and stdin; where reading begins."""

import asyncio
import io
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.cli.running import invoke, must_fail, roquet, wait_for_topic

from roquet.cli.messaging import produce
from roquet.cli.terminal import output
from roquet.client import blocking
from roquet.model.errors import RoquetError, UsageError
from roquet.rules.replication.acknowledgement import BrokerRole
from roquet.testing.cluster import BlockingCluster

CLUSTER = {"default_queue_count": 1}


def test_one_message_is_sent_with_its_key_and_tag_and_its_receipt_is_printed(namesrv: str) -> None:
    sent = roquet("produce", "one", "-m", "hello", "--key", "k", "--tag", "t", "-n", namesrv)
    message_id, *where = sent.output.split()
    assert where[1:] == ["offset", "0"]
    wait_for_topic(namesrv, "one")
    got = json.loads(roquet("consume", "one", "--count", "1", "--json", "-n", namesrv).output)
    assert (got["body"], got["keys"], got["tag"]) == ("hello", ["k"], "t")
    assert got["message_id"] == message_id


def test_every_line_of_stdin_is_a_message_but_empty_ones(namesrv: str) -> None:
    sent = roquet("produce", "lines", "-q", "-n", namesrv, typed="one\n\ntwo\r\nthree")
    assert sent.stdout == ""
    wait_for_topic(namesrv, "lines")
    got = roquet("consume", "lines", "--count", "3", "-n", namesrv).output
    assert sorted(got.split()) == ["one", "three", "two"]


def test_an_interrupt_ends_the_wait_for_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = threading.Event()

    class Terminal(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def read(self, count: int = -1) -> bytes:
            typed.wait(30)
            return b""

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(Terminal())))

    async def interrupted() -> None:
        async with asyncio.timeout(0.05):
            async for _ in produce.stdin_reads():
                raise AssertionError("nothing was typed")

    with pytest.raises(TimeoutError):
        asyncio.run(interrupted())
    assert not typed.is_set()
    typed.set()


def test_a_message_can_be_sent_many_times(namesrv: str) -> None:
    sent = roquet("produce", "many", "-m", "x", "--count", "5", "-n", namesrv)
    assert len(sent.output.splitlines()) == 5


def test_the_environment_names_the_name_server(
    namesrv: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", namesrv)
    assert roquet("produce", "env", "-m", "x").exit_code == 0
    monkeypatch.setenv("NAMESRV_ADDR", "nonsense")
    must_fail(UsageError, "NAMESRV_ADDR", "produce", "env", "-m", "x")


def test_receipts_are_printed_as_json(namesrv: str) -> None:
    sent = roquet("produce", "receipts", "-m", "x", "--count", "2", "--json", "-n", namesrv)
    first, second = map(json.loads, sent.stdout.splitlines())
    assert (first["topic"], first["broker"], first["offset"]) == ("receipts", "broker-a", 0)
    assert (second["offset"], second["status"]) == (1, "SEND_OK")
    text = roquet("message", "show", second["offset_message_id"], "--json", "-n", namesrv).stdout
    assert json.loads(text)["message_id"] == second["message_id"]


def test_a_message_that_replicas_do_not_have_in_time_is_told_as_such() -> None:
    settings: dict[str, Any] = {"broker_role": BrokerRole.SYNC_MASTER, "in_sync_replicas": 2}
    with BlockingCluster(slave_timeout=100, **settings) as cluster:
        sent = roquet("produce", "one", "-m", "hello", "-n", cluster.namesrv_addr)
    assert sent.output.endswith(" FLUSH_SLAVE_TIMEOUT\n")


@pytest.mark.parametrize(
    "arguments", [("-m", ""), ("-m", "x", "--key", "a b"), ("-m", "x", "--tag", "a\x01b")]
)
def test_a_message_that_can_never_be_sent_is_wrong_use(
    namesrv: str, arguments: tuple[str, ...]
) -> None:
    with pytest.raises(UsageError):
        roquet("produce", "wrong", *arguments, "-n", namesrv)


def test_a_message_has_properties_a_delay_and_a_files_body(namesrv: str, tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(b"two\nlines\n")
    words = ["produce", "whole", "-f", str(tmp_path / "body"), "--property", "a=1=2"]
    roquet(*words, "--delay", "1s", "-n", namesrv)
    wait_for_topic(namesrv, "whole")
    message = json.loads(roquet("consume", "whole", "--count", "1", "--json", "-n", namesrv).output)
    assert message["body"] == "two\nlines\n"
    assert message["properties"]["a"] == "1=2"
    with pytest.raises(UsageError, match="--property 'a': NAME=VALUE is wanted"):
        roquet("produce", "whole", "-m", "x", "--property", "a", "-n", namesrv)
    must_fail(
        UsageError, "--body or --file", "produce", "whole", "-m", "x", "-f", "y", "-n", namesrv
    )


def test_empty_lines_are_counted(namesrv: str) -> None:
    words = ["produce", "gaps", "-q", "-n", namesrv]
    result = invoke(*words, typed="a\n\n\nb\n")
    assert result.stderr == "2 empty lines not sent: no message is empty\n"


def test_a_missing_topic_is_waited_for_and_a_similar_name_is_suggested(
    namesrv: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    roquet("produce", "invoices", "-m", "x", "-n", namesrv)
    wait_for_topic(namesrv, "invoices")
    is_waiting, echo = threading.Event(), output.echo

    def send() -> None:
        assert is_waiting.wait(60)
        with blocking.Producer(namesrv) as producer:
            producer.send("invoicez", b"late")

    def heard(text: str, **options: Any) -> None:
        echo(text, **options)
        is_waiting.set()

    monkeypatch.setattr(output, "echo", heard)
    sender = threading.Thread(target=send)
    sender.start()
    got = roquet("consume", "invoicez", "--count", "1", "-n", namesrv)
    sender.join()
    assert got.stdout == "late\n"
    note = "waiting for the first message of invoicez (Ctrl-C stops); did you mean 'invoices'?\n"
    assert got.stderr == note


def test_a_group_continues_at_its_progress(namesrv: str) -> None:
    roquet("produce", "grouped", "-q", "-n", namesrv, "--order-key", "k", typed="a\nb\nc\n")
    read = ("consume", "grouped", "--group", "g", "-n", namesrv)
    assert roquet(*read, "--count", "2").stdout.split() == ["a", "b"]
    assert roquet(*read, "--count", "1").stdout.split() == ["c"]


def test_reading_without_a_group_starts_at_the_beginning_each_time(namesrv: str) -> None:
    roquet("produce", "again", "-m", "x", "-q", "-n", namesrv)
    for _ in range(2):
        assert roquet("consume", "again", "--count", "1", "-n", namesrv).stdout == "x\n"


def test_only_the_wanted_tags_are_read(namesrv: str) -> None:
    for tag in ("red", "blue"):
        roquet("produce", "tagged", "-m", tag, "--tag", tag, "-q", "-n", namesrv)
    got = roquet("consume", "tagged", "--tags", "blue", "--count", "1", "-n", namesrv)
    assert got.stdout == "blue\n"


def test_only_messages_with_wanted_properties_are_read(namesrv: str) -> None:
    for tag in ("red", "blue"):
        roquet("produce", "chosen", "-m", tag, "--tag", tag, "-q", "-n", namesrv)
    for group in ((), ("--group", "g")):
        wanted = ("--sql", "TAGS IN ('blue', 'green')", *group)
        got = roquet("consume", "chosen", *wanted, "--count", "1", "-n", namesrv)
        assert got.stdout == "blue\n"


def test_a_time_can_be_the_beginning(namesrv: str) -> None:
    roquet("produce", "timed", "-m", "x", "-q", "-n", namesrv)
    got = roquet("consume", "timed", "--from", "2020-01-01", "--count", "1", "-n", namesrv)
    assert got.stdout == "x\n"


def test_messages_stored_before_the_time_are_left_out(namesrv: str) -> None:
    roquet("produce", "since", "-m", "old", "-q", "-n", namesrv)
    time.sleep(0.01)
    now_ms = str(time.time_ns() // 1_000_000)
    roquet("produce", "since", "-m", "new", "-q", "-n", namesrv)
    got = roquet("consume", "since", "--from", now_ms, "--count", "1", "-n", namesrv)
    assert got.stdout == "new\n"


def test_from_last_follows_a_topic(namesrv: str) -> None:
    roquet("produce", "tailed", "-m", "old", "-q", "-n", namesrv)
    is_printed = threading.Event()

    def send_until_printed() -> None:
        with blocking.Producer(namesrv) as producer:
            while not is_printed.wait(0.1):
                producer.send("tailed", b"new")

    sender = threading.Thread(target=send_until_printed)
    sender.start()
    try:
        got = roquet("consume", "tailed", "--from", "last", "--count", "1", "-n", namesrv)
    finally:
        is_printed.set()
        sender.join()
    assert got.stdout == "new\n"


def test_a_body_that_is_no_text_is_base64_in_json(namesrv: str) -> None:
    roquet("produce", "bytes", "-q", "-n", namesrv, typed="x")
    from roquet.client import blocking

    with blocking.Producer(namesrv) as producer:
        producer.send("raw", b"\xff\x00")
    got = json.loads(roquet("consume", "raw", "--count", "1", "--json", "-n", namesrv).stdout)
    assert got["body_base64"] == "/wA="


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("produce", "a b", "-m", "x"), "may hold only letters"),
        (("produce", "t", "-m", "x", "-n", "nonsense"), "--namesrv: 'nonsense' is not HOST:PORT"),
        (("consume", "t", "--from", "yesterday"), "neither first nor last, no time like"),
        (("consume", "t", "--group", "g", "--sql", "a ="), "at character 4 of 'a ='"),
        (("consume", "t", "--group", "g", "--sql", "a = 1", "--tags", "b"), "not by both"),
    ],
)
def test_wrong_use_is_named(arguments: tuple[str, ...], words: str) -> None:
    must_fail(UsageError, words, *arguments)


def test_an_unreadable_topic_is_named(namesrv: str) -> None:
    roquet("topic", "create", "shut", "--perm", "W", "-n", namesrv)
    for group in ((), ("--group", "g")):
        with pytest.raises(RoquetError, match="topic update shut --perm RW"):
            roquet("consume", "shut", "--count", "1", *group, "-n", namesrv)


def test_bodies_are_a_line_each_unless_raw_is_given(namesrv: str) -> None:
    with blocking.Producer(namesrv) as producer:
        producer.send("hostile", b"a\n\x1b[2Jb\xff")
    shown = roquet("consume", "hostile", "--count", "1", "-n", namesrv)
    assert shown.stdout == "a\\n\\x1b[2Jb\N{REPLACEMENT CHARACTER}\n"
    raw = roquet("consume", "hostile", "--raw", "--count", "1", "-n", namesrv)
    assert raw.stdout_bytes == b"a\n\x1b[2Jb\xff\n"
    must_fail(UsageError, "--raw or --json", "consume", "hostile", "--raw", "--json", "-n", namesrv)
    own = ("consume", "hostile", "--format", r"{topic}\t{offset}\t{body}", "-n", namesrv)
    assert roquet(*own, "--count", "1").stdout == "hostile\t0\ta\\n\\x1b[2Jb\ufffd\n"
    must_fail(UsageError, "or --format", *own, "--raw")


def test_a_very_long_body_is_cut_as_a_line_and_whole_in_json(namesrv: str) -> None:
    with blocking.Producer(namesrv) as producer:
        producer.send("long", b"x" * 2_000_000)
    line = roquet("consume", "long", "--count", "1", "-n", namesrv)
    assert line.stdout == "x" * 1_048_576 + "\n"
    assert "the first 1,048,576 of 2,000,000 bytes; --json and --raw show all" in line.stderr
    shown = roquet("consume", "long", "--count", "1", "--json", "-n", namesrv).stdout
    assert json.loads(shown)["body"] == "x" * 2_000_000
