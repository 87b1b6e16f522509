"""The queues that are allocated to this member."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.client.conftest import FakeCluster, config_of, fake_cluster

from roquet.client.config import ConsumerConfig
from roquet.client.connection.session import Session
from roquet.client.rebalance.allocation import (
    QueueAllocator,
    broker_strategy,
    check_consumption,
    find_strategy,
    strategy_name,
)
from roquet.model.errors import ConfigError, RoquetError, UsageError
from roquet.model.queue import MessageQueue
from roquet.model.subscription import ConsumerData, HeartbeatData, MessageModel
from roquet.rules.allocate import average, machine_room
from roquet.wire.calls.bodies import AssignmentQuery, QueueAssignment, QueueAssignments

QUEUES = [MessageQueue("t", "a", 0), MessageQueue("t", "a", 1)]


def test_a_strategy_is_a_name_or_a_function() -> None:
    assert find_strategy(ConsumerConfig().strategy) is average
    assert find_strategy(average) is average
    assert find_strategy("STICKY") is None
    assert broker_strategy("STICKY") == "STICKY"
    assert broker_strategy("AVG") is None
    assert strategy_name("STICKY") == "STICKY"
    assert strategy_name(average) == "AVG"
    with pytest.raises(ConfigError, match="not int"):
        find_strategy(5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"'BEST' is unknown; known are AVG, .*STICKY"):
        find_strategy("BEST")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"message_model": MessageModel.LITE_SELECTIVE}, "message_model"),
        ({"strategy": "NOBODY"}, "'NOBODY' is unknown"),
        ({"strategy": machine_room([])}, "MACHINE_ROOM needs at least one room"),
    ],
)
def test_settings_that_cannot_work_together_are_said(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_consumption(ConsumerConfig(**settings))


@asynccontextmanager
async def allocator_of(cluster: FakeCluster, **settings: Any) -> AsyncIterator[QueueAllocator]:
    config: ConsumerConfig = config_of(ConsumerConfig, **settings)
    session = Session(cluster.address, config)
    session.start(
        lambda: HeartbeatData(
            client_id=session.identity.client_id, consumer_data_set=[ConsumerData(group_name="g")]
        )
    )
    try:
        yield QueueAllocator(session, config, "g")
    finally:
        await session.close()


async def test_a_member_unknown_to_the_brokers_sends_a_heartbeat() -> None:
    async with fake_cluster(t={"a": 2}) as cluster, allocator_of(cluster) as allocator:
        assert await allocator.queues_of("t") == QUEUES
        with pytest.raises(UsageError, match="topic u does not exist"):
            await allocator.queues_of("u")


async def test_every_broadcasting_member_gets_all_queues() -> None:
    model = MessageModel.BROADCASTING
    async with (
        fake_cluster(t={"a": 2}) as cluster,
        allocator_of(cluster, message_model=model, strategy="STICKY") as allocator,
    ):
        await allocator.check(["t"])
        assert await allocator.queues_of("t") == QUEUES


@pytest.mark.parametrize(
    "answer",
    [
        lambda queues, members: 1 / 0,
        lambda queues, members: {members[0]: [MessageQueue("t", "foreign", 9)]},
        lambda queues, members: {members[0]: [queues[0], queues[0]]},
        lambda queues, members: None,
        lambda queues, members: {"a stranger": queues},
    ],
    ids=["raises", "foreign", "doubled", "nonsense", "stranger"],
)
async def test_an_invalid_result_of_a_strategy_is_an_error(answer: Any) -> None:
    async with (
        fake_cluster(t={"a": 2}) as cluster,
        allocator_of(cluster, strategy=answer) as allocator,
    ):
        with pytest.raises(RoquetError):
            await allocator.queues_of("t")


async def test_the_first_broker_decides_when_asked_to() -> None:
    async with (
        fake_cluster(t={"b": 2, "a": 2}) as cluster,
        allocator_of(cluster, strategy="STICKY") as allocator,
    ):
        asked: list[AssignmentQuery] = []

        def decide(query: AssignmentQuery) -> QueueAssignments:
            asked.append(query)
            other = MessageQueue("other", "a", 1)
            assignments = [QueueAssignment(message_queue=queue) for queue in (QUEUES[1], other)]
            return QueueAssignments(message_queue_assignments=assignments)

        cluster.a.decides = decide
        await allocator.check(["t"])
        assert await allocator.queues_of("t") == [QUEUES[1]]
        assert (asked[0].strategy_name, asked[0].topic, asked[0].consumer_group) == (
            "STICKY",
            "t",
            "g",
        )
        assert asked[0].client_id in cluster.a.members["g"]


async def test_an_empty_share_is_believed_only_from_a_broker_that_has_heard_of_us() -> None:
    async with (
        fake_cluster(t={"a": 2}) as cluster,
        allocator_of(cluster, strategy="STICKY") as allocator,
    ):

        def decide(query: AssignmentQuery) -> QueueAssignments:
            known = query.client_id in cluster.a.members.get("g", {})
            assignments = [QueueAssignment(message_queue=QUEUES[0])] if known else []
            return QueueAssignments(message_queue_assignments=assignments)

        cluster.a.decides = decide
        assert await allocator.queues_of("t") == [QUEUES[0]]
        cluster.a.decides = lambda query: QueueAssignments()
        with pytest.raises(UsageError, match="broker a has no allocation yet"):
            await allocator.queues_of("t")


@pytest.mark.parametrize(
    "decides", [None, lambda query: QueueAssignments()], ids=["old", "genuine"]
)
async def test_a_broker_without_the_strategy_fails_the_start(decides: Any) -> None:
    async with (
        fake_cluster(t={"a": 2}) as cluster,
        allocator_of(cluster, strategy="LAG_WEIGHTED") as allocator,
    ):
        cluster.a.decides = decides
        with pytest.raises(ConfigError, match="broker a does not support LAG_WEIGHTED"):
            await allocator.check(["t", "%RETRY%g"])


async def test_an_unreachable_cluster_does_not_fail_the_start() -> None:
    async with fake_cluster() as cluster, allocator_of(cluster, strategy="STICKY") as allocator:
        await allocator.check(["t"])  # raises nothing
        assert cluster.asked == ["t"]
