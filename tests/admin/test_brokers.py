from unittest.mock import AsyncMock

import pytest
from tests.admin.conftest import ClusterWithAdmin

from roquet.admin import brokers
from roquet.model.errors import UsageError

pytestmark = pytest.mark.virtual_time


async def test_every_broker_reports_its_status(cluster: ClusterWithAdmin) -> None:
    found = await brokers.statuses(cluster.admin)
    assert [(one.broker, one.broker_id, one.fault) for one in found] == [
        ("broker-a", 0, None),
        ("broker-b", 0, None),
    ]
    assert all(one.version.startswith("V5") for one in found)
    assert found[0].puts_per_s.split()[0].replace(".", "").isdigit()


async def test_a_broker_that_does_not_answer_is_shown_with_the_reason(
    cluster: ClusterWithAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = await cluster.admin.cluster()
    await cluster.running.stop_broker(1)
    monkeypatch.setattr(cluster.admin, "cluster", AsyncMock(return_value=info))
    first, second = await brokers.statuses(cluster.admin)
    assert first.fault is None
    assert second.fault
    assert second.version == "?"


async def test_a_setting_is_changed_while_the_broker_runs(cluster: ClusterWithAdmin) -> None:
    before = await brokers.settings(cluster.admin, "broker-a")
    assert before["brokerName"] == "broker-a"
    await brokers.configure(cluster.admin, "broker-a", {"autoCreateTopicEnable": "true"})
    after = await brokers.settings(cluster.admin, "broker-a")
    assert (before["autoCreateTopicEnable"], after["autoCreateTopicEnable"]) == ("false", "true")


async def test_a_wrong_setting_changes_nothing(cluster: ClusterWithAdmin) -> None:
    with pytest.raises(UsageError, match="broker-a does not take that: "):
        await brokers.configure(
            cluster.admin, "broker-a", {"autoCreateTopicEnable": "true", "maxMessageSize": "huge"}
        )
    assert (await brokers.settings(cluster.admin, "broker-a"))["autoCreateTopicEnable"] == "false"
    with pytest.raises(UsageError, match="there is no broker 'broker-x'"):
        await brokers.settings(cluster.admin, "broker-x")


async def test_a_replica_is_named_by_its_id(cluster: ClusterWithAdmin) -> None:
    first, second = cluster.running.broker_addrs
    async with await cluster.add_replica("broker-a", second), await cluster.add_replica("z", first):
        found = await brokers.statuses(cluster.admin)
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
            settings = await brokers.settings(cluster.admin, name)
            assert settings["brokerName"] == expected
        with pytest.raises(UsageError, match="the master of 'z' is away; its replicas are z#1"):
            await brokers.settings(cluster.admin, "z")
        with pytest.raises(UsageError, match="there is no broker 'broker-a#7'"):
            await brokers.settings(cluster.admin, "broker-a#7")
