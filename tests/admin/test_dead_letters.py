import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from roquet.admin import dead_letters
from roquet.admin.dead_letters import DeadLetter, DeadLetterFilter
from roquet.client.producer import Producer
from roquet.client.pull import PullConsumer
from roquet.model.errors import CallError, RoquetError, UsageError
from roquet.model.message import StoredMessage
from roquet.model.queue import MessageQueue
from roquet.model.results import SendStatus
from roquet.model.topic import SubscriptionGroup
from roquet.net.channel import Channel
from roquet.testing.cluster import Cluster, cluster
from roquet.wire.calls.send import SendBack
from roquet.wire.records.message_id import parse_offset_message_id


@pytest.fixture
async def running() -> AsyncIterator[Cluster]:
    async with cluster(default_queue_count=1) as running:
        yield running


@pytest.fixture
async def reader(running: Cluster) -> AsyncIterator[PullConsumer]:
    async with dead_letters.open_reader(running.namesrv_addr) as reader:
        yield reader


async def bury(running: Cluster, count: int, group: str = "billing", **fields: Any) -> list[str]:
    """Messages that a group gives up; their ids."""
    host, _, port = running.broker_addrs[0].rpartition(":")
    channel = await Channel.connect(host, int(port))
    ids = []
    async with Producer(running.namesrv_addr) as producer:
        for number in range(count):
            receipt = await producer.send("orders", b"%d" % number, **fields)
            _, position = parse_offset_message_id(receipt.offset_message_id)
            await channel.call(SendBack(offset=position, group=group, delay_level=-1))
            ids.append(receipt.message_id)
    await channel.close()
    await known(running, group)
    return ids


async def known(running: Cluster, group: str) -> None:
    """Once the name server has heard of a new topic."""
    async with asyncio.timeout(5):
        while group not in await dead_letters.groups(running.namesrv_addr):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def resend(running: Cluster, letters: list[DeadLetter]) -> list[int]:
    told: list[int] = []
    async with Producer(running.namesrv_addr) as producer:
        await dead_letters.resend(producer, letters, told.append)
    return told


async def orders(reader: PullConsumer) -> list[StoredMessage]:
    (queue,) = await reader.queues("orders")
    return list((await reader.pull(queue, 0, 1_000)).messages)


async def test_the_groups_with_dead_letters_are_known(
    running: Cluster, reader: PullConsumer
) -> None:
    assert await dead_letters.groups(running.namesrv_addr) == []
    await bury(running, 2, group="b")
    await bury(running, 1, group="a")
    assert await dead_letters.groups(running.namesrv_addr) == ["a", "b"]
    (count,) = await dead_letters.counts(reader, "b")
    assert (count.total, count.not_resent, count.queue.queue_id) == (2, 2, 0)


async def test_a_wrong_group_is_told_from_one_without_letters(running: Cluster) -> None:
    await bury(running, 1)
    await dead_letters.check_group(running.namesrv_addr, "billing")
    with pytest.raises(UsageError, match="did you mean 'billing'"):
        await dead_letters.check_group(running.namesrv_addr, "biling")
    with pytest.raises(UsageError, match="may hold only"):
        await dead_letters.check_group(running.namesrv_addr, "not a group")
    running.brokers[0].broker.tables.topics.create_for_group("%RETRY%fine", 1, 0)
    await bury(running, 1, group="later")
    with pytest.raises(RoquetError, match="'fine' has no dead letters"):
        await dead_letters.check_group(running.namesrv_addr, "fine")
    running.brokers[0].broker.tables.groups.put(SubscriptionGroup(group_name="new"), 0)
    with pytest.raises(RoquetError, match="'new' has no dead letters"):
        await dead_letters.check_group(running.namesrv_addr, "new")


async def test_a_topic_named_like_the_prefix_alone_is_not_a_groups(running: Cluster) -> None:
    for topic in ("%DLQ%", "%DLQ%billing", "orders"):
        running.brokers[0].broker.tables.topics.create_for_group(topic, 1, 0)
    assert await dead_letters.groups(running.namesrv_addr) == ["billing"]


