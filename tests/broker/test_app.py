import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.broker.conftest import FakePeer, MakeSend, config_of
from tests.broker.handlers.messages.test_pull import ask

from roquet.broker import app as app_module
from roquet.broker.app import BrokerServer
from roquet.broker.handlers.messages.send import SendHandler
from roquet.model.errors import CallError, ConfigError, StoreError, StoreFull, StoreLocked
from roquet.namesrv.app import NameServer
from roquet.namesrv.config import NameServerConfig
from roquet.net.channel import Channel, Security
from roquet.net.tls import ServerTls, Tls, TlsMode
from roquet.rules import routing
from roquet.rules.replication.acknowledgement import BrokerRole
from roquet.store.filesystem.files import RealFiles
from roquet.wire.calls.offset import MaxOffset, UpdateOffset
from roquet.wire.calls.route import GetRoute
from roquet.wire.calls.send import Send
from roquet.wire.codes import ResponseCode

CERTIFICATES = Path(__file__).parents[1] / "certificates"

REPLICA: dict[str, Any] = {"broker_role": BrokerRole.SLAVE, "broker_id": 1}

SENT = Send(producer_group="pg", topic="orders", queue_id=0, born_timestamp=1, body=b"x")


async def test_stored_messages_are_there_after_a_restart(
    tmp_path: Path, peer: FakePeer, message: MakeSend
) -> None:
    async with BrokerServer(config_of(tmp_path)) as server:
        server.broker.bind(SendHandler.send)(message(b"kept"), peer)
        server.broker.tables.groups.find("billing", 0)
        server.broker.tables.offsets.commit("billing", "orders", 0, 1)
    async with BrokerServer(config_of(tmp_path)) as server:
        broker = server.broker
        assert broker.log.store.bounds("orders", 0) == (0, 1)
        assert broker.tables.topics.get("orders") is not None
        assert broker.tables.groups.get("billing") is not None
        assert broker.tables.offsets.get("billing", "orders", 0) == 1


async def test_progress_is_saved_at_intervals(tmp_path: Path) -> None:
    path = tmp_path / "config" / "consumerOffset.json"
    async with BrokerServer(config_of(tmp_path, save_interval=20)) as server:
        server.broker.tables.offsets.commit("billing", "orders", 0, 1)
        async with asyncio.timeout(5):
            while not path.exists():  # noqa: ASYNC110 - a file cannot call back
                await asyncio.sleep(0.01)


async def test_a_directory_is_held_by_one_broker(tmp_path: Path) -> None:
    async with BrokerServer(config_of(tmp_path)):
        with pytest.raises(StoreLocked, match=str(tmp_path)):
            async with BrokerServer(config_of(tmp_path)):
                pass


async def test_a_port_in_use_is_one_clear_line_and_lets_the_directory_go(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} is in use"):
            await BrokerServer(config_of(tmp_path, port=port)).__aenter__()
    async with BrokerServer(config_of(tmp_path)):
        pass


async def test_a_damaged_table_stops_the_start_and_lets_the_directory_go(tmp_path: Path) -> None:
    path = tmp_path / "config" / "topics.json"
    path.parent.mkdir()
    path.write_text("{", "utf-8")
    with pytest.raises(StoreError, match=r"topics\.json cannot be read"):
        await BrokerServer(config_of(tmp_path)).__aenter__()
    path.unlink()
    async with BrokerServer(config_of(tmp_path)):
        pass


async def test_messages_name_the_port_that_was_found(peer: FakePeer, message: MakeSend) -> None:
    async with BrokerServer(config_of()) as server:
        reply: Any = server.broker.bind(SendHandler.send)(message(), peer)
        assert int(reply.msg_id[8:16], 16) == server.port


async def test_the_advertised_address_is_what_name_servers_and_records_hold(
    peer: FakePeer, message: MakeSend
) -> None:
    async with NameServer(NameServerConfig(host="127.0.0.1", port=0)) as names:
        config = config_of(advertise="10.9.8.7:6543", name_servers=(names.address,))
        async with BrokerServer(config) as server:
            assert server.address == "10.9.8.7:6543"
            reply: Any = server.broker.bind(SendHandler.send)(message(), peer)
            assert reply.msg_id.startswith("0A09080700")
            channel = await Channel.connect("127.0.0.1", names.port)
            route = await channel.call(GetRoute(topic="TBW102"))
            assert b"10.9.8.7:6543" in route.body
            await channel.close()


async def test_name_servers_know_a_broker_as_long_as_it_runs() -> None:
    async with NameServer(NameServerConfig(host="127.0.0.1", port=0)) as names:
        async with BrokerServer(config_of(name_servers=(names.address,))):
            assert [name for name, _ in names.state.brokers.registrations] == ["broker-a"]
        assert not names.state.brokers.registrations


