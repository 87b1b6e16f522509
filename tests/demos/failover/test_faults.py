from typing import Any

import pytest
from tests.harness.test_faults import RecordingCluster

from demos.failover.faults import ALL_FAULTS, FREEZE, KILL, PART, FaultAction


class RecordingGroup(RecordingCluster):
    """A cluster with one controller."""

    controllers = ("controller-1",)


@pytest.mark.parametrize(
    ("action", "calls"),
    [
        (KILL, ["kill broker-1", "start broker-1"]),
        (FREEZE, ["freeze broker-1", "thaw broker-1"]),
        (PART, ["cut broker-1 from broker-2 broker-3 controller-1: BOTH", "heal"]),
    ],
    ids=lambda value: value.name if isinstance(value, FaultAction) else "",
)
async def test_each_fault_is_mended_by_its_opposite(action: FaultAction, calls: list[str]) -> None:
    cluster: Any = RecordingGroup()
    fault = action.fault(cluster, "broker-1")
    await fault.begin()
    await fault.end()
    assert cluster.calls == calls


def test_a_master_is_killed_then_frozen_then_parted() -> None:
    assert [action.name for action in ALL_FAULTS] == ["killed", "frozen", "parted"]
