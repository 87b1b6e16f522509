import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from tests.broker.conftest import background

from roquet.broker.replication.role import Role, RoleCell
from roquet.broker.services.registration import (
    PAUSE_MS,
    REGISTERED_WAIT_MS,
    BrokerAddresses,
    NameServerRegistration,
    RegistrationTrigger,
)
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.model.topic import DataVersion, TopicConfig, TopicTable
from roquet.net.clock import SYSTEM_CLOCK, Clock
from roquet.net.router import Peer, Router
from roquet.net.server import Server
from roquet.rules.replication.acknowledgement import BrokerRole
from roquet.testing.clock import in_virtual_time, this_loop
from roquet.wire import registration
from roquet.wire.calls.route import RegisterBroker, RegisterBrokerReply, UnregisterBroker

ADDRESSES = BrokerAddresses(broker="10.0.0.5:10911", stream="10.0.0.5:10912")

TABLE = TopicTable(
    topic_config_table={"orders": TopicConfig(topic_name="orders")},
    data_version=DataVersion(counter=5),
)


class NameServer:
    """Remembers who registers."""

    def __init__(self, address: str = "127.0.0.1:0") -> None:
        self.registered: list[RegisterBroker] = []
        self.unregistered: list[UnregisterBroker] = []
        self._news = asyncio.Event()
        self.reply = RegisterBrokerReply()
        self.router = Router()
        self.router.add(RegisterBroker, self._register)
        self.router.add(UnregisterBroker, self._unregister)
        host, _, port = address.rpartition(":")
        self.server = Server(self.router, host=host, port=int(port))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    async def told(self, times: int) -> None:
        """Wait until it was told so many times."""
        async with asyncio.timeout(5):
            while len(self.registered) < times:
                await self._news.wait()
                self._news.clear()

    def _register(self, call: RegisterBroker, _peer: Peer) -> RegisterBrokerReply:
        self.registered.append(call)
        self._news.set()
        return self.reply

    def _unregister(self, call: UnregisterBroker, _peer: Peer) -> None:
        self.unregistered.append(call)


@pytest.fixture
async def name_servers() -> AsyncIterator[list[NameServer]]:
    servers = [NameServer(), NameServer()]
    for server in servers:
        await server.server.start()
    yield servers
    for server in servers:
        await server.server.stop()


