"""A consumer reads its share of its topics' queues."""

import asyncio
from collections.abc import Sequence

import pytest
from tests.client.conftest import consumer_of, consuming, fake_cluster

from roquet.client.reading.offsets import GroupOffsets
from roquet.client.reading.pull_request import Puller
from roquet.client.rebalance.allocation import QueueAllocator
from roquet.model.errors import CallRefused, ConfigError, FieldError, UsageError
from roquet.model.queue import MessageQueue
from roquet.rules.allocate import GroupAssignment, average
from roquet.wire.calls.bodies import AssignmentQuery, QueueAssignment, QueueAssignments
from roquet.wire.codes import ResponseCode

QUEUE = MessageQueue("t", "a", 0)


async def test_the_retry_topic_is_read_but_not_shown() -> None:
    async with (
        fake_cluster(**{"t": {"a": 1}, "%RETRY%g": {"a": 1}}) as cluster,
        consumer_of(cluster) as consumer,
    ):
        cluster.a.put("%RETRY%g", 0, b"again")
        (message,) = await consumer.fetch(1)
        assert message.body == b"again"
        assert consumer.assignment() == [QUEUE]
        assert consumer.subscriptions == {"t": "*"}


async def test_a_hanging_listener_delays_a_close_up_to_a_limit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def hangs(queues: Sequence[MessageQueue]) -> None:
        await asyncio.Event().wait()

    async with fake_cluster(t={"a": 1}) as cluster:
        async with consumer_of(cluster, close_timeout_ms=5_000) as consumer:
            await asyncio.sleep(1)
            consumer.on_revoked(hangs)
            began = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - began < 6
    assert "a listener of revoked queues is still running after 5000 ms" in caplog.text


async def test_a_retry_topic_that_comes_late_is_found() -> None:
    async with consuming({"a": 1}) as (cluster, consumer):
        await asyncio.sleep(100)
        asked = cluster.asked.count("%RETRY%g")
        assert asked < 20  # and not each second
        cluster.topics["%RETRY%g"] = {"a": 1}
        cluster.a.put("%RETRY%g", 0, b"again")
        assert [m.body for m in await consumer.fetch(1, 21_000)] == [b"again"]


async def test_a_queue_whose_pulls_went_silent_is_assigned_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with consuming({"a": 1}) as (cluster, consumer):
        await asyncio.sleep(1)
        changes: list[str] = []
        consumer.on_revoked(lambda _: changes.append("revoked"))
        consumer.on_assigned(lambda _: changes.append("assigned"))
        with monkeypatch.context() as stuck:
            stuck.setattr(Puller, "pull", lambda *_, **__: asyncio.sleep(1e6))
            await asyncio.sleep(120)
            assert changes == []
        await asyncio.sleep(50)
        assert changes == ["revoked", "assigned"]
        assert "pulls of t@a:0 got no answer for too long" in caplog.text
        cluster.a.put("t", 0, b"x")
        assert [m.body for m in await consumer.fetch(1)] == [b"x"]


async def test_a_full_or_paused_queue_is_not_silent() -> None:
    async with consuming({"a": 2}, in_flight_max=2) as (cluster, consumer):
        cluster.a.put("t", 0, b"x", b"y", b"z")
        await asyncio.sleep(1)
        revoked: list[object] = []
        consumer.on_revoked(revoked.append)
        consumer.pause(consumer.assignment()[1])
        await asyncio.sleep(400)
        assert revoked == []


async def test_a_strategy_that_fails_later_keeps_the_assignment_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    faulty: list[int] = []

    def strategy(queues: Sequence[MessageQueue], members: Sequence[str]) -> GroupAssignment:
        if faulty:
            raise ZeroDivisionError("no idea")
        return average(queues, members)

    async with consuming({"a": 2}, strategy=strategy) as (cluster, consumer):
        await asyncio.sleep(1)
        faulty.append(1)
        await asyncio.sleep(300)
        assert len(consumer.assignment()) == 2
        assert caplog.text.count("no idea") == 1
        faulty.clear()
        with caplog.at_level("INFO"):
            await asyncio.sleep(21)
        assert "share of t: works again" in caplog.text
        cluster.topics["t"]["a"] = 4  # brokers answer for the strategy again
        await asyncio.sleep(60)
        assert len(consumer.assignment()) == 4


