"""Tables of a master and its replica, one of them Apache RocketMQ 5.5.0."""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import genuine
from harness.ports import free_port
from harness.processes import Process
from roquet.broker.app import BrokerServer
from roquet.broker.operations.metadata_copy import WHOLE_MS
from roquet.broker.replication import master_tables
from roquet.broker.replication.master_tables import MasterTables
from roquet.broker.replication.role import Role
from roquet.broker.settings.config import BrokerConfig
from roquet.model.errors import CallError
from roquet.model.topic import SubscriptionGroup
from roquet.namesrv.app import NameServer
from roquet.namesrv.config import NameServerConfig
from roquet.net.pool import ChannelPool
from roquet.rules.replication.acknowledgement import BrokerRole
from roquet.wire.calls.admin.topic import CreateGroup, CreateTopic, DeleteTopic
from roquet.wire.calls.bodies import RequestMode
from roquet.wire.calls.offset import UpdateOffset
from roquet.wire.calls.replication import ExchangeHaInfo
from roquet.wire.fastjson import codec

pytestmark = pytest.mark.interop

COPY_SECONDS_MAX = 60
"""Apache's replica copies ten seconds after its start for the first time."""


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(COPY_SECONDS_MAX):
        while not is_so():  # noqa: ASYNC110 - it calls nobody back
            await asyncio.sleep(0.1)


async def fill(pool: ChannelPool, master: str) -> None:
    for number in range(25):
        call = CreateTopic(topic=f"t{number}", read_queue_nums=3, write_queue_nums=3, perm=6)
        await pool.call(master, call, 10_000)
    group = SubscriptionGroup(group_name="g", retry_max_times=3)
    await pool.call(master, CreateGroup(body=codec.dumps(group)), 10_000)
    progress = UpdateOffset(consumer_group="g", topic="t0", queue_id=1, commit_offset=77)
    await pool.call(master, progress, 10_000)


def test_our_replica_copies_the_tables_of_apaches_master(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(master_tables, "PAGE_ROWS", 10)

    async def check(master: str) -> None:
        config = BrokerConfig(host="127.0.0.1", port=0, broker_name="genuine-a")
        async with ChannelPool() as pool, BrokerServer(config) as replica:
            await fill(pool, master)
            stream = (await pool.call(master, ExchangeHaInfo(), 10_000)).master_ha_address
            role = Role(role=BrokerRole.SLAVE, broker_id=1, master=master, master_stream=stream)
            replica.broker.replication.role.change(role)
            tables = replica.broker.tables
            await until(lambda: tables.offsets.get("g", "t0", 1) == 77)
            await until(lambda: tables.groups.get("g") is not None)
            assert {f"t{number}" for number in range(25)} <= {t.topic_name for t in tables.topics}
            group = tables.groups.get("g")
            assert group is not None
            assert group.retry_max_times == 3
            await pool.call(master, DeleteTopic(topic="t1"), 10_000)
            await asyncio.sleep(WHOLE_MS / 1000)
            await until(lambda: tables.topics.get("t1") is None)

    with genuine.cluster(tmp_path) as running:
        asyncio.run(check(running.broker))


def test_apaches_replica_copies_the_tables_of_our_master(tmp_path: Path) -> None:
    asyncio.run(_apaches_replica(tmp_path))


async def _apaches_replica(folder: Path) -> None:
    name_server = NameServer(NameServerConfig(host="127.0.0.1", port=0))
    async with name_server, ChannelPool() as pool:
        servers = (f"127.0.0.1:{name_server.port}",)
        config = BrokerConfig(
            host="127.0.0.1", port=free_port(), advertise="127.0.0.1", name_servers=servers
        )
        async with BrokerServer(config) as master:
            await fill(pool, master.address)
            tables = master.broker.tables
            tables.offsets.copy({"t0@g": {1: 77}}, None)
            mode = RequestMode(topic="t0", consumer_group="g", mode="POP", pop_share_queue_num=2)
            tables.request_modes.put(mode)
            port, log = free_port(), folder / "broker.log"
            (folder / "broker.conf").write_text(
                f"brokerClusterName=DefaultCluster\nbrokerName={config.broker_name}\nbrokerId=1\n"
                f"brokerRole=SLAVE\nbrokerIP1=127.0.0.1\nlistenPort={port}\n"
                f"haListenPort={free_port()}\nnamesrvAddr={servers[0]}\n"
                f"storePathRootDir={folder}/store\nstorePathCommitLog={folder}/store/commitlog\n"
            )
            command = genuine.java(
                "broker.BrokerStartup", "-c", str(folder / "broker.conf"), heap="1g"
            )
            child = Process(command, log, ready="boot success", home=folder / "home")
            with contextlib.ExitStack() as stack:
                stack.callback(child.stop)
                await asyncio.to_thread(child.start)
                replica = MasterTables(pool, f"127.0.0.1:{port}")
                assert (await replica.identity()).broker_id == 1
                await _copied(replica)
                topics = (await replica.topics(0)).configs
                assert topics["t3"] == tables.topics.get("t3")
                groups = (await replica.groups()).subscription_group_table
                assert groups["g"].retry_max_times == 3
                modes = (await replica.request_modes()).message_request_mode_map
                assert modes == {"t0": {"g": mode}}


async def _copied(replica: MasterTables) -> None:
    """Return once the last of the tables is there."""
    async with asyncio.timeout(COPY_SECONDS_MAX):
        while True:
            try:
                if (await replica.request_modes()).message_request_mode_map:
                    return
            except CallError:
                pass
            await asyncio.sleep(1)