async def test_a_letter_knows_its_past(running: Cluster, reader: PullConsumer) -> None:
    ids = await bury(running, 3, tag="red", keys=("k1", "k2"))
    letters = await dead_letters.newest(reader, "billing", 2)
    assert [letter.message_id for letter in letters] == ids[1:]
    assert {letter.origin_topic for letter in letters} == {"orders"}
    assert letters[0].message.reconsume_times == 1


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (DeadLetterFilter(), [b"0", b"1", b"2"]),
        (DeadLetterFilter(key="k2"), [b"0", b"1", b"2"]),
        (DeadLetterFilter(key="k"), []),
        (DeadLetterFilter(tag="red"), [b"0", b"1", b"2"]),
        (DeadLetterFilter(tag="red", key="none"), []),
        (DeadLetterFilter(message_id="none"), []),
    ],
)
async def test_dead_letters_are_chosen_by_their_fields(
    running: Cluster, reader: PullConsumer, choice: DeadLetterFilter, expected: list[bytes]
) -> None:
    await bury(running, 3, tag="red", keys=("k1", "k2"))
    letters, ends = await dead_letters.select(reader, "billing", choice)
    assert [letter.message.body for letter in letters] == expected
    assert list(ends.values()) == [3]


async def test_a_letter_is_chosen_by_either_of_its_ids(
    running: Cluster, reader: PullConsumer
) -> None:
    ids = await bury(running, 3)
    for choice in (ids[1], (await dead_letters.newest(reader, "billing", 9))[1].message):
        wanted = choice if isinstance(choice, str) else choice.offset_message_id
        letters, _ = await dead_letters.select(
            reader, "billing", DeadLetterFilter(message_id=wanted)
        )
        assert [letter.message.body for letter in letters] == [b"1"]


async def test_a_resent_message_equals_the_original_and_names_its_origin(
    running: Cluster, reader: PullConsumer
) -> None:
    (own_id,) = await bury(
        running, 1, tag="red", keys=("k1",), order_key="o", properties={"mine": "yes"}, flag=5
    )
    letters = await dead_letters.newest(reader, "billing", 1)
    assert await resend(running, letters) == [1]
    first, again = await orders(reader)
    assert (again.body, again.tag, again.keys, again.flag) == (b"0", "red", ("k1",), 5)
    assert again.message_id != first.message_id == own_id
    assert again.reconsume_times == 0
    assert dict(again.properties) | {"UNIQ_KEY": own_id} == {
        **first.properties, "RESENT_FROM": own_id,
    }  # fmt: skip


def test_a_resent_message_has_no_reason_any_more() -> None:
    fields = {"DLQ_ORIGIN_TOPIC": "orders", "DLQ_REASON": "KeyError: 'id'", "a": "b"}
    message = StoredMessage(
        topic="%DLQ%billing", body=b"x", queue_id=0, queue_offset=0, position=0, size=0,
        properties={**fields, "UNIQ_KEY": "7F"},
    )  # fmt: skip
    queue = MessageQueue("%DLQ%billing", "broker-a", 0)
    letter = DeadLetter(group="billing", queue=queue, message=message)
    assert letter.reason == "KeyError: 'id'"
    assert letter.to_message().properties == {"a": "b", "RESENT_FROM": "7F"}


async def test_a_resent_message_keeps_its_priority(running: Cluster, reader: PullConsumer) -> None:
    await bury(running, 1, priority=2)
    letters = await dead_letters.newest(reader, "billing", 1)
    assert await resend(running, letters) == [1]
    assert [m.properties["_SYS_MSG_PRIORITY_"] for m in await orders(reader)] == ["2", "2"]


