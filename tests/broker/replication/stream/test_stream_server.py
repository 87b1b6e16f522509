import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.broker.conftest import background
from tests.broker.replication.conftest import SYNC, MakeParts, Replica, connected, log_of

from roquet.access.gaps import AccessGap
from roquet.broker.replication.role import Role
from roquet.broker.replication.stream.stream_server import CONNECTIONS_MAX
from roquet.model.errors import ConfigError
from roquet.rules.replication.acknowledgement import BrokerRole
from roquet.testing.clock import this_loop
from roquet.wire.replication.replica_proof import encode_proof
from roquet.wire.signing import Credentials

pytestmark = pytest.mark.virtual_time

SMALL: dict[str, Any] = {"log_file_size": 4_096}

INNER = Credentials(access_key="inner", secret_key="inside")

PROVES: dict[str, Any] = {"authentication_enabled": True, "inner_credentials": INNER}

OTHER = {**PROVES, "inner_credentials": Credentials(access_key="inner", secret_key="outside")}


async def test_a_broker_that_does_not_lead_serves_no_replica(
    parts: MakeParts, caplog: pytest.LogCaptureFixture
) -> None:
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


@pytest.mark.parametrize("steps", range(6))
async def test_a_replica_that_connects_as_the_server_closes_is_let_go(
    parts: MakeParts, steps: int
) -> None:
    made = parts()
    await made.server.start("127.0.0.1", 0)
    connecting = asyncio.create_task(asyncio.open_connection("127.0.0.1", made.server.port))
    for _ in range(steps):
        await asyncio.sleep(0)
    await made.server.close()
    try:
        replica = Replica(*await connecting)
    except ConnectionError:
        return
    await made.clock.sleep(100)
    assert replica.is_over
    replica.close()


async def test_silent_connections_keep_no_replica_out(
    parts: MakeParts, caplog: pytest.LogCaptureFixture
) -> None:
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


@pytest.mark.parametrize(
    ("sources", "is_served"), [("10.0.0.0/8,127.0.0.1", True), ("10.0.0.0/8", False)]
)
async def test_only_replicas_at_known_addresses_get_the_log(
    parts: MakeParts, caplog: pytest.LogCaptureFixture, sources: str, is_served: bool
) -> None:
    made = parts()
    made.settings.change({"ha_replicas": sources}, 0)
    async with connected(made) as replica:
        await made.clock.sleep(100)
        assert replica.is_over != is_served
    assert ("it is none of ha_replicas" in caplog.text) != is_served


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
async def test_with_access_control_replicas_of_other_machines_have_to_be_named(
    parts: MakeParts,
    caplog: pytest.LogCaptureFixture,
    settings: dict[str, Any],
    own: bool,
    other: bool,
) -> None:
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


async def test_a_replica_that_ha_replicas_names_no_more_gets_no_more(
    parts: MakeParts, caplog: pytest.LogCaptureFixture
) -> None:
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


async def test_two_broken_replicas_of_one_host_are_a_line_each_and_again_an_hour_later(
    parts: MakeParts, caplog: pytest.LogCaptureFixture
) -> None:
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


async def test_a_port_in_use_is_named(parts: MakeParts) -> None:
    made, other = parts(), parts()
    await made.server.start("127.0.0.1", 0)
    with pytest.raises(ConfigError, match="choose another port with haListenPort"):
        await other.server.start("127.0.0.1", made.server.port)
    await other.server.close()
    await made.server.close()


async def test_a_number_that_is_no_port_is_named(parts: MakeParts) -> None:
    with pytest.raises(ConfigError, match=r"70001 is no port for replicas: .* haListenPort"):
        await parts().server.start("127.0.0.1", 70_001)


async def test_a_fault_of_our_own_ends_one_connection(
    parts: MakeParts, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
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


@pytest.mark.parametrize(
    ("master", "replica", "copied_ms", "here", "there"),
    [
        (PROVES, PROVES, 100, "", ""),
        ({**PROVES, "ha_replicas": ("127.0.0.1",)}, PROVES, 100, "", ""),
        ({"tls_cert": Path("c"), "inner_credentials": INNER}, PROVES, 100, "", ""),
        (PROVES, {}, None, "does not prove that it is a replica", "set authenticationEnabled and"),
        (PROVES, OTHER, None, "its proof is wrong", "closed the connection after the proof"),
        (PROVES, {**PROVES, "cluster_name": "d"}, None, "brokerClusterName and", "its log says"),
        ({**PROVES, "ha_plain_replicas": ("127.0.0.0/8",)}, {}, 100, "", ""),
        ({**PROVES, "ha_plain_replicas": ("127.0.0.0/8",)}, PROVES, 2_100, "", ""),
        ({**PROVES, "access_compatibility": (AccessGap.REPLICA_LOG,)}, {}, 100, "", ""),
        ({"authentication_enabled": True}, PROVES, 2_100, "", ""),
        ({}, PROVES, 2_100, "", ""),
        ({}, {"inner_credentials": INNER}, 100, "", ""),
    ],
)
async def test_where_access_control_or_tls_is_on_replicas_prove_who_they_are_or_both_say_why(
    parts: MakeParts,
    caplog: pytest.LogCaptureFixture,
    master: dict[str, Any],
    replica: dict[str, Any],
    copied_ms: int | None,
    here: str,
    there: str,
) -> None:
    leads, follows = (parts(**master), parts(broker_role=BrokerRole.SLAVE, broker_id=1, **replica))
    end = leads.append(5)
    await leads.server.start("127.0.0.1", 0)
    stream = f"127.0.0.1:{leads.server.port}"
    follows.role.change(msgspec.structs.replace(follows.role.current, master_stream=stream))
    async with background(follows.client.serve()):
        await leads.clock.sleep(copied_ms or 20_000)
        assert follows.store.raw.end == (0 if copied_ms is None else end)
        reasons = [
            record.getMessage() for record in caplog.records if record.levelname == "WARNING"
        ]
        assert len(reasons) == 2 * (copied_ms is None), "one line at each end"
        assert [here in reasons[0], there in reasons[1]] == [True, True] if reasons else not here
    await leads.server.close()


@pytest.mark.parametrize("sent", [b"", b"ROQUETPR" + bytes(32), bytes(8), bytes(40), b"\x16" * 99])
async def test_who_proves_nothing_gets_nothing_of_the_log_and_takes_no_place(
    parts: MakeParts, sent: bytes
) -> None:
    made = parts(**SYNC, **PROVES)
    made.append()
    async with connected(made) as stranger, connected(made) as other:
        other.writer.write(stranger.received)  # a challenge, sent back
        stranger.writer.write(sent)
        await made.clock.sleep(10_100)
        assert (stranger.is_over, len(stranger.received)) == (True, 40)
        assert stranger.received.startswith(b"ROQUETHA")
        assert stranger.received != other.received, "no nonce is used twice"
    assert made.acknowledgements.in_sync == 1
    assert len(made.server) == 0


async def test_a_recorded_proof_is_worth_nothing_in_another_connection(parts: MakeParts) -> None:
    made = parts(**PROVES)
    end = made.append()
    async with connected(made) as replica, connected(made) as stranger:
        await made.clock.sleep(10)
        group = made.settings.config.cluster_name, made.settings.config.broker_name
        proof = encode_proof(INNER, replica.received, *group)
        for each in (replica, stranger):
            each.writer.write(proof + bytes(8))
        await made.clock.sleep(10)
        assert stranger.is_over
        assert replica.received.endswith(log_of(made))
        assert len(log_of(made)) == end