async def test_a_new_topic_is_routed_soon(peer: FakePeer, message: MakeSend) -> None:
    async with NameServer(NameServerConfig(host="127.0.0.1", port=0)) as names:
        config = config_of(name_servers=(names.address,))
        async with BrokerServer(config) as server:
            server.broker.bind(SendHandler.send)(message(), peer)
            channel = await Channel.connect("127.0.0.1", names.port)
            async with asyncio.timeout(5):
                while "orders" not in routing.topics(names.state.brokers.registrations):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert b'"writeQueueNums":4' in (await channel.call(GetRoute(topic="orders"))).body
            await channel.close()


async def test_a_broker_starts_without_its_name_server() -> None:
    async with BrokerServer(config_of(name_servers=("127.0.0.1:1",))) as server:
        assert server.port


async def test_a_stop_answers_held_pulls_and_keeps_late_commits(
    tmp_path: Path, peer: FakePeer, message: MakeSend
) -> None:
    server = BrokerServer(config_of(tmp_path))
    await server.__aenter__()
    server.broker.bind(SendHandler.send)(message(), peer)
    channel = await Channel.connect("127.0.0.1", server.port)
    call = ask(1, sys_flag=6, suspend_timeout_millis=15_000)
    held = asyncio.create_task(channel.call(call, 20_000))
    await channel.call(MaxOffset(topic="orders", queue_id=0))
    update = UpdateOffset(consumer_group="billing", topic="orders", queue_id=0, commit_offset=1)
    await channel.call(update)
    async with asyncio.timeout(5):
        await server.__aexit__(None, None, None)
        assert (await held).code == ResponseCode.PULL_NOT_FOUND
    async with BrokerServer(config_of(tmp_path)) as again:
        assert again.broker.tables.offsets.get("billing", "orders", 0) == 1