async def test_dead_letters_are_resent_once_unless_forced(
    running: Cluster, reader: PullConsumer
) -> None:
    await bury(running, 100)
    letters, ends = await dead_letters.select(
        reader, "billing", DeadLetterFilter(), not_resent_only=True
    )
    assert sum(await resend(running, letters)) == 100
    await dead_letters.save_resent(reader, ends)
    await bury(running, 2)
    (count,) = await dead_letters.counts(reader, "billing")
    assert (count.total, count.not_resent) == (102, 2)
    letters, _ = await dead_letters.select(
        reader, "billing", DeadLetterFilter(), not_resent_only=True
    )
    assert len(letters) == 2
    letters, _ = await dead_letters.select(reader, "billing", DeadLetterFilter())
    assert len(letters) == 102


async def test_messages_that_could_not_be_resent_are_named(
    running: Cluster, reader: PullConsumer
) -> None:
    ids = await bury(running, 2)
    letters = await dead_letters.newest(reader, "billing", 2)

    class Failing(Producer):
        async def send(self, message: Any, *args: Any, **fields: Any) -> Any:
            if message.body == b"1":
                raise UsageError("not this one")
            return await super().send(message, *args, **fields)

    async with Failing(running.namesrv_addr) as producer:
        text = f"1 of 2 were sent again.*{ids[1]}: not this one"
        with pytest.raises(dead_letters.ResendStopped, match=text) as stopped:
            await dead_letters.resend(producer, letters, lambda _: None)
    _, ends = await dead_letters.select(reader, "billing", dead_letters.DeadLetterFilter())
    assert list(ends.values()) == [2]
    assert list(stopped.value.sent_ends(ends).values()) == [1]


async def test_a_letter_that_is_resent_less_durably_than_promised_stays_to_be_resent(
    running: Cluster, reader: PullConsumer
) -> None:
    ids = await bury(running, 1)
    letters = await dead_letters.newest(reader, "billing", 1)

    class Alone(Producer):
        async def send(self, message: Any, *args: Any, **fields: Any) -> Any:
            receipt = await super().send(message, *args, **fields)
            return msgspec.structs.replace(receipt, status=SendStatus.FLUSH_SLAVE_TIMEOUT)

    async with Alone(running.namesrv_addr) as producer:
        text = f"0 of 1 were sent again.*{ids[0]}: .*FLUSH_SLAVE_TIMEOUT.*bring back"
        with pytest.raises(RoquetError, match=text):
            await dead_letters.resend(producer, letters, lambda _: None)


async def test_a_broker_that_is_down_is_a_question_mark(
    running: Cluster, reader: PullConsumer
) -> None:
    await bury(running, 1)
    (count,) = await dead_letters.counts(reader, "billing")
    assert count.total == 1
    await running.stop_broker(0)
    for count in await dead_letters.counts(reader, "billing"):
        assert (count.total, count.not_resent) == (None, None)
    with pytest.raises(CallError):
        await dead_letters.newest(reader, "billing", 1)


def letter(**properties: str) -> DeadLetter:
    message = StoredMessage(
        topic="%DLQ%g", body=b"x", queue_id=0, queue_offset=0, position=0, size=0,
        properties={"UNIQ_KEY": "k", **properties},
    )  # fmt: skip
    return DeadLetter(group="g", queue=MessageQueue("%DLQ%g", "b", 0), message=message)


@pytest.mark.parametrize(
    ("properties", "topic"),
    [
        ({"RETRY_TOPIC": "orders"}, "orders"),
        ({"DLQ_ORIGIN_TOPIC": "orders", "RETRY_TOPIC": "other"}, "orders"),
        ({"RETRY_TOPIC": "%RETRY%g"}, None),
        ({}, None),
    ],
)
def test_the_topic_is_the_one_it_was_sent_to(properties: dict[str, str], topic: str | None) -> None:
    assert letter(**properties).origin_topic == topic


def test_a_letter_from_nowhere_cannot_be_sent() -> None:
    with pytest.raises(UsageError, match="does not say"):
        letter().to_message()
