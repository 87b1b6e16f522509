"""What SEND_OK survives, cell by cell of the table in docs/topics/promises.md.

As few brokers have the message as were needed to acknowledge it: the others are cut off before.
"""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.conversation.failover_group import Group
from tests.conversation.failover_group import group as controlled_group
from tests.conversation.promise_table import ALL, Loss, Mode, PromiseRow, page_lines, rows
from tests.conversation.promised_logs import (
    BODY,
    LAYOUT,
    NEVER_MS,
    TOPIC,
    has_message,
    log_of,
    survives_power_loss,
)
from tests.store.conftest import PowerLossFiles

from roquet.broker.app import BrokerServer
from roquet.broker.settings.config import BrokerConfig
from roquet.net.channel import Channel
from roquet.rules.replication.acknowledgement import BrokerRole
from roquet.testing.clock import this_loop
from roquet.testing.cluster import SMALL_BROKER
from roquet.wire.calls.admin.topic import CreateTopic
from roquet.wire.calls.send import Send
from roquet.wire.codes import ResponseCode

PAGE = Path(__file__).parents[2] / "docs" / "topics" / "promises.md"

HOSTS = ("10.0.0.1", "10.0.0.2", "10.0.0.3")

ROLES = {Mode.ASYNC_MASTER: BrokerRole.ASYNC_MASTER, Mode.SYNC_MASTER: BrokerRole.SYNC_MASTER}

Image = PowerLossFiles
"""The log of one broker at the moment of the answer."""


def cases(*modes: Mode) -> list[Any]:
    """The rows of some modes, each with one number of logs."""
    return [
        pytest.param(row, logs, id=f"{row.mode.strip('`')}-{logs or 'set'}-{row.cells[2]}")
        for row in rows()
        if row.mode in modes
        for logs in row.logs
    ]


def survivors(images: list[Image]) -> dict[Loss, Callable[[], bool]]:
    """Whether any log that is left has the message, for each loss."""
    master, first, second = images

    def has(image: Image) -> bool:
        return has_message(image.copy())

    return {
        Loss.PROCESS: lambda: has(master),
        Loss.MACHINE: lambda: survives_power_loss(master) or has(first) or has(second),
        Loss.DISK: lambda: has(first) or has(second),
        Loss.TWO: lambda: has(second),
        Loss.POWER: lambda: any(map(survives_power_loss, images)),
    }


def server(files: Image, number: int, **settings: Any) -> BrokerServer:
    host = HOSTS[number]
    given = {**SMALL_BROKER, **LAYOUT, "broker_name": "b", "flush_interval": NEVER_MS, "port": 9}
    given |= {"host": host, "advertise": host, **settings}
    return BrokerServer(BrokerConfig(**given), this_loop().clock, files=files, rng=Random(1))


async def acknowledged(row: PromiseRow, logs: int) -> list[Image]:
    """Logs of a master and two replicas at the moment of the answer."""
    clock, network = this_loop().clock, this_loop().network
    disks = [Image() for _ in HOSTS]
    settings = {"sync_flush": row.sync_flush, "in_sync_replicas": logs, "ha_port": 10}
    with network.host(HOSTS[0]):
        await server(disks[0], 0, broker_role=ROLES[row.mode], **settings).__aenter__()
        channel = await Channel.connect(HOSTS[0], 9, clock=clock)
    follow = {"broker_role": BrokerRole.SLAVE, "ha_master": f"{HOSTS[0]}:10"}
    for number in (1, 2):
        with network.host(HOSTS[number]):
            await server(disks[number], number, broker_id=number, **follow).__aenter__()
    topic = CreateTopic(topic=TOPIC, read_queue_nums=1, write_queue_nums=1, perm=6)
    await channel.call(topic)
    await clock.sleep(6_000)
    needed = 1 if row.mode is Mode.ASYNC_MASTER else logs
    for host in HOSTS[needed:]:
        network.partition(HOSTS[0], host)
    call = Send(producer_group="pg", topic=TOPIC, queue_id=0, born_timestamp=1, body=BODY)
    assert (await channel.call(call, 5_000)).code == ResponseCode.SUCCESS
    return [log_of(disk) for disk in disks]


