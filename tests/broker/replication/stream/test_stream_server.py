import asyncio
from typing import Any

import pytest
from tests.broker.replication.conftest import MakeParts, Replica, connected

from roquet.broker.replication.role import Role
from roquet.broker.replication.stream.stream_server import CONNECTIONS_MAX
from roquet.model.errors import ConfigError
from roquet.net.access.gaps import AccessGap
from roquet.rules.replication.acknowledgement import BrokerRole
from roquet.testing.clock import in_virtual_time, this_loop

SMALL: dict[str, Any] = {"log_file_size": 4_096}


def test_a_broker_that_does_not_lead_serves_no_replica(
    parts: MakeParts, caplog: pytest.LogCaptureFixture
) -> None:
    @in_virtual_time
    async def run() -> None:
        made = parts()
        made.append()
        async with connected(made) as replica:
            replica.report(0)
            await made.clock.sleep(100)
            made.role.change(Role(role=BrokerRole.SLAVE, broker_id=1))
            await made.clock.sleep(100)
            assert replica.is_over
            async with connected(made) as other:
                await made.clock.sleep(100)
                assert other.is_over
        assert "this broker is no master" in caplog.text

    run()


def test_silent_connections_keep_no_replica_out(
    parts: MakeParts, caplog: pytest.LogCaptureFixture
) -> None:
    @in_virtual_time
    async def run() -> None:
        made = parts()
        end = made.append()
        async with connected(made) as first:
            first.report(end)
            await made.clock.sleep(100)
            silent = [
                Replica(*await asyncio.open_connection("127.0.0.1", made.server.port))
                for _ in range(CONNECTIONS_MAX + 16)
            ]
            await made.clock.sleep(100)
            assert len(made.server) == CONNECTIONS_MAX
            async with connected(made) as second:
                second.report(0)
                await made.clock.sleep(100)
                assert second.log
                assert not first.is_over
            ended = [replica.is_over for replica in silent]
            assert ended == [True] * 18 + [False] * 62, "the oldest ones make room"
            assert "64 others are connected" in caplog.text
            await made.clock.sleep(10_000)
            assert all(replica.is_over for replica in silent), "they never reported"
            assert not first.is_over
            for replica in silent:
                replica.close()
            assert len(made.server) == 1
        await made.server.close()

    run()


@pytest.mark.parametrize(
    ("sources", "is_served"), [("10.0.0.0/8,127.0.0.1", True), ("10.0.0.0/8", False)]
)
def test_only_replicas_at_known_addresses_get_the_log(
    parts: MakeParts, caplog: pytest.LogCaptureFixture, sources: str, is_served: bool
) -> None:
    @in_virtual_time
    async def run() -> None:
        made = parts()
        made.settings.change({"ha_replicas": sources}, 0)
        async with connected(made) as replica:
            await made.clock.sleep(100)
            assert replica.is_over != is_served
        assert ("it is none of ha_replicas" in caplog.text) != is_served

    run()


@pytest.mark.parametrize(
    ("settings", "own", "other"),
    [
        ({}, True, True),
        ({"authentication_enabled": True}, True, False),
        (
            {"authentication_enabled": True, "access_compatibility": (AccessGap.REPLICA_LOG,)},
            True,
            True,
        ),
        ({"authentication_enabled": True, "ha_replicas": ("10.0.0.2",)}, False, True),
    ],
)
def test_with_access_control_replicas_of_other_machines_have_to_be_named(
    parts: MakeParts,
    caplog: pytest.LogCaptureFixture,
    settings: dict[str, Any],
    own: bool,
    other: bool,
) -> None:
    @in_virtual_time
    async def run() -> None:
        made, replicas = parts(**settings), []
        with this_loop().network.host("10.0.0.1"):
            await made.server.start("10.0.0.1", 0)
        for host in ("10.0.0.1", "10.0.0.2"):
            with this_loop().network.host(host):
                stream = await asyncio.open_connection("10.0.0.1", made.server.port)
                replicas.append(Replica(*stream))
        await made.clock.sleep(100)
        assert [not replica.is_over for replica in replicas] == [own, other]
        assert ("ha_replicas does not name it" in caplog.text) == (own and not other)
        await made.server.close()

    run()


def test_a_replica_that_ha_replicas_names_no_more_gets_no_more(
    parts: MakeParts, caplog: pytest.LogCaptureFixture
) -> None:
    @in_virtual_time
    async def run() -> None:
        made = parts(ha_replicas=("127.0.0.1",))
        async with connected(made) as replica:
            await made.clock.sleep(100)
            made.settings.change({"ha_replicas": "127.0.0.1,10.0.0.9"}, 0)
            await made.clock.sleep(100)
            assert not replica.is_over
            made.settings.change({"ha_replicas": "10.0.0.9"}, 0)
            await made.clock.sleep(100)
            assert replica.is_over
        assert "not served any more: it is none of ha_replicas" in caplog.text

    run()


def test_two_broken_replicas_of_one_host_are_a_line_each_and_again_an_hour_later(
    parts: MakeParts, caplog: pytest.LogCaptureFixture
) -> None:
    @in_virtual_time
    async def run() -> None:
        made = parts()
        end = made.append()

        async def come(report: int) -> None:
            async with connected(made) as replica:
                replica.report(report)
                await made.clock.sleep(100)

        for hour in (1, 2):
            for _ in range(3):
                await come(end + 1)
                await come(0)
            assert caplog.text.count("it reports a log") == hour
            assert caplog.text.count("connection reset by peer") == hour
            await made.clock.sleep(3_600_000)

    run()


def test_a_port_in_use_is_named(parts: MakeParts) -> None:
    @in_virtual_time
    async def run() -> None:
        made, other = parts(), parts()
        await made.server.start("127.0.0.1", 0)
        with pytest.raises(ConfigError, match="choose another port with haListenPort"):
            await other.server.start("127.0.0.1", made.server.port)
        await other.server.close()
        await made.server.close()

    run()


def test_a_number_that_is_no_port_is_named(parts: MakeParts) -> None:
    @in_virtual_time
    async def run() -> None:
        with pytest.raises(ConfigError, match=r"70001 is no port for replicas: .* haListenPort"):
            await parts().server.start("127.0.0.1", 70_001)

    run()


def test_a_fault_of_our_own_ends_one_connection(
    parts: MakeParts, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    @in_virtual_time
    async def run() -> None:
        made = parts()
        made.append()
        with monkeypatch.context() as patched:
            patched.setattr(made.store.raw, "read", lambda *_: 1 // 0)
            async with connected(made) as replica:
                replica.report(0)
                await made.clock.sleep(100)
                assert replica.is_over
        assert "cannot be served" in caplog.text
        async with connected(made) as replica:
            replica.report(0)
            await made.clock.sleep(100)
            assert replica.log

    run()