async def test_a_failing_rebalance_is_logged_after_other_failures_too(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with fake_cluster() as cluster, consumer_of(cluster) as one:
        await asyncio.sleep(5)  # the topic does not exist

        async def faulty(allocator: QueueAllocator, topic: str) -> list[MessageQueue]:
            raise ZeroDivisionError("of a look")

        monkeypatch.setattr(QueueAllocator, "queues_of", faulty)
        await asyncio.sleep(60)
        assert caplog.text.count("rebalance of g failed, all queues are kept") == 1
        monkeypatch.undo()
        await cluster.add("a")
        cluster.topics["t"] = {"a": 1}
        await asyncio.sleep(60)
        assert one.assignment() == [QUEUE]
        monkeypatch.setattr(QueueAllocator, "queues_of", faulty)
        await asyncio.sleep(60)
        assert caplog.text.count("rebalance of g failed, all queues are kept") == 2


async def test_locking_is_retried_after_half_a_second() -> None:
    async with fake_cluster(t={"a": 1}) as cluster:
        cluster.a.locked[QUEUE] = "other"
        async with consumer_of(cluster, ordered=True) as consumer:
            await asyncio.sleep(10)
            assert consumer.assignment() == []
            before = cluster.a.lock_calls
            await asyncio.sleep(5)
            assert 9 <= cluster.a.lock_calls - before <= 11
            cluster.a.locked.clear()
            await asyncio.sleep(0.6)
            assert consumer.assignment() == [QUEUE]


async def test_a_strategy_that_no_broker_supports_fails_the_start() -> None:
    async with fake_cluster(t={"a": 1}) as cluster:
        consumer = consumer_of(cluster, strategy="STICKY")
        with pytest.raises(ConfigError, match="does not support STICKY"):
            await consumer.start()
        with pytest.raises(UsageError, match="closed"):
            await consumer.next()
        await consumer.close()


async def test_the_brokers_decision_is_the_assignment() -> None:
    async with fake_cluster(t={"a": 2}) as cluster:

        def nothing(query: AssignmentQuery) -> QueueAssignments:
            return QueueAssignments(message_queue_assignments=[])

        cluster.a.decides = nothing
        async with consumer_of(cluster, strategy="STICKY") as consumer:
            await asyncio.sleep(5)
            assert consumer.assignment() == []


async def test_concurrent_rebalances_assign_a_queue_once() -> None:
    async with consuming({"a": 1}) as (cluster, consumer):
        heard: list[object] = []
        consumer.on_assigned(heard.append)
        await asyncio.gather(*(consumer.rebalance() for _ in range(3)))
        await asyncio.sleep(1)
        assert heard == [(QUEUE,)]
        cluster.a.put("t", 0, b"x")
        assert [m.body for m in await consumer.fetch(2, 1_000)] == [b"x"]


async def test_a_rebalance_asked_for_by_a_listener_follows_later() -> None:
    async with consuming({"a": 1}) as (_cluster, consumer):
        results: list[bool] = []

        async def look(queues: Sequence[MessageQueue]) -> None:
            results.append(await consumer.rebalance())

        consumer.on_assigned(look)
        await asyncio.sleep(1)
        assert results == [False]
        assert consumer.assignment() == [QUEUE]
        consumer.unsubscribe("t")
        await asyncio.sleep(1)
        assert consumer.assignment() == []


async def test_unsubscribing_during_an_assignment_leaves_no_lock() -> None:
    async with fake_cluster(t={"a": 2}) as cluster, consumer_of(cluster, ordered=True) as one:
        one.on_assigned(lambda queues: one.unsubscribe("t"))
        await asyncio.sleep(1)
        assert cluster.a.lock_calls == 1
        assert cluster.a.locked == {}


async def test_a_queue_without_an_offset_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fake_cluster(t={"a": 2}) as cluster, consumer_of(cluster, ordered=True) as one:
        other, start_offset = MessageQueue("t", "a", 1), GroupOffsets.start_offset

        async def garbled(offsets: GroupOffsets, queue: MessageQueue) -> int:
            if queue == QUEUE:
                raise FieldError("offset: no number")
            return await start_offset(offsets, queue)

        monkeypatch.setattr(GroupOffsets, "start_offset", garbled)
        await asyncio.sleep(1)
        assert one.assignment() == [other]
        assert list(cluster.a.locked) == [other]
        monkeypatch.undo()
        await asyncio.sleep(21)
        assert one.assignment() == [QUEUE, other]


async def test_a_failed_rebalance_leaves_no_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fake_cluster(t={"a": 2}) as cluster, consumer_of(cluster, ordered=True) as one:

        async def faulty(offsets: GroupOffsets, queue: MessageQueue) -> int:
            raise ZeroDivisionError

        monkeypatch.setattr(GroupOffsets, "start_offset", faulty)
        with pytest.raises(ZeroDivisionError):
            await one.rebalance()
        assert cluster.a.lock_calls
        assert cluster.a.locked == {}


async def test_the_route_is_refreshed_when_another_broker_decides() -> None:
    async with fake_cluster(t={"b": 1}) as cluster:

        def decide(query: AssignmentQuery) -> QueueAssignments:
            if "a" in cluster.topics["t"]:
                raise CallRefused(ResponseCode.NOT_LEADER_FOR_QUEUE, "a divides, not b")
            return QueueAssignments(
                message_queue_assignments=[QueueAssignment(message_queue=MessageQueue("t", "b", 0))]
            )

        def decide_first(query: AssignmentQuery) -> QueueAssignments:
            return QueueAssignments(
                message_queue_assignments=[QueueAssignment(message_queue=QUEUE)]
            )

        cluster.brokers["b"].decides = decide
        async with consumer_of(cluster, strategy="STICKY") as consumer:
            await asyncio.sleep(2)
            assert consumer.assignment() == [MessageQueue("t", "b", 0)]
            (await cluster.add("a")).decides = decide_first
            cluster.topics["t"]["a"] = 1
            await consumer.rebalance()
            await asyncio.sleep(3)
            assert consumer.assignment() == [QUEUE]