def registration_at(
    *addresses: str,
    news: RegistrationTrigger | None = None,
    settings: RuntimeSettings | None = None,
    role: RoleCell | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> NameServerRegistration:
    config = BrokerConfig(broker_name="b", cluster_name="c", name_servers=addresses)
    return NameServerRegistration(
        settings or RuntimeSettings(config),
        clock,
        ADDRESSES,
        lambda: TABLE,
        news or RegistrationTrigger(),
        role or RoleCell(Role()),
    )


@asynccontextmanager
async def serving(ours: NameServerRegistration) -> AsyncIterator[None]:
    """A registration that serves, and unregisters at the end."""
    async with background(ours.serve()):
        yield
    await ours.unregister()


async def test_every_name_server_gets_all_topics(name_servers: list[NameServer]) -> None:
    ours = registration_at(*(server.address for server in name_servers))
    await ours.step()
    for server in name_servers:
        (call,) = server.registered
        body = registration.decode(call.body, compressed=call.compressed)
        assert (call.broker_name, call.cluster_name, call.broker_id) == ("b", "c", 0)
        assert (call.broker_addr, call.ha_server_addr) == ("10.0.0.5:10911", "10.0.0.5:10912")
        assert call.body_crc32 == registration.checksum(call.body)
        assert body.topic_config_serialize_wrapper.topic_config_table == TABLE.topic_config_table
        assert body.topic_config_serialize_wrapper.data_version == TABLE.data_version
    await ours.unregister()


async def test_changes_are_registered_at_once_and_a_burst_only_once(
    name_servers: list[NameServer],
) -> None:
    server, news = name_servers[0], RegistrationTrigger()
    ours = registration_at(server.address, news=news)
    async with serving(ours):
        for _ in range(100):
            news.request()
        await server.told(1)
        await asyncio.sleep(0.05)
        assert len(server.registered) == 1


async def test_a_change_returns_once_it_is_registered(name_servers: list[NameServer]) -> None:
    news = RegistrationTrigger()
    ours = registration_at(*(server.address for server in name_servers), news=news)
    async with serving(ours):
        for times in range(1, 4):
            news.request()
            await news.wait_registered()
            assert [len(server.registered) for server in name_servers] == [times, times]
        await news.wait_registered()
        assert len(name_servers[0].registered) == 3, "there was nothing new"


@in_virtual_time
async def test_a_change_does_not_wait_long_for_an_unreachable_name_server() -> None:
    clock, news = this_loop().clock, RegistrationTrigger()
    config = BrokerConfig(name_servers=("127.0.0.1:9",))
    settings = RuntimeSettings(config)
    ours = registration_at(settings=settings, clock=clock, news=news)
    news.request()
    await news.wait_registered()
    assert clock.monotonic_ms() == REGISTERED_WAIT_MS, "nobody tells anything as yet"
    async with serving(ours):
        await asyncio.sleep(10)
        began_ms = clock.monotonic_ms()
        for _ in range(10):
            news.request()
            await news.wait_registered()
        assert clock.monotonic_ms() - began_ms <= 10 * PAUSE_MS


async def test_a_change_does_not_wait_without_a_registration_loop() -> None:
    news = RegistrationTrigger()
    news.request()
    async with asyncio.timeout(0.5):
        await news.wait_registered()


async def test_a_name_server_that_is_away_is_named_once_and_when_it_returns(
    name_servers: list[NameServer], caplog: pytest.LogCaptureFixture
) -> None:
    here, away = name_servers
    address = away.address
    await away.server.stop()
    ours = registration_at(here.address, address)
    with caplog.at_level(logging.INFO, "roquet.broker.services.registration"):
        await ours.step()
        serving = asyncio.create_task(ours.serve())
        await asyncio.sleep(0.05)
        assert [r.levelname for r in caplog.records] == ["WARNING"]
        assert address in caplog.text
        back = NameServer(address)
        async with back.server:
            await back.told(1)
            for _ in range(100):
                if len(caplog.records) > 1:
                    break
                await asyncio.sleep(0.05)
            serving.cancel()
            assert caplog.records[-1].getMessage() == f"name server {address} knows of us again"
            await ours.unregister()
    assert len(here.registered) == 1


@in_virtual_time
async def test_a_restarted_name_server_is_registered_with_soon() -> None:
    first, other = NameServer(), NameServer()
    await first.server.start()
    await other.server.start()
    ours = registration_at(first.address, other.address, clock=this_loop().clock)
    await ours.step()
    async with serving(ours):
        for away_s in (0.0, 0.5, 8.0):
            count = len(other.registered)
            await first.server.stop()
            await asyncio.sleep(away_s)
            anew = NameServer(first.address)
            await anew.server.start()
            await asyncio.sleep(4.1)
            assert len(anew.registered) == 1
            assert len(other.registered) <= count + 1, "who is there need not hear it all the time"
            first = anew
    await first.server.stop()
    await other.server.stop()


@in_virtual_time
async def test_a_name_server_that_is_not_named_any_more_is_left_alone() -> None:
    server = NameServer()
    await server.server.start()
    address = server.address
    settings = RuntimeSettings(BrokerConfig(name_servers=(address,)))
    ours = registration_at(settings=settings, clock=this_loop().clock)
    await ours.step()
    async with serving(ours):
        await server.server.stop()
        await asyncio.sleep(5)
        settings.change({"name_servers": ""}, 0)
        await asyncio.sleep(5)
        anew = NameServer(address)
        await anew.server.start()
        await asyncio.sleep(60)
        assert anew.registered == []
    await anew.server.stop()


async def test_a_broker_that_stops_unregisters_and_registers_no_more(
    name_servers: list[NameServer],
) -> None:
    server = name_servers[0]
    ours = registration_at(server.address)
    await ours.step()
    await ours.unregister()
    await ours.step()
    assert len(server.registered) == 1
    assert [call.broker_addr for call in server.unregistered] == ["10.0.0.5:10911"]


async def test_a_broker_without_name_servers_registers_nowhere() -> None:
    ours = registration_at()
    await ours.step()
    await ours.unregister()


async def test_registration_is_repeated_at_intervals(name_servers: list[NameServer]) -> None:
    server = name_servers[0]
    config = BrokerConfig(name_servers=(server.address,), register_interval=20)
    ours = registration_at(settings=RuntimeSettings(config))
    async with serving(ours):
        await server.told(3)


async def test_name_servers_added_to_the_settings_are_registered_with(
    name_servers: list[NameServer],
) -> None:
    first, second = name_servers
    settings, news = RuntimeSettings(BrokerConfig(broker_name="b")), RegistrationTrigger()
    ours = registration_at(news=news, settings=settings)
    settings.change({"name_servers": first.address}, 0)
    async with serving(ours):
        settings.change({"name_servers": second.address}, 0)
        news.request()
        await second.told(1)
        assert first.registered == []


async def test_registered_permissions_are_limited_by_those_of_the_broker(
    name_servers: list[NameServer],
) -> None:
    server = name_servers[0]
    settings = RuntimeSettings(BrokerConfig(name_servers=(server.address,), permission=4))
    ours = registration_at(settings=settings)
    await ours.step()
    (call,) = server.registered
    body = registration.decode(call.body, compressed=call.compressed)
    assert body.topic_config_serialize_wrapper.topic_config_table["orders"].perm == 4
    assert TABLE.topic_config_table["orders"].perm == 6
    await ours.unregister()


REPLICA = Role(role=BrokerRole.SLAVE, broker_id=2)


async def test_a_replica_learns_who_leads_from_the_name_servers(
    name_servers: list[NameServer],
) -> None:
    role = RoleCell(REPLICA)
    ours = registration_at(*(server.address for server in name_servers), role=role)
    await ours.step()
    assert role.current == REPLICA, "none knows a master"
    name_servers[1].reply = RegisterBrokerReply(
        master_addr="10.0.0.4:10911", ha_server_addr="10.0.0.4:10912"
    )
    await ours.step()
    assert (role.current.master, role.current.master_stream) == ("10.0.0.4:10911", "10.0.0.4:10912")
    assert name_servers[0].registered[-1].broker_id == 2
    name_servers[1].reply = RegisterBrokerReply()
    await ours.step()
    assert role.current.master is None, "its tables are copied from nobody now"
    assert role.current.master_stream == "10.0.0.4:10912", "the stream ends by itself"
    await ours.unregister()
    assert name_servers[0].unregistered[-1].broker_id == 2


async def test_an_elected_master_registers_topics_of_a_later_version(
    name_servers: list[NameServer],
) -> None:
    role = RoleCell(Role(role=BrokerRole.SYNC_MASTER, epoch=7))
    ours = registration_at(name_servers[0].address, role=role)
    await ours.step()
    (call,) = name_servers[0].registered
    body = registration.decode(call.body, compressed=call.compressed)
    version = body.topic_config_serialize_wrapper.data_version
    assert version == DataVersion(state_version=7, counter=5)
    await ours.unregister()


async def test_a_fenced_broker_registers_nowhere(name_servers: list[NameServer]) -> None:
    role = RoleCell(Role(role=BrokerRole.SLAVE, broker_id=1, is_fenced=True))
    ours = registration_at(name_servers[0].address, role=role)
    await ours.step()
    assert name_servers[0].registered == []
    role.change(Role(role=BrokerRole.SLAVE, broker_id=1, epoch=3, master="10.0.0.1:10911"))
    await ours.step()
    assert len(name_servers[0].registered) == 1
    await ours.unregister()


async def test_a_fixed_address_of_the_stream_is_kept(name_servers: list[NameServer]) -> None:
    config = BrokerConfig(name_servers=(name_servers[0].address,), ha_master="10.0.0.9:7")
    role = RoleCell(REPLICA)
    ours = registration_at(settings=RuntimeSettings(config), role=role)
    name_servers[0].reply = RegisterBrokerReply(
        master_addr="10.0.0.4:10911", ha_server_addr="10.0.0.4:10912"
    )
    await ours.step()
    assert (role.current.master, role.current.master_stream) == ("10.0.0.4:10911", "10.0.0.9:7")
    await ours.unregister()


async def test_neither_a_master_nor_a_follower_by_election_is_told_whom_to_follow(
    name_servers: list[NameServer],
) -> None:
    name_servers[0].reply = RegisterBrokerReply(master_addr="10.0.0.4:1", ha_server_addr="h:1")
    for role in (Role(), msgspec.structs.replace(REPLICA, epoch=3)):
        cell = RoleCell(role)
        ours = registration_at(name_servers[0].address, role=cell)
        await ours.step()
        assert cell.current == role
        await ours.unregister()


@in_virtual_time
async def test_a_replica_without_a_master_asks_every_5_seconds() -> None:
    server = NameServer()
    await server.server.start()
    role = RoleCell(REPLICA)
    ours = registration_at(server.address, clock=this_loop().clock, role=role)
    async with serving(ours):
        await asyncio.sleep(21)
        assert len(server.registered) == 4
        server.reply = RegisterBrokerReply(master_addr="10.0.0.4:1", ha_server_addr="10.0.0.4:2")
        await asyncio.sleep(60)
        assert len(server.registered) <= 7
    await server.server.stop()


@in_virtual_time
async def test_a_name_server_that_returns_without_knowing_the_master_takes_it_from_no_replica() -> (
    None
):
    first, other, role = NameServer(), NameServer(), RoleCell(REPLICA)
    await first.server.start()
    await other.server.start()
    other.reply = RegisterBrokerReply(master_addr="10.0.0.4:1", ha_server_addr="10.0.0.4:2")
    ours = registration_at(first.address, other.address, clock=this_loop().clock, role=role)
    masters: list[str | None] = []
    role.on_change.append(lambda _, now: masters.append(now.master))
    await ours.step()
    async with serving(ours):
        await first.server.stop()
        await asyncio.sleep(2)
        anew = NameServer(first.address)
        await anew.server.start()
        await asyncio.sleep(4)
        assert len(anew.registered) == 1
        assert masters == ["10.0.0.4:1"]
    await anew.server.stop()
    await other.server.stop()


@in_virtual_time
async def test_a_new_master_is_registered_as_soon_as_its_queues_are_built() -> None:
    server, news, role = NameServer(), RegistrationTrigger(), RoleCell(REPLICA)
    await server.server.start()
    clock = this_loop().clock
    ours = registration_at(server.address, clock=clock, news=news, role=role)
    await ours.step()
    async with serving(ours):
        await asyncio.sleep(1)
        role.change(Role())
        news.request()
        await asyncio.sleep(1)
        assert [call.broker_id for call in server.registered] == [2]
        before_ms = clock.monotonic_ms()
        for _ in range(3):
            news.request()
            await asyncio.sleep(0)
        role.note_taken_over()
        news.request()
        await news.wait_registered()
        assert [call.broker_id for call in server.registered] == [2, 0]
        assert clock.monotonic_ms() == before_ms, "no pause for what nobody was told"
    await server.server.stop()
