import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping

import pytest

from roquet.admin import groups
from roquet.admin.client import AdminClient
from roquet.admin.dead_letters import DeadLetter, open_reader
from roquet.client.producer import Producer
from roquet.client.pull import PullConsumer
from roquet.dashboard.facts import dead_letters
from roquet.dashboard.facts.dead_letters import count_by_reason, place_of, reason_of
from roquet.dashboard.sampling.letter_tally import LetterTallies, kind_of
from roquet.model.errors import NotFound, UsageError
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


def letter(
    failures: int, topic: str | None = "orders", tag: str | None = None, reason: str = ""
) -> DeadLetter:
    properties = {"DLQ_ORIGIN_TOPIC": topic} if topic else {}
    properties |= {"DLQ_REASON": reason} if reason else {}
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
    assert reason_of(17, 16) == "failed 17 times, no try was left"
    assert reason_of(1, 16) == "given up after 1 failure"


def test_letters_are_counted_by_origin_tag_and_reason() -> None:
    letters = [letter(17, tag="new"), letter(17, tag="new"), letter(3), letter(3, None)]
    assert place_of(letters[0]) == "broker-a/0/7"
    reasons = count_by_reason(Counter(map(kind_of, letters)), 16)
    counts = [(c.origin_topic, c.tag, c.letters) for c in reasons]
    assert counts == [("orders", "new", 2), ("orders", None, 1), (None, None, 1)]


def test_letters_with_a_reason_are_counted_by_its_kind() -> None:
    faults = [f"ValidationError: {n} errors for Order; secret" for n in (1, 2)]
    letters = [letter(1, reason=fault) for fault in faults] + [letter(17)]
    reasons = count_by_reason(Counter(map(kind_of, letters)), 16)
    counts = [(c.reason, c.letters) for c in reasons]
    assert counts == [("ValidationError", 2), ("failed 17 times, no try was left", 1)]


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
    tallies = LetterTallies()
    found = await dead_letters.letters_of(admin, reader, "billing", tallies, limit=2)
    assert [row.letter.message.body for row in found.letters] == [b"2", b"1"]
    assert (found.total, found.counted, found.reasons[0].letters) == (3, 3, 3)
    older = await dead_letters.letters_of(
        admin, reader, "billing", tallies, before=found.next_page, limit=2
    )
    assert [row.letter.message.body for row in older.letters] == [b"0"]
    assert (older.newer, older.next_page, older.reasons[0].letters) == (2, (), 3)
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


async def test_an_unknown_group_is_not_found_and_a_known_one_has_no_letters(
    admin: AdminClient, reader: PullConsumer
) -> None:
    with pytest.raises(NotFound, match="unknown to every broker"):
        await dead_letters.letters_of(admin, reader, "nobody", LetterTallies())
    await groups.create(admin, "billing", {})
    found = await dead_letters.letters_of(admin, reader, "billing", LetterTallies())
    assert (found.total, found.letters) == (0, ())


@pytest.mark.parametrize("before", ["broker-a/0/999999999999999999999", "broker-x/7/1"])
async def test_places_that_no_letter_has_lead_to_the_newest_ones(
    running: Cluster, admin: AdminClient, reader: PullConsumer, before: str
) -> None:
    await give_up(running, 1)
    found = await dead_letters.letters_of(
        admin, reader, "billing", LetterTallies(), before=[before]
    )
    assert (found.newer, len(found.letters)) == (0, 1)
