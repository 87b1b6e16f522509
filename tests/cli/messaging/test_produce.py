"""roquet produce: messages from options, files and stdin, and their receipts."""

import asyncio
import io
import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.cli.running import invoke, must_fail, roquet

from roquet.cli.messaging import produce
from roquet.model.errors import UsageError
from roquet.rules.replication.acknowledgement import BrokerRole
from roquet.testing.cluster import BlockingCluster

CLUSTER = {"default_queue_count": 1}


def test_one_message_is_sent_with_its_key_and_tag_and_its_receipt_is_printed(namesrv: str) -> None:
    sent = roquet("produce", "one", "-m", "hello", "--key", "k", "--tag", "t", "-n", namesrv)
    message_id, *where = sent.output.split()
    assert where[1:] == ["offset", "0"]
    got = json.loads(roquet("consume", "one", "--count", "1", "--json", "-n", namesrv).output)
    assert (got["body"], got["keys"], got["tag"]) == ("hello", ["k"], "t")
    assert got["message_id"] == message_id


def test_every_line_of_stdin_is_a_message_but_empty_ones(namesrv: str) -> None:
    sent = roquet("produce", "lines", "-q", "-n", namesrv, typed="one\n\ntwo\r\nthree")
    assert sent.stdout == ""
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
            async for _ in produce.stdin_lines():
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
