import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cli.running import invoke, roquet
from typer.testing import Result

from roquet.admin import dead_letters
from roquet.client import blocking
from roquet.model.errors import RoquetError, UsageError
from roquet.net.blocking import BlockingChannel
from roquet.net.channel import Channel
from roquet.store.store import Draft
from roquet.testing.cluster import BlockingCluster
from roquet.wire.calls.send import Send, SendBack
from roquet.wire.records.message_id import parse_offset_message_id
from roquet.wire.records.property_text import encode_properties
from roquet.wire.records.record import Record


@pytest.fixture(scope="module")
def running() -> Iterator[BlockingCluster]:
    with BlockingCluster(default_queue_count=1) as cluster:
        yield cluster


def dlq(running: BlockingCluster, *arguments: str, typed: str | None = None) -> Result:
    return roquet("dlq", *arguments, "-n", running.namesrv_addr, typed=typed)


def make_dead_letters(
    running: BlockingCluster, group: str, *bodies: bytes, **fields: Any
) -> list[str]:
    """Send messages that the group gives up; returns their ids."""
    with blocking.Producer(running.namesrv_addr) as producer:
        receipts = [producer.send(f"{group}-topic", body, **fields) for body in bodies]

    async def send_back() -> None:
        host, _, port = running.broker_addrs[0].rpartition(":")
        channel = await Channel.connect(host, int(port))
        for receipt in receipts:
            _, position = parse_offset_message_id(receipt.offset_message_id)
            await channel.call(SendBack(offset=position, group=group, delay_level=-1))
        await channel.close()
        async with asyncio.timeout(5):  # the name server hears of a new topic a moment later
            while group not in await dead_letters.groups(running.namesrv_addr):  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    asyncio.run(send_back())
    return [receipt.message_id for receipt in receipts]


def messages_of_topic(running: BlockingCluster, group: str) -> list[dict[str, Any]]:
    arguments = ["consume", f"{group}-topic", "--json", "-n", running.namesrv_addr]
    with blocking.PullConsumer(running.namesrv_addr, group="look") as reader:
        (queue,) = reader.queues(f"{group}-topic")
        count = str(reader.max_offset(queue))
    lines = invoke(*arguments, "--count", count).output.splitlines()
    return [json.loads(line) for line in lines]


def test_groups_and_their_counts_are_listed(running: BlockingCluster) -> None:
    make_dead_letters(running, "listed", b"1", b"2")
    output = dlq(running, "ls").output
    assert output.splitlines()[0].split() == ["group", "queue", "letters", "not", "resent"]
    assert ["listed", "broker-a:0", "2", "2"] in [line.split() for line in output.splitlines()]
    letters = [json.loads(line) for line in dlq(running, "ls", "--json").output.splitlines()]
    assert {
        "group": "listed", "broker": "broker-a", "queue": 0, "letters": 2, "not_resent": 2,
        "fault": None,
    } in letters  # fmt: skip


def test_letters_are_shown_in_a_line_each(running: BlockingCluster) -> None:
    (first, second) = make_dead_letters(
        running, "shown", b"one\nline", b"x" * 100, keys=("k1", "k2")
    )
    lines = dlq(running, "show", "shown").output.splitlines()
    assert lines[0].startswith(first)
    assert "from shown-topic  key k1 k2  failed 1  one line" in lines[0]
    assert lines[1].startswith(second)
    assert lines[1].endswith("…")
    limited = dlq(running, "show", "shown", "--limit", "1", "--json")
    assert limited.stderr == "the newest 1 of 2; --limit shows more\n"
    letter = json.loads(limited.stdout)
    assert (letter["message_id"], letter["body"]) == (second, "x" * 100)
    assert letter["properties"]["RETRY_TOPIC"] == "shown-topic"


def test_a_body_that_is_no_text_is_base64_in_json(running: BlockingCluster) -> None:
    make_dead_letters(running, "raw", b"\xff\x00")
    letter = json.loads(dlq(running, "show", "raw", "--json").output)
    assert letter["body_base64"] == "/wA="


def test_a_dry_run_sends_nothing(running: BlockingCluster) -> None:
    (one,) = make_dead_letters(running, "dry", b"1")
    output = dlq(running, "resend", "dry", "--all", "--dry-run").output
    assert one in output
    assert "1 to topic dry-topic" in output
    assert len(messages_of_topic(running, "dry")) == 1


@pytest.mark.parametrize(("answer", "count"), [("n\n", 1), ("\n", 1), ("y\n", 2)])
def test_the_user_has_to_confirm(running: BlockingCluster, answer: str, count: int) -> None:
    group = f"asked{count}{len(answer)}"
    make_dead_letters(running, group, b"1")
    result = dlq(running, "resend", group, "--all", typed=answer)
    assert "Send 1 message again?" in result.output
    assert result.exit_code == (0 if count == 2 else 1)
    assert len(messages_of_topic(running, group)) == count


