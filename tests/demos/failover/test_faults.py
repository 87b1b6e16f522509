from typing import Any

import pytest

from demos.failover.faults import ALL_FAULTS, FREEZE, KILL, PART, FaultAction


class RecordingBrokers:
    """Records what is done to which broker."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._name = ""

    def process(self, name: str) -> "RecordingBrokers":
        self._name = name
        return self

    def freeze(self) -> None:
        self.calls.append(f"freeze {self._name}")

    def thaw(self) -> None:
        self.calls.append(f"thaw {self._name}")

    async def kill(self, name: str) -> None:
        self.calls.append(f"kill {name}")

    async def start(self, name: str) -> None:
        self.calls.append(f"start {name}")

    def part(self, name: str) -> None:
        self.calls.append(f"part {name}")

    def heal(self, name: str) -> None:
        self.calls.append(f"heal {name}")


@pytest.mark.parametrize(
    ("action", "calls"),
    [
        (KILL, ["kill a", "start a"]),
        (FREEZE, ["freeze a", "thaw a"]),
        (PART, ["part a", "heal a"]),
    ],
    ids=lambda value: value.name if isinstance(value, FaultAction) else "",
)
async def test_each_fault_is_mended_by_its_opposite(action: FaultAction, calls: list[str]) -> None:
    brokers: Any = RecordingBrokers()
    await action.cause(brokers, "a")
    await action.mend(brokers, "a")
    assert brokers.calls == calls


def test_a_master_is_killed_then_frozen_then_parted() -> None:
    assert [action.name for action in ALL_FAULTS] == ["killed", "frozen", "parted"]
