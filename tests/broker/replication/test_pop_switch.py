"""Popped messages across a switch of the master: acknowledged ones are done, others come again."""

import asyncio
from random import Random

import pytest
from tests.broker.replication.role_switches import SWITCHES, Switch, asked, bodies, kill, records
from tests.conversation.failover_group import (
    CLIENT,
    CONTROLLER,
    NAMESRV,
    TOPIC,
    Group,
    group,
    settled,
)

from roquet.client import ConsumeFrom, ConsumerConfig, PushConsumer
from roquet.client.reading.message import InboundMessage
from roquet.model import names
from roquet.model.errors import CallRefused
from roquet.wire.calls.pop import Ack, Pop
from roquet.wire.calls.send import Send
from roquet.wire.codes import ResponseCode
from roquet.wire.receipt_handle import NORMAL, ReceiptHandle, parse_starts
from roquet.wire.records.record import decode_many

pytestmark = pytest.mark.virtual_time

WORKERS = "workers"
RETRY = names.pop_retry_topic(WORKERS, TOPIC)
INVISIBLE_MS = 20_000


async def pop(
    running: Group, number: int, invisible_ms: int = INVISIBLE_MS
) -> dict[str, ReceiptHandle]:
    """Pop all messages of the topic's first queue; gives their handles by body."""
    call = Pop(
        consumer_group=WORKERS,
        topic=TOPIC,
        queue_id=0,
        max_msg_nums=32,
        invisible_time=invisible_ms,
        born_time=running.loop.clock.now_ms(),
    )
    reply = await asked(running, number, call)
    if not reply.start_offset_info:
        return {}
    start = parse_starts(reply.start_offset_info)[f"{NORMAL}@0"]
    return {
        record.body.decode(): ReceiptHandle(
            start, reply.pop_time, reply.invisible_time, reply.revive_qid, NORMAL, "g", 0,
            record.queue_offset,
        )
        for record in decode_many(reply.body)
    }  # fmt: skip


async def acknowledge(running: Group, number: int, handle: ReceiptHandle) -> int:
    """Acknowledge a popped message; the code of the answer."""
    call = Ack(
        consumer_group=WORKERS,
        topic=TOPIC,
        queue_id=0,
        extra_info=handle.text(),
        offset=handle.offset,
    )
    return (await asked(running, number, call)).code


@pytest.mark.parametrize("switch", SWITCHES.values(), ids=SWITCHES)
async def test_what_is_not_acknowledged_is_revived_at_the_new_master_and_nothing_else(
    switch: Switch,
) -> None:
    async with group() as running:
        number = await running.settled(3)
        await running.send_on(["first", *(f"m{n}" for n in range(7))])
        await running.loop.clock.sleep(1_000)  # the topic is known to all
        handles = await pop(running, number)
        assert len(handles) == 8
        acked = [body for body in handles if body[:2] in ("m1", "m2", "m5")]
        for body in acked:
            assert await acknowledge(running, number, handles[body]) == 0
        number = await switch(running)
        assert await pop(running, number) == {}, "they are invisible at the new master, too"
        assert bodies(running, number, RETRY) == []
        late = next(body for body in handles if body.startswith("m6"))
        assert await acknowledge(running, number, handles[late]) == 0
        await running.loop.clock.sleep(INVISIBLE_MS + 5_000)
        again = records(running, number, RETRY)
        left = sorted(handles.keys() - {*acked, late})
        assert sorted(record.body.decode() for record in again) == left
        due_ms = min(handle.pop_ms for handle in handles.values()) + INVISIBLE_MS
        assert min(record.stored_ms for record in again) >= due_ms, "nothing is revived early"
        running.check()


async def test_what_fell_due_during_the_switch_is_revived_once_it_is_over() -> None:
    async with group() as running:
        number = await running.settled(3)
        await running.send_on(["m"])
        (body,) = await pop(running, number)
        await running.loop.clock.sleep(INVISIBLE_MS - 1_000)
        for other in (1, 2, 3):
            await running.kill(other)
        await running.loop.clock.sleep(60_000)
        for other in (3, 2, 1):
            await running.start_broker(other)
        number = await running.settled(3)
        await running.until(lambda: bodies(running, number, RETRY) == [body], 5)