def test_one_letter_is_sent_by_its_id(running: BlockingCluster) -> None:
    ids = make_dead_letters(running, "by-id", b"1", b"2", b"3")
    output = dlq(running, "resend", "by-id", "--id", ids[1], "--yes").output
    assert "1 sent" in output
    assert "%DLQ%by-id" in output
    letters = messages_of_topic(running, "by-id")
    assert [one["body"] for one in letters] == ["1", "2", "3", "2"]
    assert letters[3]["properties"]["RESENT_FROM"] == ids[1]


def test_letters_are_sent_by_key_and_tag(running: BlockingCluster) -> None:
    make_dead_letters(running, "picked", b"1", tag="red", keys=("a",))
    make_dead_letters(running, "picked", b"2", tag="blue", keys=("a",))
    dlq(running, "resend", "picked", "--tag", "blue", "--key", "a", "-y")
    assert [one["body"] for one in messages_of_topic(running, "picked")] == ["1", "2", "2"]


def test_all_letters_are_sent_once_unless_again_is_given(running: BlockingCluster) -> None:
    make_dead_letters(running, "all", *[b"%d" % number for number in range(30)])
    result = dlq(running, "resend", "all", "--all", "--yes")
    assert "and 10 more" in result.output
    assert "30 sent" in result.output
    with pytest.raises(RoquetError, match="--again"):
        dlq(running, "resend", "all", "--all", "--yes")
    make_dead_letters(running, "all", b"new")
    assert "1 sent" in dlq(running, "resend", "all", "--all", "--yes").output
    assert "31 sent" in dlq(running, "resend", "all", "--all", "--again", "--yes").output
    assert len(messages_of_topic(running, "all")) == 31 + 30 + 1 + 31


def test_letters_that_cannot_be_sent_are_left_out(running: BlockingCluster) -> None:
    make_dead_letters(running, "odd", b"1")
    with blocking.Producer(running.namesrv_addr) as producer:
        producer.send("%DLQ%odd", b"from nowhere")
    with BlockingChannel(running.broker_addrs[0]) as channel:
        channel.call(
            Send(
                producer_group="p", topic="%DLQ%odd", queue_id=0, born_timestamp=0, sys_flag=1,
                properties="RETRY_TOPIC\x01odd-topic\x02", body=b"not compressed at all",
            )
        )  # fmt: skip
    assert dlq(running, "resend", "odd", "--all", "--dry-run").exit_code == 1
    result = dlq(running, "resend", "odd", "--all", "--yes")
    assert "2 letters cannot be sent:" in result.output
    assert "does not say what topic it came from" in result.output
    assert "has no whole body to send" in result.output
    assert "1 sent" in result.output
    assert result.exit_code == 1, "scripts can tell"
    assert "from ?" in dlq(running, "show", "odd").output


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("show", "nobody"), "there is no group 'nobody'"),
        (("resend", "nobody", "--all"), "there is no group 'nobody'"),
        (("resend", "wrong"), "say which"),
        (("resend", "wrong", "--all", "--id", "x"), "say which"),
        (("resend", "wrong", "--key", "x", "--again"), "--again goes with --all"),
    ],
)
def test_wrong_use_is_an_error(
    running: BlockingCluster, arguments: tuple[str, ...], complaint: str
) -> None:
    make_dead_letters(running, "wrong", b"1")
    with pytest.raises(UsageError, match=complaint):
        dlq(running, *arguments)


def test_an_address_without_a_server_is_an_error() -> None:
    for words in (["ls"], ["show", "g"], ["resend", "g", "--all"]):
        result = invoke("dlq", *words, "-n", "127.0.0.1:1")
        assert isinstance(result.exception, RoquetError)
        assert "no name server answered" in str(result.exception)


def test_a_cluster_without_dead_letters_says_so() -> None:
    with BlockingCluster() as running:
        assert "no group has dead letters" in dlq(running, "ls").output


def test_resent_letters_are_printed_as_json(running: BlockingCluster) -> None:
    ids = make_dead_letters(running, "json", b"1", b"2")
    resend = ("resend", "json", "--all", "--json")
    dry = dlq(running, *resend, "--dry-run")
    assert [json.loads(line)["sent"] for line in dry.stdout.splitlines()] == [False, False]
    assert "2 to topic json-topic" in dry.stderr
    done = dlq(running, *resend, "--yes")
    receipts = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(one["message_id"], one["sent"]) for one in receipts] == [
        (ids[0], True),
        (ids[1], True),
    ]
    assert "2 sent" in done.stderr


