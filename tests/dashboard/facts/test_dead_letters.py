import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest

from roquet.admin.client import AdminClient
from roquet.admin.dead_letters import DeadLetter, open_reader
from roquet.client.producer import Producer
from roquet.client.pull import PullConsumer
from roquet.dashboard.facts import dead_letters
from roquet.dashboard.facts.dead_letters import LetterRow, count_by_reason, place_of, reason_of
from roquet.model.errors import UsageError
from roquet.model.message import StoredMessage
from roquet.model.queue import MessageQueue
from roquet.net.channel import Channel
from roquet.testing.cluster import Cluster, cluster
from roquet.wire.calls.send import SendBack
from roquet.wire.records.message_id import parse_offset_message_id


@pytest.fixture
async def running() -> AsyncIterator[Cluster]:
    async with cluster(default_queue_count=1) as running:
        yield running


@pytest.fixture
async def admin(running: Cluster) -> AsyncIterator[AdminClient]:
    async with AdminClient(running.namesrv_addr) as admin:
        yield admin


@pytest.fixture
async def reader(running: Cluster) -> AsyncIterator[PullConsumer]:
    async with open_reader(running.namesrv_addr) as reader:
        yield reader


class AdminOfBrokers(AdminClient):
    """An admin client that still believes in brokers that have gone."""

    def __init__(self, namesrv: str, known: Mapping[str, str]) -> None:
        super().__init__(namesrv)
        self._known = known

    async def brokers(self) -> Mapping[str, str]:
        return self._known


async def give_up(running: Cluster, count: int, group: str = "billing") -> None:
    """Dead letters of a group, and the name server's knowledge of their topic."""
    host, _, port = running.broker_addrs[0].rpartition(":")
    channel = await Channel.connect(host, int(port))
    async with Producer(running.namesrv_addr) as producer:
        for number in range(count):
            receipt = await producer.send("orders", b"%d" % number, tag="new")
            _, position = parse_offset_message_id(receipt.offset_message_id)
            await channel.call(SendBack(offset=position, group=group, delay_level=-1))
    await channel.close()
    async with AdminClient(running.namesrv_addr) as admin, asyncio.timeout(5):
        while f"%DLQ%{group}" not in await admin.topics():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def letter(failures: int, topic: str | None = "orders", tag: str | None = None) -> DeadLetter:
    properties = {"DLQ_ORIGIN_TOPIC": topic} if topic else {}
    message = StoredMessage(
        topic="%DLQ%billing",
        body=b"",
        properties=properties | ({"TAGS": tag} if tag else {}),
        queue_id=0,
        queue_offset=7,
        position=0,
        size=0,
        reconsume_times=failures,
    )
    queue = MessageQueue("%DLQ%billing", "broker-a", 0)
    return DeadLetter(group="billing", queue=queue, message=message)


def test_a_reason_says_whether_tries_were_left() -> None:
    assert reason_of(letter(17), 16) == "failed 17 times, no try was left"
    assert reason_of(letter(1), 16) == "given up after 1 failure"


def test_letters_are_counted_by_origin_tag_and_reason() -> None:
    letters = [letter(17, tag="new"), letter(17, tag="new"), letter(3), letter(3, None)]
    rows = [
        LetterRow(place=place_of(one), letter=one, reason=reason_of(one, 16)) for one in letters
    ]
    assert rows[0].place == "broker-a/0/7"
    counts = [(c.origin_topic, c.tag, c.letters) for c in count_by_reason(rows)]
    assert counts == [("orders", "new", 2), ("orders", None, 1), (None, None, 1)]


async def test_letters_of_groups_are_counted(running: Cluster, admin: AdminClient) -> None:
    await give_up(running, 3)
    billing, nobody = await dead_letters.count_letters(admin, ["billing", "nobody"])
    assert (billing.group, billing.total) == ("billing", 3)
    assert billing.newest_ms is not None
    assert (nobody.total, nobody.newest_ms) == (0, None)


async def test_a_broker_that_does_not_answer_leaves_the_number_unknown(
    running: Cluster, admin: AdminClient
) -> None:
    await give_up(running, 1)
    await running.add_broker()
    async with asyncio.timeout(5):
        while len(await admin.brokers()) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    known = await admin.brokers()
    await running.stop_broker(1)
    async with AdminOfBrokers(running.namesrv_addr, known) as stale:
        (group,) = await dead_letters.count_letters(stale, ["billing"])
    assert (group.total, group.newest_ms) == (None, None)


async def test_the_newest_letters_come_first_and_can_be_chosen(
    running: Cluster, admin: AdminClient, reader: PullConsumer
) -> None:
    await give_up(running, 3)
    found = await dead_letters.letters_of(admin, reader, "billing", limit=2)
    assert [row.letter.message.body for row in found.letters] == [b"2", b"1"]
    assert (found.total, found.reasons[0].letters) == (3, 2)
    places = [row.place for row in found.letters]
    chosen = await dead_letters.chosen(reader, "billing", [*places, places[0]])
    assert [one.message.body for one in chosen] == [b"2", b"1"]
    exported = [one.message.body async for one in dead_letters.export(reader, "billing")]
    assert exported == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    ("places", "error"),
    [
        ([], "choose at least one"),
        (["broker-a/0/99"], "any more"),
        (["broker-a/0/x"], "no dead letter's place"),
        (["0/1"], "no dead letter's place"),
        (["/0/1"], "no dead letter's place"),
        (["b/0/1"] * 501, "too many"),
    ],
)
async def test_letters_that_are_not_there_are_refused(
    running: Cluster, reader: PullConsumer, places: list[str], error: str
) -> None:
    await give_up(running, 1)
    with pytest.raises(UsageError, match=error):
        await dead_letters.chosen(reader, "billing", places)


async def test_a_group_without_letters_is_the_users_mistake(
    admin: AdminClient, reader: PullConsumer
) -> None:
    with pytest.raises(UsageError, match="has no dead letters"):
        await dead_letters.letters_of(admin, reader, "nobody")
