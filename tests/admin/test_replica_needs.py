"""Logs that messages need, by the settings of a broker."""

import pytest
from tests.admin.elected_group import operate
from tests.conversation.failover_group import group

from roquet.admin.replica_needs import GroupNeeds, group_needs, needed_logs
from roquet.model.errors import RoquetError
from roquet.testing.clock import in_virtual_time

ELECTED = {"enableControllerMode": "true", "controllerAddr": "c:1"}


@pytest.mark.parametrize(
    ("settings", "needed"),
    [
        ({}, 1),
        ({"brokerRole": "ASYNC_MASTER", "inSyncReplicas": "2"}, 1),
        ({"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "minInSyncReplicas": "3"}, 2),
        ({**ELECTED, "minInSyncReplicas": "2", "inSyncReplicas": "1"}, 2),
        ({**ELECTED, "minInSyncReplicas": "2", "inSyncReplicas": "3"}, 3),
        (
            {
                **ELECTED,
                "minInSyncReplicas": "2",
                "inSyncReplicas": "3",
                "allAckInSyncStateSet": "true",
            },
            2,
        ),
    ],
)
def test_settings_say_how_many_logs_a_message_needs(settings: dict[str, str], needed: int) -> None:
    assert needed_logs(settings) == needed


def test_a_number_that_is_none_is_named() -> None:
    with pytest.raises(RoquetError, match="inSyncReplicas='two' is no number"):
        needed_logs({"brokerRole": "SYNC_MASTER", "inSyncReplicas": "two"})


@in_virtual_time
async def test_a_controller_says_who_the_members_are() -> None:
    async with group(2, min_in_sync_replicas=2) as running:
        await running.settled(2)

        async def of(settings: dict[str, str] | None) -> GroupNeeds:
            return await operate(running, lambda admin: group_needs(admin, "g", settings))

        assert await of(None) == GroupNeeds()
        assert await of({}) == GroupNeeds(logs=1)
        known = await of({**ELECTED, "controllerAddr": "10.0.2.1:9878", "minInSyncReplicas": "2"})
        assert (known.logs, known.controller_fault) == (2, None)
        assert [one.broker_id for one in known.members] == [1, 2]
        await running.kill_controller()
        lost = await of({**ELECTED, "controllerAddr": "10.0.2.1:9878"})
        assert (lost.logs, lost.members) == (1, ())
        assert (lost.controller_fault or "").startswith("no controller leads: 10.0.2.1:9878: ")