async def test_messages_popped_just_before_the_kill_are_not_given_to_another_member() -> None:
    async with group() as running:
        number = await running.settled(3)
        for round_number in range(3):
            await running.send_on(f"{round_number}.{n}" for n in range(5))
            await running.loop.clock.sleep(1_000)
            handles = await pop(running, number, 600_000)
            assert len(handles) == 5
            before, number = number, await kill(running)
            assert await pop(running, number) == {}
            await running.start_broker(before)
            number = await running.settled(3)


async def test_what_a_parted_master_gave_out_is_popped_again_if_its_successor_dies_at_once() -> (
    None
):
    async with settled(["first", *(f"m{n}" for n in range(3))]) as running:
        await running.loop.clock.sleep(1_000)
        running.part(1, running.host(2), running.host(3), CONTROLLER)
        given = await pop(running, 1)
        assert len(given) == 4
        await running.until(lambda: running.master() not in (None, 1), 30)
        running.network.heal()
        async with asyncio.timeout(10):
            while 1 not in running.members():
                await running.loop.clock.sleep(5)
        await running.kill(running.master() or 0)
        await running.until(lambda: running.master() == 1, 30)
        assert (await pop(running, 1)).keys() == given.keys()


@pytest.mark.parametrize("failures", [1, 2])
@pytest.mark.parametrize(
    ("timeout_ms", "slave_timeout"), [(3_000, 1_000), (5_000, 1_000), (3_000, 3_000)]
)
async def test_a_message_that_failed_at_a_parted_master_comes_again_at_the_next(
    timeout_ms: int, slave_timeout: int, failures: int
) -> None:
    """The parted master stores it in the retry topic and answers FLUSH_SLAVE_TIMEOUT.

    The second failure is that of a copy that the broker has made.
    """
    async with settled(slave_timeout=slave_timeout) as running:
        await running.send("bad")
        config = ConsumerConfig(
            clock=running.loop.clock,
            rng=Random(3),
            client_ip=CLIENT,
            consume_from=ConsumeFrom.FIRST,
            timeout_ms=timeout_ms,
        )
        tries, may_fail = list[int](), asyncio.Event()

        async def handle(message: InboundMessage) -> None:
            tries.append(message.tries)
            if len(tries) == failures:
                await may_fail.wait()
            if len(tries) <= failures:
                raise ValueError("not now")

        async def consume() -> None:
            async with PushConsumer(
                f"{NAMESRV}:9876", group="g", topic="orders", config=config
            ) as consumer:
                await consumer.run(handle)

        consuming = running.hosts.run(CLIENT, consume())
        await running.until(lambda: len(tries) == failures, 30)
        await running.loop.clock.sleep(15_000)  # every broker has the group's retry topic
        number = running.master()
        assert number is not None
        others = [running.host(other) for other in (1, 2, 3) if other != number]
        running.part(number, *others)
        may_fail.set()
        await running.loop.clock.sleep(max(5_000, 4 * slave_timeout))
        await running.kill(number)
        await running.settled(2)
        await running.loop.clock.sleep(120_000)
        consuming.cancel()
        assert len(tries) > failures


def passed_on(topic: str) -> Send:
    """A message as Java's consumers send on one that failed: the copy says that nobody waits."""
    return Send(
        producer_group="CLIENT_INNER_PRODUCER",
        topic=topic,
        default_topic_queue_nums=1,
        queue_id=0,
        born_timestamp=1,
        properties="WAIT\x01false\x02",
        body=b"failed",
    )


async def test_a_failed_message_waits_for_replicas_though_its_copy_says_that_nobody_does() -> None:
    async with group(3, slave_timeout=1_000) as running:
        number = await running.settled(3)
        running.part(number, *[running.host(other) for other in (1, 2, 3) if other != number])
        failed = await running.ask(number, passed_on("%RETRY%g"))
        assert failed.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        assert (await running.ask(number, passed_on("orders"))).code == ResponseCode.SUCCESS


async def test_a_failed_message_is_refused_while_too_few_logs_are_in_sync() -> None:
    async with group(1, min_in_sync_replicas=2) as running:
        await running.until(lambda: running.master() == 1)
        with pytest.raises(CallRefused, match="in-sync"):
            await running.ask(1, passed_on("%RETRY%g"))
