"""Transactions across a switch of the master: each ends once, and checks go on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from tests.broker.replication.role_switches import (
    SWITCHES,
    Switch,
    asked,
    bodies,
    connect,
    kill,
    silence,
)
from tests.conversation.failover_group import TOPIC, Group, group, settled

from roquet.model.errors import CallRefused
from roquet.model.subscription import HeartbeatData, ProducerData
from roquet.net.router import Peer, Router
from roquet.wire.calls.heartbeat import Heartbeat
from roquet.wire.calls.send import Send, SendReply
from roquet.wire.calls.transaction import CheckTransactionState, EndTransaction
from roquet.wire.fastjson import codec
from roquet.wire.records.message_id import parse_offset_message_id
from roquet.wire.records.record import decode

pytestmark = pytest.mark.virtual_time

UNKNOWN, PREPARED, COMMIT, ROLL_BACK = 0, 4, 8, 12

HALF = "TRAN_MSG\x01true\x02PGROUP\x01p\x02"
"""Properties of a half message."""

OFTEN: dict[str, Any] = {"transaction_timeout": 1_000, "transaction_check_interval": 1_000}
"""Settings by which undecided transactions are asked about after a second."""


async def half(running: Group, body: str) -> SendReply:
    """Send a half message to the master."""
    number = running.master()
    assert number is not None
    call = Send(
        producer_group="p",
        topic=TOPIC,
        queue_id=0,
        sys_flag=PREPARED,
        born_timestamp=running.loop.clock.now_ms(),
        properties=f"{HALF}UNIQ_KEY\x01{body}\x02",
        body=body.encode(),
    )
    reply = await asked(running, number, call)
    assert reply.code == 0
    return reply


async def end(running: Group, number: int, reply: SendReply, how: int) -> None:
    """Commit a half message, or roll it back."""
    call = EndTransaction(
        producer_group="p",
        topic=TOPIC,
        half_offset=reply.queue_offset,
        position=parse_offset_message_id(reply.msg_id)[1],
        commit_or_rollback=how,
    )
    with suppress(CallRefused):  # it has ended before
        await asked(running, number, call)


@asynccontextmanager
async def producer(running: Group, number: int, how: int) -> AsyncIterator[list[str]]:
    """A producer that answers all checks of a broker so; gives the bodies it is asked about."""
    router, checked = Router(), list[str]()
    answers: set[asyncio.Task[object]] = set()

    def check(call: CheckTransactionState, _peer: Peer) -> None:
        checked.append(decode(call.body).body.decode())
        if how == UNKNOWN:
            return
        answer = EndTransaction(
            producer_group="p",
            half_offset=call.half_offset,
            position=call.position,
            commit_or_rollback=how,
            from_transaction_check=True,
        )
        answers.add(asyncio.create_task(channel.call(answer)))

    router.add(CheckTransactionState, check)
    channel = await connect(running, number, router)
    data = HeartbeatData(client_id="c", producer_data_set=[ProducerData(group_name="p")])
    await channel.call(Heartbeat(body=codec.dumps(data)))
    yield checked
    await asyncio.gather(*answers, return_exceptions=True)
    await channel.close()


@pytest.mark.parametrize("switch", SWITCHES.values(), ids=SWITCHES)
async def test_half_messages_are_ended_once_after_the_switch(switch: Switch) -> None:
    async with settled(["first"], **OFTEN) as running:
        told = {body: await half(running, body) for body in ("committed", "rolled back", "checked")}
        number = await switch(running)
        assert set(bodies(running, number)).isdisjoint(told), "no half message is delivered"
        await end(running, number, told["committed"], COMMIT)
        await end(running, number, told["rolled back"], ROLL_BACK)
        async with producer(running, number, COMMIT) as checked:
            await asyncio.sleep(40)
        assert set(checked) == {"checked"}
        found = bodies(running, number)
        assert [found.count(body) for body in told] == [1, 0, 1]
        running.check()


@pytest.mark.parametrize("switch", SWITCHES.values(), ids=SWITCHES)
async def test_what_was_ended_before_the_switch_is_neither_repeated_nor_asked_about(
    switch: Switch,
) -> None:
    async with group(**OFTEN) as running:
        number = await running.settled(3)
        await running.send_on(["first"])
        committed, rolled_back = (
            await half(running, "committed"),
            await half(running, "rolled back"),
        )
        await end(running, number, committed, COMMIT)
        await end(running, number, rolled_back, ROLL_BACK)
        await asyncio.sleep(1)  # a rollback is an op message alone, half a second later
        number = await switch(running)
        await end(running, number, committed, COMMIT)  # a producer that missed the reply
        async with producer(running, number, COMMIT) as checked:
            await asyncio.sleep(40)
        assert checked == []
        found = bodies(running, number)
        assert (found.count("committed"), found.count("rolled back")) == (1, 0)


@pytest.mark.parametrize("switch", [kill, silence])
async def test_a_commit_just_before_the_switch_is_not_repeated(switch: Switch) -> None:
    async with group(**OFTEN, transaction_op_interval=60_000) as running:
        number = await running.settled(3)
        await running.send_on(["first"])
        committed = await half(running, "committed")
        await end(running, number, committed, COMMIT)  # its end is noted in memory alone
        number = await switch(running)
        async with producer(running, number, COMMIT) as checked:
            await asyncio.sleep(40)
        assert checked == [], "the log shows that it was committed"
        assert bodies(running, number).count("committed") == 1


async def test_a_producer_that_answers_the_old_masters_check_ends_it_at_the_new_one() -> None:
    async with group(**OFTEN) as running:
        number = await running.settled(3)
        await running.send_on(["first"])
        async with producer(running, number, UNKNOWN) as checked:
            await half(running, "slow")
            await asyncio.sleep(4)
        assert len(checked) >= 2, "it was put back, and asked about again"
        number = await kill(running)
        async with producer(running, number, COMMIT) as again:
            await asyncio.sleep(40)
        assert set(again) == {"slow"}
        assert bodies(running, number).count("slow") == 1
