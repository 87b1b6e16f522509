import asyncio
from pathlib import Path

import pytest

from roquet.cli.demo import event_log
from roquet.cli.demo.consumer_group import ConsumerProcesses
from roquet.cli.demo.member import MemberSettings
from roquet.cli.process.child_processes import ChildProcessFailed
from roquet.client.producer import Producer
from roquet.model.message import Message
from roquet.net.clock import SYSTEM_CLOCK
from roquet.testing.cluster import cluster

SOURCE = Path(__file__).parents[3] / "src"


@pytest.fixture(autouse=True)
def _members_find_us(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(SOURCE))


def group(namesrv: str, directory: Path) -> ConsumerProcesses:
    started_ms = SYSTEM_CLOCK.now_ms()
    settings = MemberSettings(namesrv=namesrv, group="watchers", book="", started_ms=started_ms)
    return ConsumerProcesses(directory, settings, queues=4)


async def handled(group: ConsumerProcesses, count: int) -> int:
    for _ in range(400):
        if event_log.distinct_handled(group.books().values()) == count:
            break
        await asyncio.sleep(0.05)
    return event_log.distinct_handled(group.books().values())


async def test_members_share_the_queues_and_survive_a_killed_one(tmp_path: Path) -> None:
    async with cluster(brokers=1) as running, Producer(running.namesrv_addr) as producer:
        await producer.send_many(
            Message("flights", b"x", properties={"row": str(row)}) for row in range(50)
        )
        members = group(running.namesrv_addr, tmp_path)
        await asyncio.gather(members.join("one"), members.join("two"))
        await members.settled()
        assert sorted(len(queues) for queues in members.owners().values()) == [2, 2]
        await members.kill("one")
        await members.settled()
        assert len(members.owners()["two"]) == 4
        await producer.send_many(
            Message("flights", b"x", properties={"row": str(row)}) for row in range(50, 100)
        )
        assert await handled(members, 100) == 100
        assert members.notes() == sum(len(notes) for notes in members.books().values()) >= 100
        await members.stop()
    assert members.ends_ms.keys() == {"one", "two"}
    *_, everything, nothing = members.owned["two"]
    assert everything.queues == tuple(f"broker-a:{n}" for n in range(4))
    assert nothing.queues == ()  # it left in good order


async def test_a_member_that_dies_by_itself_is_a_failure(tmp_path: Path) -> None:
    members = group("not an address", tmp_path)
    await members.join("one")
    with pytest.raises(ChildProcessFailed, match="one ended with code 1"):
        await members.settled()
    assert members.owners() == {"one": ()}