async def test_a_disk_that_is_full_at_the_end_does_not_hold_up_the_stop(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise StoreFull("no room")

    async with BrokerServer(config_of(tmp_path)) as server:
        server.broker.tables.offsets.commit("billing", "orders", 0, 1)
        monkeypatch.setattr(RealFiles, "replace", refuse)
    assert "groups will read twice: no room" in caplog.text


async def test_several_brokers_live_in_one_process(peer: FakePeer, message: MakeSend) -> None:
    async with BrokerServer(config_of()) as first, BrokerServer(config_of()) as second:
        first.broker.bind(SendHandler.send)(message(), peer)
        assert second.broker.tables.topics.get("orders") is None
        assert first.port != second.port


async def test_a_broker_with_tls_registers_and_serves_by_it() -> None:
    files = Path(__file__).parents[1] / "certificates"
    pair = {"cert": files / "server.pem", "key": files / "server.key"}
    names = NameServerConfig(
        host="127.0.0.1", port=0, tls=ServerTls(cert=pair["cert"], key=pair["key"])
    )
    async with NameServer(names) as server:
        config = config_of(
            name_servers=(server.address,), advertise="127.0.0.1",
            tls_cert=pair["cert"], tls_key=pair["key"],
            tls_ca=files / "ca.pem", tls_client_ca=files / "ca.pem",
        )  # fmt: skip
        async with BrokerServer(config) as broker:
            tls = Tls(ca=files / "ca.pem", cert=files / "client.pem", key=files / "client.key")
            security = Security(context=tls.context())
            async with await Channel.connect("127.0.0.1", server.port, security=security) as asked:
                assert (await asked.call(GetRoute(topic="TBW102"))).body
            port = broker.port
            async with await Channel.connect("127.0.0.1", port, security=security) as asked:
                assert (await asked.call(MaxOffset(topic="TBW102", queue_id=0))).offset == 0
            with pytest.raises(CallError):
                async with await Channel.connect("127.0.0.1", port) as plain:
                    await plain.call(MaxOffset(topic="TBW102", queue_id=0))


async def test_a_certificate_that_is_not_there_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tls_cert: .* cannot be used: No such file"):
        async with BrokerServer(config_of(tls_cert=tmp_path / "no.pem")):
            pass


async def test_clients_of_old_find_a_port_two_below(peer: FakePeer) -> None:
    port = free_pair()
    async with BrokerServer(config_of(port=port)) as server:
        assert server.port == port
        async with await Channel.connect("127.0.0.1", port - 2) as channel:
            send_call = Send(
                producer_group="pg",
                topic="orders",
                queue_id=0,
                born_timestamp=1_700_000_000_000,
                body=b"by the side door",
            )
            reply = await channel.call(send_call)
            assert reply.msg_id.startswith(f"7F0000010000{port:04X}")
    async with BrokerServer(config_of(port=port, vip_port=False)):
        with pytest.raises(CallError):
            await Channel.connect("127.0.0.1", port - 2)


@pytest.mark.parametrize("asked", [0, 2])
async def test_no_vip_port_is_opened_for_port_zero_or_two(
    asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    monkeypatch.setattr(app_module, "Server", lambda *_, **settings: made.append(settings["also"]))
    with pytest.raises(AttributeError):  # nothing listens
        await BrokerServer(config_of(port=asked)).__aenter__()
    assert made == [None]


async def test_a_broker_whose_vip_port_is_taken_logs_it_and_serves(
    caplog: pytest.LogCaptureFixture,
) -> None:
    port = free_pair()
    async with (
        BrokerServer(config_of(port=port - 2, vip_port=False)),
        BrokerServer(config_of(port=port)) as server,
        await Channel.connect("127.0.0.1", server.port) as channel,
    ):
        assert (await channel.call(MaxOffset(topic="SELF_TEST_TOPIC", queue_id=0))).offset == 0
    assert len([line for line in caplog.messages if f"port {port - 2}" in line]) == 1


def free_pair() -> int:
    """A port that is free, and the one two below."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port - 2))
            except OSError:
                continue
            return port


async def test_the_log_is_streamed_by_tls_where_clients_need_it() -> None:
    settings: dict[str, Any] = {
        "tls_cert": CERTIFICATES / "server.pem", "tls_key": CERTIFICATES / "server.key",
        "tls_ca": CERTIFICATES / "ca.pem", "tls_client_ca": CERTIFICATES / "ca.pem",
    }  # fmt: skip
    async with BrokerServer(config_of(**settings)) as master:
        plain = config_of(**REPLICA, ha_master=master.stream_address)
        secured = config_of(**REPLICA, ha_master=master.stream_address, **settings)
        async with BrokerServer(plain) as stranger, BrokerServer(secured) as replica:
            async with asyncio.timeout(10):
                while not replica.broker.replication.stream_client.facts.read_ms:
                    master.broker.log.ingest.append(SENT, 0, FakePeer())
                    await asyncio.sleep(0.05)
            assert stranger.broker.replication.stream_client.facts.read_ms == 0
            assert replica.broker.log.store.end_position > 0


async def test_a_permissive_master_streams_to_plain_replicas_as_well() -> None:
    settings: dict[str, Any] = {
        "tls_cert": CERTIFICATES / "server.pem", "tls_key": CERTIFICATES / "server.key",
        "tls_mode": TlsMode.PERMISSIVE,
    }  # fmt: skip
    async with BrokerServer(config_of(**settings)) as master:
        plain = config_of(**REPLICA, ha_master=master.stream_address)
        secured = config_of(
            **REPLICA, ha_master=master.stream_address, tls_ca=CERTIFICATES / "ca.pem"
        )
        async with BrokerServer(plain) as one, BrokerServer(secured) as two, asyncio.timeout(10):
            for replica in (one, two):
                while not replica.broker.replication.stream_client.facts.read_ms:
                    master.broker.log.ingest.append(SENT, 0, FakePeer())
                    await asyncio.sleep(0.05)


def taken_above_a_free_one() -> socket.socket:
    """A port that is taken, while nobody listens at the one below it."""
    while True:
        taken = socket.create_server(("127.0.0.1", 0))
        try:
            socket.create_server(("127.0.0.1", taken.getsockname()[1] - 1)).close()
        except OSError:
            taken.close()
        else:
            return taken


async def test_a_port_that_replicas_need_is_taken_or_the_broker_does_not_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with taken_above_a_free_one() as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match="choose another port with haListenPort"):
            async with BrokerServer(config_of(ha_port=port)):
                pass
        async with BrokerServer(config_of(port=port - 1, vip_port=False)):
            assert "this broker can have no replicas" in caplog.text
        with pytest.raises(ConfigError, match="haListenPort"):
            async with BrokerServer(
                config_of(port=port - 1, vip_port=False, broker_role=BrokerRole.SYNC_MASTER)
            ):
                pass


CONTROLLED: dict[str, Any] = {"controller_mode": True, "controllers": ("127.0.0.1:1",)}


@pytest.mark.parametrize("settings", [REPLICA, CONTROLLED])
async def test_a_change_of_role_is_registered_once_if_name_servers_are_told_of_it(
    settings: dict[str, Any],
) -> None:
    async with BrokerServer(config_of(**settings)) as server:
        role, trigger = server.broker.replication.role, server.broker.control.registration
        known = trigger.latest
        role.change(replace(role.current, master="127.0.0.1:1", master_stream="127.0.0.1:1"))
        assert trigger.latest == known, "they are not told whom a replica follows"
        for change in ({"epoch": 7}, {"broker_id": 3}, {"is_fenced": not role.current.is_fenced}):
            role.change(replace(role.current, **change))
            known += 1
            assert trigger.latest == known
