"""Progress of a master that is parted, replaced, cut or without its lease for a moment."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import pytest
from tests.broker.replication.role_switches import asked, bodies, records
from tests.broker.replication.test_pop_switch import RETRY, WORKERS, acknowledge, pop
from tests.broker.replication.test_timed_services_switch import send_for
from tests.broker.replication.test_transactions_switch import COMMIT, OFTEN, end, half, producer
from tests.conversation.failover_group import CLIENT, CONTROLLER, TOPIC, Group, group, settled

from roquet.broker.operations.metadata_copy import MetadataCopy
from roquet.broker.services.delayed_delivery import DelayedDelivery
from roquet.broker.services.housekeeping import Housekeeping
from roquet.broker.services.revive import PopRevive
from roquet.broker.services.timer.timer import Timer
from roquet.broker.services.transactions.checks import TransactionChecks
from roquet.broker.services.transactions.transactions import GROUP
from roquet.model import names
from roquet.model import properties as props
from roquet.model.errors import CallRefused
from roquet.model.topic import SubscriptionGroup
from roquet.wire.calls.admin.topic import CreateGroup
from roquet.wire.calls.offset import QueryOffset, UpdateOffset
from roquet.wire.fastjson import codec

pytestmark = pytest.mark.virtual_time

INVISIBLE_MS = 10_500
"""Messages that are popped for so long come again while the master is parted."""

End = Callable[[Group], Awaitable[None]]

RESUMED_MS = 1_000
"""Ms after which deliveries have to go on once the controller answers again."""

SLACK_MS = 100
"""Ms that a delivery takes when nothing is wrong."""

LAPSE_INVISIBLE_MS = 11_000

COPY_MS: Final = 12_000
"""Longer than a replica takes to copy its master's progress."""

DUE_MS: Final = 120_000
"""How much later timed messages are due: when both switches are over."""


async def save_all(running: Group, number: int) -> None:
    """Let a broker save its progress now, as it does at intervals; what takes long is left."""
    broker, clock = running.brokers[number].broker, running.loop.clock
    keeping = Housekeeping(
        message_log=broker.log, tables=broker.tables, forget=lambda _: None, clock=clock
    )
    saves = [
        running.hosts.run(running.host(number), save(clock.now_ms()))
        for save in (broker.delivery.delay.save, broker.delivery.timer.save, keeping.save)
    ]
    await asyncio.wait([asyncio.ensure_future(save) for save in saves], timeout=0.1)


async def killed(running: Group) -> None:
    """Kill broker 1 once it has saved everything."""
    await save_all(running, 1)
    assert running.brokers[1].broker.replication.role.current.is_active
    await running.kill(1)


async def stopped(running: Group) -> None:
    """Stop broker 1 in good order."""
    server = running.brokers.pop(1)
    await running.hosts.run(running.host(1), server.__aexit__(None, None, None))


ENDS = pytest.mark.parametrize("ended", [killed, stopped])


