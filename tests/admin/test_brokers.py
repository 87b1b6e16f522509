from typing import Any

import pytest

from roquet.admin import brokers
from roquet.model.errors import CallRefused, UsageError
from roquet.testing.clock import in_virtual_time


@in_virtual_time
async def test_every_broker_tells_how_it_does(open_cluster: Any) -> None:
    async with open_cluster() as it:
        found = await brokers.statuses(it.admin)
        assert [(one.broker, one.broker_id, one.fault) for one in found] == [
            ("broker-a", 0, None),
            ("broker-b", 0, None),
        ]
        assert all(one.version.startswith("V5") for one in found)
        assert found[0].puts_per_s.split()[0].replace(".", "").isdigit()


@in_virtual_time
async def test_a_broker_that_is_gone_is_told_with_the_reason(open_cluster: Any) -> None:
    async with open_cluster() as it:
        info = await it.admin.cluster()
        await it.running.stop_broker(1)

        async def stale() -> Any:
            return info

        it.admin.cluster = stale
        first, second = await brokers.statuses(it.admin)
        assert first.fault is None
        assert second.fault
        assert second.version == "?"


@in_virtual_time
async def test_a_setting_is_changed_while_the_broker_runs(open_cluster: Any) -> None:
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
async def test_a_wrong_setting_changes_nothing(open_cluster: Any) -> None:
    async with open_cluster() as it:
        with pytest.raises(CallRefused):
            await brokers.configure(
                it.admin, "broker-a", {"autoCreateTopicEnable": "true", "maxMessageSize": "huge"}
            )
        assert (await brokers.settings(it.admin, "broker-a"))["autoCreateTopicEnable"] == "false"
        with pytest.raises(UsageError, match="there is no broker 'broker-x'"):
            await brokers.settings(it.admin, "broker-x")
