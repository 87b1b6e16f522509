"""Answers of brokers about a group that are missing, and what is said of them."""

from typing import Any

import pytest
from tests.admin.conftest import OpenCluster

from roquet.admin import groups, topics
from roquet.admin.client import AdminClient
from roquet.admin.topics import TopicSettings
from roquet.model.errors import CallRefused, CallTimeout
from roquet.testing.clock import in_virtual_time
from roquet.wire.call import Call
from roquet.wire.calls.admin.group import GetConnections, GetConsumeStats
from roquet.wire.calls.admin.topic import GetGroup, GetGroups
from roquet.wire.calls.offset import UpdateOffset
from roquet.wire.codes import ResponseCode

NO = CallRefused(ResponseCode.NO_PERMISSION, "no")


def refuse(monkeypatch: pytest.MonkeyPatch, error: Exception, *calls: type[Call[Any]]) -> None:
    """Let every broker answer some calls with an error."""
    ask = AdminClient.ask

    async def asked(admin: AdminClient, address: str, call: Call[Any], *rest: Any) -> Any:
        if isinstance(call, calls):
            raise error
        return await ask(admin, address, call, *rest)

    monkeypatch.setattr(AdminClient, "ask", asked)


@in_virtual_time
async def test_groups_that_no_broker_may_list_are_neither_none_nor_unknown(
    open_cluster: OpenCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_cluster() as it:
        await groups.create(it.admin, "billing", {})
        await groups.create(it.admin, "shipping", {})
        refuse(monkeypatch, NO, GetGroups)
        with pytest.raises(CallRefused, match="code 16: no"):
            await groups.summaries(it.admin)
        with pytest.raises(CallRefused, match="code 16: no"):
            await groups.list_names(it.admin)
        with pytest.raises(CallRefused, match="code 16: no"):  # not: unknown to every broker
            await groups.show(it.admin, "billing")


@in_virtual_time
async def test_a_user_who_may_look_at_one_group_alone_sees_it(
    open_cluster: OpenCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_cluster() as it:
        await topics.create(it.admin, "orders", TopicSettings(read_queues=1, write_queues=1))
        await groups.create(it.admin, "billing", {})
        call = UpdateOffset(consumer_group="billing", topic="orders", queue_id=0, commit_offset=0)
        await it.admin.ask(it.running.broker_addrs[0], call)
        refuse(monkeypatch, NO, GetGroups)
        found = await groups.show(it.admin, "billing")
        assert (found.members, found.lag, len(found.queues)) == ([], 0, 1)
        assert found.problems == [
            f"{broker} does not tell whether the group is disabled there: code 16: no"
            for broker in ("broker-a", "broker-b")
        ]


@in_virtual_time
async def test_what_no_broker_tells_is_not_known(
    open_cluster: OpenCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_cluster() as it:
        await groups.create(it.admin, "billing", {})
        refuse(monkeypatch, CallTimeout("no reply"), GetConnections, GetConsumeStats)
        found = await groups.show(it.admin, "billing")
        assert (found.members, found.member_count, found.lag) == (None, None, None)
        lines = [
            f"{broker} does not answer: its part is missing here (no reply)"
            for broker in ("broker-a", "broker-b")
        ]
        assert found.problems == lines
        (one,) = await groups.summaries(it.admin)
        assert (one.members, one.lag, one.faults) == (None, None, lines)


@in_virtual_time
async def test_settings_that_cannot_be_read_are_not_replaced_by_defaults(
    open_cluster: OpenCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_cluster() as it:
        await groups.create(it.admin, "billing", {"retry_max_times": 3})
        refuse(monkeypatch, NO, GetGroup)
        with pytest.raises(CallRefused, match="code 16: no"):
            await groups.create(it.admin, "billing", {"consume_enable": False})