async def elected_before_it_copies(running: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start broker 1 again as a replica, and have it elected before it has copied any progress.

    The master in between delivers nothing.
    """

    async def step(_part: object, _now_ms: int = 0) -> None:
        pass

    with monkeypatch.context() as patched:
        for delivery in (DelayedDelivery, Timer):
            patched.setattr(delivery, "work", lambda _delivery: iter(()))
        for part in (PopRevive, MetadataCopy):
            patched.setattr(part, "step", step)
        await running.until(lambda: running.master() not in (None, 1), 30)
        running.network.heal()
        await running.start_broker(1)
        async with asyncio.timeout(20):
            while 1 not in running.members():
                await running.loop.clock.sleep(5)
        await running.hosts.run(CLIENT, running.elect(1))
    await running.until(lambda: running.master() == 1, 30)


@ENDS
async def test_what_only_a_master_delivered_that_ends_comes_again_when_it_leads_from_its_files(
    ended: End, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with settled(["first", "second"]) as running:
        await running.loop.clock.sleep(1_000)
        clock, due = running.loop.clock, dict[str, int]()
        given = await pop(running, 1, INVISIBLE_MS)
        assert len(given) == 2
        for number in range(3):
            due_ms = clock.now_ms() + 10_000
            await send_for(running, f"level {number}", due_ms, f"{props.DELAY}\x013\x02", due)
            text = f"{props.TIMER_DELIVER_MS}\x01{due_ms}\x02"
            await send_for(running, f"time {number}", due_ms, text, due)
        await clock.sleep(9_600)
        running.part(1, running.host(2), running.host(3), CONTROLLER)
        broker = running.brokers[1].broker
        offsets, in_flight = broker.tables.delay_offsets, broker.delivery.revive.in_flight
        await running.until(lambda: offsets.get(3) == 3 and not len(in_flight), 5)
        await running.until(lambda: broker.delivery.timer.checkpoint.cursor == (0, 0))
        store = broker.log.store
        assert store.raw.end > store.confirmed_position + 1_000, "it has delivered and revived"
        await ended(running)
        await elected_before_it_copies(running, monkeypatch)
        await running.until(lambda: due.keys() <= set(bodies(running, 1)), 30)
        await running.until(lambda: given.keys() <= set(bodies(running, 1, RETRY)), 30)
        found = [r for r in records(running, 1) if r.body.decode() in due]
        assert [r.body for r in found if r.stored_ms < due[r.body.decode()]] == [], "none is early"
        running.check()


@ENDS
async def test_what_a_master_gave_out_that_ends_is_popped_again_when_it_leads_from_its_files(
    ended: End, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with settled(["first", "second"]) as running:
        await running.loop.clock.sleep(1_000)
        running.part(1, running.host(2), running.host(3), CONTROLLER)
        given = await pop(running, 1)
        assert len(given) == 2
        assert running.brokers[1].broker.tables.offsets.get(WORKERS, TOPIC, 0) == 2
        await ended(running)
        await elected_before_it_copies(running, monkeypatch)
        await running.until(lambda: len(running.members()) > 1)
        again = await pop(running, 1)
        assert again.keys() == given.keys()
        assert await acknowledge(running, 1, again.popitem()[1]) == 0


async def goes_back(running: Group, _monkeypatch: pytest.MonkeyPatch) -> None:
    """Let broker 1 find out that it leads no more, and lead again soon."""
    await running.until(lambda: running.master() not in (None, 1), 30)
    running.network.heal()
    async with asyncio.timeout(20):
        while 1 not in running.members():
            await running.loop.clock.sleep(5)
    await running.kill(running.master() or 0)
    await running.until(lambda: running.master() == 1, 30)


async def begins_from_its_files(running: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill broker 1, and let it lead again before it copies anything."""
    await killed(running)
    await elected_before_it_copies(running, monkeypatch)


async def is_stopped_and_begins(running: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop broker 1 in good order, and let it lead again before it copies anything.

    The master in between asks no producer.
    """
    ask = TransactionChecks.step

    async def step(checks: TransactionChecks, now_ms: int = 0) -> None:
        if running.master() == 1:
            await ask(checks, now_ms)

    monkeypatch.setattr(TransactionChecks, "step", step)
    await stopped(running)
    await elected_before_it_copies(running, monkeypatch)


@pytest.mark.parametrize("lead_again", [goes_back, begins_from_its_files, is_stopped_and_begins])
async def test_the_end_of_a_transaction_that_was_cut_is_asked_for_again(
    lead_again: Callable[[Group, pytest.MonkeyPatch], Awaitable[None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with settled(["first"], **OFTEN, transaction_op_interval=100) as running:
        reply = await half(running, "paid")
        await running.loop.clock.sleep(100)
        running.part(1, running.host(2), running.host(3), CONTROLLER)
        ending = asyncio.ensure_future(end(running, 1, reply, COMMIT))
        offsets = running.brokers[1].broker.tables.offsets
        await running.until(lambda: offsets.get(GROUP, names.HALF_TOPIC, 0) == 1, 1)
        await lead_again(running, monkeypatch)
        ending.cancel()
        assert bodies(running, 1) == ["first.0"]
        async with producer(running, 1, COMMIT):
            await running.until(lambda: bodies(running, 1) == ["first.0", "paid"], 30)


async def send_some(running: Group, due: dict[str, int]) -> None:
    """Send messages that fall due before, during and after the lapse."""
    clock = running.loop.clock
    for level, seconds in {2: 5, 3: 10}.items():
        due_ms = clock.now_ms() + seconds * 1_000
        text = f"{props.DELAY}\x01{level}\x02"
        await send_for(running, f"level {level} at {due_ms}", due_ms, text, due)
    for ms in range(7_000, 15_000, 200):
        due_ms = clock.now_ms() + ms
        text = f"{props.TIMER_DELIVER_MS}\x01{due_ms}\x02"
        await send_for(running, f"time {due_ms}", due_ms, text, due)


async def lapse(running: Group, hosts: tuple[str, ...]) -> tuple[int, int]:
    """Part the master from these hosts until its lease is over; gives when it was, and until when.

    It is the master of the same epoch afterwards.
    """
    role, clock = running.brokers[1].broker.replication.role, running.loop.clock
    before = role.current
    running.part(1, *hosts)
    await running.until(lambda: role.current.is_fenced, 3)
    began_ms = clock.now_ms()
    await clock.sleep(300)
    running.network.heal()
    healed_ms = clock.now_ms()
    await running.until(lambda: role.current.is_active, RESUMED_MS / 1_000)
    assert role.current == before, "it leads in the same epoch"
    return began_ms, healed_ms


@pytest.mark.parametrize(
    "hosts",
    [(CONTROLLER,), (CONTROLLER, Group.host(2)), (CONTROLLER, Group.host(2), Group.host(3))],
    ids=["controller", "controller and a replica", "controller and replicas"],
)
@pytest.mark.parametrize("phase_ms", [0, 410])
async def test_nothing_is_lost_or_early_and_deliveries_go_on_at_once(
    hosts: tuple[str, ...], phase_ms: int
) -> None:
    async with settled(["first", *(f"m{n}" for n in range(4))]) as running:
        clock, due = running.loop.clock, dict[str, int]()
        await clock.sleep(1_000 + phase_ms)
        handles = await pop(running, 1, LAPSE_INVISIBLE_MS)
        popped_ms = clock.now_ms()
        for _ in range(4):
            await send_some(running, due)
            await clock.sleep(500)
        prepared = await half(running, "paid")
        await clock.sleep(6_000)
        began_ms, healed_ms = await lapse(running, hosts)
        acked = sorted(handles)[:2]
        for body in acked:
            assert await acknowledge(running, 1, handles[body]) == 0
        await end(running, 1, prepared, COMMIT)
        await running.send_on(["last"])
        assert clock.now_ms() - healed_ms <= RESUMED_MS, "messages are taken again"
        left = handles.keys() - set(acked)
        await running.until(lambda: left <= set(bodies(running, 1, RETRY)), 15)
        await clock.sleep(10_000)
        found = {record.body.decode(): record.stored_ms for record in reversed(records(running, 1))}
        assert due.keys() <= found.keys(), "nothing is lost"
        assert "paid" in found
        for body, due_ms in due.items():
            is_held_up = began_ms <= due_ms <= healed_ms + RESUMED_MS
            latest_ms = healed_ms + RESUMED_MS if is_held_up else due_ms
            assert due_ms <= found[body] <= latest_ms + SLACK_MS, body
        assert any(began_ms < due_ms < healed_ms for due_ms in due.values())
        again = records(running, 1, RETRY)
        assert {record.body.decode() for record in again} == left
        assert min(record.stored_ms for record in again) >= popped_ms + LAPSE_INVISIBLE_MS
        running.check()


async def send_timed(running: Group, *texts: str) -> None:
    """Send messages that come after both switches."""
    due_ms = running.loop.clock.now_ms() + DUE_MS
    for text in texts:
        reply = await running.send(text, properties=f"{props.TIMER_DELIVER_MS}\x01{due_ms}\x02")
        assert reply.code == 0
        del running.acknowledged[text]  # its offset is that of the queue where it waits


async def commit(running: Group, offset: int) -> None:
    """Let a group commit an offset at the first master."""
    created = CreateGroup(body=codec.dumps(SubscriptionGroup(group_name="g")))
    await asked(running, 1, created)
    call = UpdateOffset(consumer_group="g", topic=TOPIC, queue_id=0, commit_offset=offset)
    await asked(running, 1, call)


@asynccontextmanager
async def one_behind() -> AsyncIterator[Group]:
    """Three brokers, each of which takes messages alone; the third is parted from the first."""
    async with group(in_sync_replicas=1, min_in_sync_replicas=1) as running:
        assert await running.settled(3) == 1
        await running.send_on(["everywhere"])
        await send_timed(running, "timed everywhere")
        await running.loop.clock.sleep(COPY_MS)
        running.network.partition(running.host(1), running.host(3))
        await running.until(lambda: running.members() == {1, 2})
        yield running


async def elect_the_one_behind(running: Group) -> None:
    """Elect the third one, while the second one is parted and the first one is gone."""
    await running.loop.clock.sleep(COPY_MS)
    running.part(2)
    running.network.drop(running.host(1), running.host(3))
    await running.kill(1)
    with pytest.raises(CallRefused, match="broker 2 was elected in epoch 2 meanwhile"):
        await running.elect(3, unclean=True)
    await running.elect(3, unclean=True)
    await running.until(lambda: running.master() == 3)


async def elect_the_cut_one(running: Group) -> None:
    """Let the second one follow the third one, and elect it in good order."""
    running.network.heal()
    await running.until(lambda: running.members() == {2, 3})
    await running.loop.clock.sleep(COPY_MS)
    await running.elect(2)
    await running.until(lambda: running.master() == 2)


@pytest.mark.parametrize("kept", ["kept", "kept longer"], ids=["of one size", "of two sizes"])
async def test_timed_messages_of_an_unclean_master_come_once_and_in_time_at_the_one_that_was_cut(
    kept: str,
) -> None:
    async with one_behind() as running:
        await send_timed(running, *(f"lost {number}" for number in range(4)))
        await elect_the_one_behind(running)
        due_ms = running.loop.clock.now_ms() + DUE_MS
        texts = [f"{kept} {number}" for number in range(3)]
        await send_timed(running, *texts)
        await elect_the_cut_one(running)
        assert running.loop.clock.now_ms() < due_ms
        await running.loop.clock.sleep(DUE_MS + 5_000)
        found = [record for record in records(running, 2) if record.body.decode() in texts]
        assert Counter(record.body.decode() for record in found) == Counter(texts)
        assert min(record.stored_ms for record in found) >= due_ms
        assert bodies(running, 2).count("timed everywhere") == 1
        assert not any(body.startswith("lost") for body in bodies(running, 2))


async def test_a_group_reads_messages_of_an_unclean_master_that_got_the_offsets_of_lost_ones() -> (
    None
):
    async with one_behind() as running:
        for number in range(6):
            assert (await running.send(f"lost {number}")).code == 0
            del running.acknowledged[f"lost {number}"]
        await commit(running, 7)
        await elect_the_one_behind(running)
        for number in range(8):
            assert (await running.send(f"kept {number}")).code == 0
        await elect_the_cut_one(running)
        running.check()
        call = QueryOffset(consumer_group="g", topic=TOPIC, queue_id=0)
        assert (await asked(running, 2, call)).offset == 1
