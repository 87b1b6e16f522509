from unittest.mock import AsyncMock

import pytest
from tests.admin.conftest import OpenCluster

from roquet.admin import brokers
from roquet.model.errors import UsageError
from roquet.testing.clock import in_virtual_time


@in_virtual_time
async def test_every_broker_reports_its_status(open_cluster: OpenCluster) -> None:
    async with open_cluster() as it:
        found = await brokers.statuses(it.admin)
        assert [(one.broker, one.broker_id, one.fault) for one in found] == [
            ("broker-a", 0, None),
            ("broker-b", 0, None),
        ]
        assert all(one.version.startswith("V5") for one in found)
        assert found[0].puts_per_s.split()[0].replace(".", "").isdigit()


@in_virtual_time
async def test_a_broker_that_does_not_answer_is_shown_with_the_reason(
    open_cluster: OpenCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_cluster() as it:
        info = await it.admin.cluster()
        await it.running.stop_broker(1)
        monkeypatch.setattr(it.admin, "cluster", AsyncMock(return_value=info))
        first, second = await brokers.statuses(it.admin)
        assert first.fault is None
        assert second.fault
        assert second.version == "?"


@in_virtual_time
async def test_a_setting_is_changed_while_the_broker_runs(open_cluster: OpenCluster) -> None:
    async with open_cluster() as it:
        before = await brokers.settings(it.admin, "broker-a")
        assert before["brokerName"] == "broker-a"
        await brokers.configure(it.admin, "broker-a", {"autoCreateTopicEnable": "true"})
        after = await brokers.settings(it.admin, "broker-a")
        assert (before["autoCreateTopicEnable"], after["autoCreateTopicEnable"]) == (
            "false",
            "true",
        )


@in_virtual_time
async def test_a_wrong_setting_changes_nothing(open_cluster: OpenCluster) -> None:
    async with open_cluster() as it:
        with pytest.raises(UsageError, match="broker-a does not take that: "):
            await brokers.configure(
                it.admin, "broker-a", {"autoCreateTopicEnable": "true", "maxMessageSize": "huge"}
            )
        assert (await brokers.settings(it.admin, "broker-a"))["autoCreateTopicEnable"] == "false"
        with pytest.raises(UsageError, match="there is no broker 'broker-x'"):
            await brokers.settings(it.admin, "broker-x")


@in_virtual_time
async def test_a_replica_is_named_by_its_id(open_cluster: OpenCluster) -> None:
    async with open_cluster() as it:
        first, second = it.running.broker_addrs
        async with await it.add_replica("broker-a", second), await it.add_replica("z", first):
            found = await brokers.statuses(it.admin)
            assert [(one.broker, one.broker_id, one.address) for one in found] == [
                ("broker-a", 0, first),
                ("broker-a", 1, second),
                ("broker-b", 0, second),
                ("z", 1, first),
            ]
            for name, expected in {
                "broker-a": "broker-a",
                "broker-a#0": "broker-a",
                "broker-a#1": "broker-b",
                "z#1": "broker-a",
            }.items():
                settings = await brokers.settings(it.admin, name)
                assert settings["brokerName"] == expected
            with pytest.raises(UsageError, match="the master of 'z' is away; its replicas are z#1"):
                await brokers.settings(it.admin, "z")
            with pytest.raises(UsageError, match="there is no broker 'broker-a#7'"):
                await brokers.settings(it.admin, "broker-a#7")
