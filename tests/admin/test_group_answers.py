"""Answers of brokers about a group that are missing, and what is said of them."""

from typing import Any

import pytest
from tests.admin.conftest import ClusterWithAdmin

from roquet.admin import dead_letters, groups, topics
from roquet.admin.client import AdminClient
from roquet.admin.group_answers import DeadLetterTotals, totals
from roquet.admin.topics import TopicSettings
from roquet.client.config import ConsumerConfig, ProducerConfig
from roquet.client.producer import Producer
from roquet.model.errors import CallRefused, CallTimeout
from roquet.wire.call import Call
from roquet.wire.calls.admin.group import GetConnections, GetConsumeStats
from roquet.wire.calls.admin.topic import GetGroup, GetGroups
from roquet.wire.calls.offset import UpdateOffset
from roquet.wire.codes import ResponseCode

pytestmark = pytest.mark.virtual_time

NO = CallRefused(ResponseCode.NO_PERMISSION, "no")


def refuse(monkeypatch: pytest.MonkeyPatch, error: Exception, *calls: type[Call[Any]]) -> None:
    """Let every broker answer some calls with an error."""
    ask = AdminClient.ask

    async def asked(admin: AdminClient, address: str, call: Call[Any], *rest: Any) -> Any:
        if isinstance(call, calls):
            raise error
        return await ask(admin, address, call, *rest)

    monkeypatch.setattr(AdminClient, "ask", asked)


async def test_groups_that_no_broker_may_list_are_neither_none_nor_unknown(
    cluster: ClusterWithAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    await groups.create(cluster.admin, "billing", {})
    await groups.create(cluster.admin, "shipping", {})
    refuse(monkeypatch, NO, GetGroups)
    with pytest.raises(CallRefused, match="code 16: no"):
        await groups.summaries(cluster.admin)
    with pytest.raises(CallRefused, match="code 16: no"):
        await groups.list_names(cluster.admin)
    with pytest.raises(CallRefused, match="code 16: no"):  # not: unknown to every broker
        await groups.show(cluster.admin, "billing")


async def test_a_user_who_may_look_at_one_group_alone_sees_it(
    cluster: ClusterWithAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    await topics.create(cluster.admin, "orders", TopicSettings(read_queues=1, write_queues=1))
    await groups.create(cluster.admin, "billing", {})
    call = UpdateOffset(consumer_group="billing", topic="orders", queue_id=0, commit_offset=0)
    await cluster.admin.ask(cluster.running.broker_addrs[0], call)
    refuse(monkeypatch, NO, GetGroups)
    found = await groups.show(cluster.admin, "billing")
    assert (found.members, found.lag, len(found.queues)) == ([], 0, 1)
    assert found.problems == [
        f"{broker} does not tell whether the group is disabled there: code 16: no"
        for broker in ("broker-a", "broker-b")
    ]


async def test_what_no_broker_tells_is_not_known(
    cluster: ClusterWithAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    await groups.create(cluster.admin, "billing", {})
    refuse(monkeypatch, CallTimeout("no reply"), GetConnections, GetConsumeStats)
    found = await groups.show(cluster.admin, "billing")
    assert (found.members, found.member_count, found.lag) == (None, None, None)
    lines = [
        f"{broker} does not answer: its part is missing here (no reply)"
        for broker in ("broker-a", "broker-b")
    ]
    assert found.problems == lines
    (one,) = await groups.summaries(cluster.admin)
    assert (one.members, one.lag, one.faults) == (None, None, lines)


async def test_settings_that_cannot_be_read_are_not_replaced_by_defaults(
    cluster: ClusterWithAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    await groups.create(cluster.admin, "billing", {"retry_max_times": 3})
    refuse(monkeypatch, NO, GetGroup)
    with pytest.raises(CallRefused, match="code 16: no"):
        await groups.create(cluster.admin, "billing", {"consume_enable": False})


async def give_up(it: ClusterWithAdmin, count: int) -> None:
    """Letters in the dead-letter topic of `billing`, on both brokers in turn."""
    await topics.create(it.admin, "%DLQ%billing", TopicSettings(read_queues=1, write_queues=1))
    await it.settle()
    async with Producer(it.namesrv, config=ProducerConfig(clock=it.clock)) as producer:
        for _ in range(count):
            await producer.send("%DLQ%billing", b"x")


async def counted(it: ClusterWithAdmin) -> DeadLetterTotals:
    return await totals(it.admin, await it.admin.brokers(), "billing")


async def test_letters_count_until_all_were_sent_again(cluster: ClusterWithAdmin) -> None:
    assert await counted(cluster) == DeadLetterTotals(total=0, not_resent=0)
    await give_up(cluster, 4)
    found = await counted(cluster)
    assert (found.total, found.not_resent, found.fault) == (4, 4, None)
    assert found.newest_ms is not None
    config = ConsumerConfig(clock=cluster.clock)
    async with dead_letters.open_reader(cluster.namesrv, config) as reader:
        filter_ = dead_letters.DeadLetterFilter()
        _, ends = await dead_letters.select(reader, "billing", filter_)
        await dead_letters.save_resent(reader, ends)
    found = await counted(cluster)
    assert (found.total, found.not_resent) == (4, 0)


async def test_letters_of_a_broker_that_is_away_are_not_known(cluster: ClusterWithAdmin) -> None:
    await give_up(cluster, 4)
    brokers = await cluster.admin.brokers()
    await cluster.running.stop_broker(1)
    found = await totals(cluster.admin, brokers, "billing")
    assert (found.total, found.not_resent, found.newest_ms) == (None, None, None)
    assert (found.fault or "").startswith("broker-b: cannot connect")