def test_a_choice_without_letters_is_no_wrong_use(running: BlockingCluster) -> None:
    make_dead_letters(running, "picky", b"1")
    with pytest.raises(RoquetError, match="group 'picky' has no dead letter with --") as error:
        dlq(running, "resend", "picky", "--key", "none")
    assert not isinstance(error.value, UsageError)
    invoke("group", "create", "healthy", "-n", running.namesrv_addr)
    with pytest.raises(RoquetError, match="group 'healthy' has no dead letters") as none:
        dlq(running, "show", "healthy")
    assert not isinstance(none.value, UsageError)


TIMER = "rmq_sys_wheel_timer"


@pytest.fixture
def fresh() -> Iterator[BlockingCluster]:
    with BlockingCluster(default_queue_count=1) as cluster:
        yield cluster


def in_cluster(fresh: BlockingCluster, *arguments: str, typed: str | None = None) -> Result:
    return roquet(*arguments, "-n", fresh.namesrv_addr, typed=typed)


def wait_for_listed(fresh: BlockingCluster, count: int) -> list[dict[str, Any]]:
    """Wait until so many messages are set aside, and return their fields."""
    lines: list[str] = []
    for _ in range(500):
        lines = in_cluster(fresh, "set-aside", "ls", "--json").stdout.splitlines()
        if len(lines) >= count:
            break
        time.sleep(0.02)
    assert len(lines) == count
    return [json.loads(line) for line in lines]


def poison(fresh: BlockingCluster, *properties: bytes) -> None:
    """Messages in the timer topic that the timer cannot handle."""

    async def store() -> None:
        for text in properties:
            fresh.brokers[0].broker.log.ingest.append_draft(Draft(TIMER, 0, b"body", text))

    fresh.run(store())


def test_messages_set_aside_are_listed_and_put_back(fresh: BlockingCluster) -> None:
    result = in_cluster(fresh, "set-aside", "ls")
    assert (result.stdout, result.stderr) == ("", "no message is set aside\n")
    assert in_cluster(fresh, "cluster", "show").stderr == ""
    with pytest.raises(RoquetError, match="no message is set aside"):
        in_cluster(fresh, "set-aside", "retry", "--all")
    nowhere = encode_properties({"TIMER_OUT_MS": "1000", "REAL_TOPIC": "../etc"})
    poison(fresh, b"\xff\x01\x1b[2J\x02", nowhere)
    first, second = wait_for_listed(fresh, 2)
    assert first["service"] == "timer"
    assert first["place"].startswith(f"{TIMER}/0/0/")
    assert first["reason"].startswith("MessageIllegal: a timed message has no delivery time")
    assert "cannot be the name of a directory" in second["reason"]
    lines = in_cluster(fresh, "set-aside", "ls").stdout.splitlines()
    assert [line.split()[0] for line in lines] == [first["message_id"], second["message_id"]]
    assert "has set 2 messages aside" in in_cluster(fresh, "cluster", "show").stderr
    dry = in_cluster(fresh, "set-aside", "retry", first["message_id"].lower(), "--dry-run")
    assert dry.stdout.splitlines()[0] == lines[0]
    result = in_cluster(fresh, "set-aside", "retry", first["message_id"], "--yes", "--json")
    assert [json.loads(line)["put_back"] for line in result.stdout.splitlines()] == [True]
    wait_for_listed(fresh, 3)  # it cannot be handled this time either
    assert in_cluster(fresh, "set-aside", "retry", "--all", "-y").stdout.endswith("3 put back\n")
    wait_for_listed(fresh, 6)
    assert in_cluster(fresh, "set-aside", "retry", "--all", "-y").stdout.endswith("3 put back\n")


def test_putting_back_needs_a_choice_of_messages(fresh: BlockingCluster) -> None:
    for arguments in ([], ["--all", "0A"]):
        with pytest.raises(UsageError, match="say which"):
            in_cluster(fresh, "set-aside", "retry", *arguments)
    poison(fresh, b"\xff")
    wait_for_listed(fresh, 1)
    with pytest.raises(UsageError, match="0A is not the id"):
        in_cluster(fresh, "set-aside", "retry", "0A", "-y")


def test_a_message_that_cannot_be_put_back_is_reported(fresh: BlockingCluster) -> None:
    poison(fresh, b"\xff")
    (first,) = wait_for_listed(fresh, 1)

    def refuse(kept: Record) -> None:
        raise ValueError("odd")

    fresh.brokers[0].broker.delivery.set_aside.retry = refuse  # type: ignore[method-assign]
    result = in_cluster(fresh, "set-aside", "retry", "--all", "-y")
    assert result.exit_code == 1
    assert f"{first['message_id']}: code 1: Put message back to its service failed. odd" in (
        result.stderr
    )
