"""What a producer sends is what a consumer pulls, over a real connection."""

import asyncio
from pathlib import Path

import pytest
from tests.conversation.conftest import SMALL, Connect, pull_of, send_of

from roquet.broker.app import BrokerServer
from roquet.broker.settings.config import BrokerConfig
from roquet.model.errors import ConnectionLost
from roquet.net.channel import Channel
from roquet.wire.call import Reply
from roquet.wire.calls.offset import MaxOffset, QueryOffset, UpdateOffset
from roquet.wire.calls.query import QueryByKey, ViewMessage
from roquet.wire.calls.send import SendBatch, SendLongNames
from roquet.wire.codes import ResponseCode
from roquet.wire.records.batch import BatchItem, encode_batch
from roquet.wire.records.message_id import parse_offset_message_id
from roquet.wire.records.record import decode_many, to_message

pytestmark = pytest.mark.virtual_time(False)


def bodies(reply: Reply) -> list[bytes]:
    return [record.body for record in decode_many(reply.body)]


async def test_every_message_comes_back_once_and_in_order(channel: Channel) -> None:
    sent = [b"flight %d" % number for number in range(500)]
    replies = await asyncio.gather(*(channel.call(send_of(body)) for body in sent))
    assert [reply.queue_offset for reply in replies] == list(range(500))
    found, offset = [], 0
    while offset < 500:
        reply = await channel.call(pull_of(offset))
        found += bodies(reply)
        offset = reply.next_begin_offset
    assert found == sent


async def test_short_and_long_names_and_both_batch_forms_store_the_same(channel: Channel) -> None:
    batch = encode_batch([BatchItem(0, b"two", b"KEYS\x01k2"), BatchItem(0, b"three", b"")])
    long_names = SendLongNames(
        producer_group="pg", topic="flights", queue_id=0, born_timestamp=1, body=b"one"
    )
    await channel.call(long_names)
    first = await channel.call(send_of(batch, batch=True))
    second = await channel.call(
        SendBatch(
            batch=True,
            producer_group="pg",
            topic="flights",
            queue_id=0,
            born_timestamp=1,
            body=batch,
        )
    )
    assert (first.queue_offset, second.queue_offset) == (1, 3)
    reply = await channel.call(pull_of(0))
    assert bodies(reply) == [b"one", b"two", b"three", b"two", b"three"]


async def test_a_consumer_gets_what_the_producer_sent(channel: Channel) -> None:
    text = "KEYS\x01N123AA\x02TAGS\x01UA\x02dest\x01Zürich\x02"
    receipt = await channel.call(send_of("Grüße".encode(), properties=text, flag=5))
    (record,) = decode_many((await channel.call(pull_of(0))).body)
    seen = to_message(record)
    assert (seen.body.decode(), seen.flag, seen.tag, seen.key) == ("Grüße", 5, "UA", "N123AA")
    assert seen.properties["dest"] == "Zürich"
    assert seen.offset_message_id == receipt.msg_id
    assert seen.message_id == receipt.transaction_id
    assert seen.born_ms == 1_700_000_000_000


async def test_a_held_pull_does_not_hold_up_others_on_its_connection(channel: Channel) -> None:
    await channel.call(send_of(b"first"))
    held = [asyncio.create_task(channel.call(pull_of(1), 20_000)) for _ in range(8)]
    await channel.call(MaxOffset(topic="flights", queue_id=0))
    assert not any(task.done() for task in held)
    await channel.call(send_of(b"second"))
    async with asyncio.timeout(5):
        assert [bodies(reply) for reply in await asyncio.gather(*held)] == [[b"second"]] * 8


async def test_a_client_that_disconnects_during_a_long_poll_affects_no_other(
    server: BrokerServer, channel: Channel, connect: Connect
) -> None:
    await channel.call(send_of(b"first"))
    other = await connect(server)
    held = asyncio.create_task(other.call(pull_of(1), 20_000))
    await other.call(MaxOffset(topic="flights", queue_id=0))
    await other.close()
    with pytest.raises(ConnectionLost):
        await held
    await channel.call(send_of(b"second"))
    assert bodies(await channel.call(pull_of(1))) == [b"second"]


async def test_one_way_messages_are_stored_too(channel: Channel) -> None:
    await channel.call(send_of(b"first"))
    for number in range(10):
        channel.oneway(send_of(b"%d" % number))
    async with asyncio.timeout(5):
        reply = await channel.call(MaxOffset(topic="flights", queue_id=0))
    assert reply.offset == 11, "requests of one connection are begun in order"


async def test_progress_survives_other_connections(server: BrokerServer, connect: Connect) -> None:
    first, second = await connect(server), await connect(server)
    await first.call(send_of(b"first"))
    await first.call(pull_of(0))
    await first.call(
        UpdateOffset(consumer_group="billing", topic="flights", queue_id=0, commit_offset=1)
    )
    reply = await second.call(QueryOffset(consumer_group="billing", topic="flights", queue_id=0))
    assert reply.offset == 1


async def test_a_message_is_found_by_key_and_by_id(channel: Channel) -> None:
    receipt = await channel.call(send_of(b"wanted", properties="KEYS\x01N1\x02"))
    query = QueryByKey(
        topic="flights", key="N1", max_num=32, begin_timestamp=0, end_timestamp=2**60
    )
    assert bodies(await channel.call(query)) == [b"wanted"]
    _, position = parse_offset_message_id(receipt.msg_id)
    view = await channel.call(ViewMessage(topic="flights", offset=position))
    assert bodies(view) == [b"wanted"]


@pytest.mark.parametrize("sync_flush", [True, False])
async def test_a_restarted_broker_continues_with_its_messages(
    tmp_path: Path, connect: Connect, sync_flush: bool
) -> None:
    config = BrokerConfig(**SMALL, store_dir=tmp_path, sync_flush=sync_flush)
    sent = [b"%d" % number for number in range(700)]  # more than one file of the queue
    async with BrokerServer(config) as server:
        channel = await connect(server)
        await asyncio.gather(*(channel.call(send_of(body)) for body in sent[:600]))
    async with BrokerServer(config) as server:
        channel = await connect(server)
        await asyncio.gather(*(channel.call(send_of(body)) for body in sent[600:]))
        found: list[bytes] = []
        while len(found) < 700:
            reply = await channel.call(
                pull_of(len(found), max_msg_nums=1000, max_msg_bytes=1 << 20)
            )
            assert reply.code == ResponseCode.SUCCESS
            found += bodies(reply)
    assert found == sent


async def test_random_queues_together_hold_everything(channel: Channel) -> None:
    calls = [send_of(b"%d" % number, -1) for number in range(100)]
    replies = await asyncio.gather(*map(channel.call, calls))
    used = {reply.queue_id for reply in replies}
    assert used == {0, 1, 2, 3}
    found = [b for queue_id in used for b in bodies(await channel.call(
        pull_of(0, queue_id, max_msg_nums=100)))]  # fmt: skip
    assert sorted(found) == sorted(call.body for call in calls)