@pytest.mark.parametrize(("row", "logs"), cases(Mode.ASYNC_MASTER, Mode.SYNC_MASTER))
async def test_with_fixed_roles_a_message_survives_what_the_table_says(
    row: PromiseRow, logs: int
) -> None:
    images: list[Image] = []

    images.extend(await acknowledged(row, logs))
    found = {loss for loss, has_survived in survivors(images).items() if has_survived()}
    assert found == row.kept


# -- with a controller ----------------------------------------------------------------------------


async def led(row: PromiseRow, logs: int) -> tuple[Group, list[Image]]:
    """A group of an elected master, and the logs of its brokers at the moment of the answer."""
    needed = logs or 3
    settings = {
        **LAYOUT,
        "flush_interval": NEVER_MS,
        "sync_flush": row.sync_flush,
        "all_ack_in_sync_set": logs == ALL,
        "in_sync_replicas": max(logs, 1),
    }
    running = Group(**settings)
    disks = {number: PowerLossFiles() for number in (1, 2, 3)}
    running.files.update(disks)
    async with controlled_group(running=running):
        assert await running.settled(3) == 1
        await running.send_on(["first"])
        await running.loop.clock.sleep(2_000)
        for number in range(needed + 1, 4):
            running.network.partition(running.host(1), running.host(number))
        assert (await running.send(BODY.decode(), 1)).code == ResponseCode.SUCCESS
        return running, [log_of(disk) for disk in disks.values()]


async def kill(running: Group, *numbers: int) -> None:
    """Kill some brokers; the others reach each other again, and what was under way is lost."""
    for number in (2, 3):
        running.network.drop(running.host(1), running.host(number))
    for number in numbers:
        await running.kill(number)
    running.network.heal()


async def process_killed(running: Group) -> None:
    """The process is back after another broker has been elected, which takes seconds at most."""
    await kill(running, 1)
    await running.until(lambda: running.master() in (2, 3))
    await running.start_broker(1)


async def machine_lost(running: Group) -> None:
    await kill(running, 1)
    await running.until(lambda: running.master() in (2, 3))
    files = running.files[1]
    assert isinstance(files, PowerLossFiles)
    running.files[1] = files.after_power_loss(Random(1))
    running.boot_ids[1] = "second"
    await running.start_broker(1)


async def disk_gone(running: Group) -> None:
    await kill(running, 1)


async def two_disks_gone(running: Group) -> None:
    await kill(running, 1, 2)


LOSSES = {
    Loss.PROCESS: process_killed,
    Loss.MACHINE: machine_lost,
    Loss.DISK: disk_gone,
    Loss.TWO: two_disks_gone,
}
"""What happens to the running group; after a loss of all power an operator chooses a log."""


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name.lower())
@pytest.mark.parametrize(("row", "logs"), cases(Mode.CONTROLLER))
async def test_with_a_controller_the_next_master_has_what_the_table_says(
    row: PromiseRow, logs: int, loss: Loss
) -> None:
    running, _ = await led(row, logs)
    await LOSSES[loss](running)
    if loss is Loss.TWO and logs == 2:  # the last one cannot know whether it has everything
        await running.elect(3, unclean=True)
    await running.until(lambda: running.master())
    number = running.master()
    assert number is not None
    assert (BODY.decode() in running.stored(number)) is (loss in row.kept)


@pytest.mark.parametrize(("row", "logs"), cases(Mode.CONTROLLER))
async def test_with_a_controller_a_log_has_it_after_a_loss_of_all_power_as_the_table_says(
    row: PromiseRow, logs: int
) -> None:
    images: list[Image] = []

    images.extend((await led(row, logs))[1])
    assert any(map(survives_power_loss, images)) is (Loss.POWER in row.kept)


# -- the page -------------------------------------------------------------------------------------


def test_the_page_has_the_table_that_is_tested() -> None:
    lines = PAGE.read_text("utf-8").splitlines()
    assert [line for line in lines if line.startswith("| ")] == page_lines()
