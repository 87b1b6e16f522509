"""Users and policies of a name server."""

import logging
from pathlib import Path
from typing import Any

import pytest

from roquet.access.access_users import AccessUsers
from roquet.access.translation import encode_document
from roquet.model.access import AccessTables, PolicyType, User, UserType
from roquet.model.errors import CallRefused, ConfigError
from roquet.namesrv.app import NameServer
from roquet.namesrv.config import NameServerConfig
from roquet.net.channel import Channel, Security
from roquet.net.tls import ServerTls, Tls
from roquet.rules.access.changes import change_acl, policy_entry
from roquet.testing.cluster import SMALL_BROKER
from roquet.wire.call import Call
from roquet.wire.calls.route import GetClusterInfo, GetRoute, PutKV, UnregisterBroker
from roquet.wire.codes import ResponseCode
from roquet.wire.signing import Credentials, Signer

CERTIFICATES = Path(__file__).parents[1] / "certificates"
ROOTS = UserType.SUPER
ROOT = Credentials(access_key="root", secret_key="rootsecret")
ALICE = Credentials(access_key="alice", secret_key="alicesecret")

USERS = AccessTables(
    users={
        "root": User(name="root", password="rootsecret", user_type=UserType.SUPER),
        "alice": User(name="alice", password="alicesecret"),
    }
)
TABLES = change_acl(
    USERS, "alice", [(PolicyType.CUSTOM, [policy_entry("Topic:orders", ["Pub"], None, "Allow")])]
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "access.json"
    path.write_bytes(encode_document(TABLES))
    return path


async def refusal(server: NameServer, who: Credentials | None, call: Call[Any]) -> CallRefused:
    security = Security(signer=None if who is None else Signer(who))
    channel = await Channel.connect("127.0.0.1", server.port, security=security)
    with pytest.raises(CallRefused) as refused:
        await channel.call(call)
    await channel.close()
    return refused.value


async def test_a_name_server_with_users_checks_every_request(path: Path) -> None:
    config = NameServerConfig(host="127.0.0.1", port=0, access_file=path)
    async with NameServer(config) as server:
        denied, unknown = ResponseCode.NO_PERMISSION, ResponseCode.TOPIC_NOT_EXIST
        assert (await refusal(server, None, GetRoute(topic="orders"))).code == denied
        assert (await refusal(server, ALICE, GetRoute(topic="orders"))).code == unknown
        assert (await refusal(server, ALICE, GetRoute(topic="TBW102"))).code == unknown
        assert (await refusal(server, ALICE, GetRoute(topic="other"))).code == denied
        change = PutKV(namespace="n", key="k", value="v")
        for call in (GetClusterInfo(), change, forged()):
            assert "Cluster:" in ((await refusal(server, ALICE, call)).remark or "")
        assert (await refusal(server, ROOT, GetRoute(topic="other"))).code == unknown


async def test_a_certificate_names_the_user_of_unsigned_requests(tmp_path: Path) -> None:
    path, client = tmp_path / "access.json", User(name="client", password="x", user_type=ROOTS)
    path.write_bytes(encode_document(AccessTables(users={"client": client})))
    ca = CERTIFICATES / "ca.pem"
    tls = ServerTls(cert=CERTIFICATES / "server.pem", key=CERTIFICATES / "server.key", client_ca=ca)
    config = NameServerConfig(
        host="127.0.0.1", port=0, access_file=path, tls=tls, certificate_users=True
    )
    shown = {name: CERTIFICATES / f"client.{name}" for name in ("pem", "key")}
    security = Security(context=Tls(ca=ca, cert=shown["pem"], key=shown["key"]).context())
    async with NameServer(config) as server:
        address = ("127.0.0.1", server.port)
        async with await Channel.connect(*address, security=security) as channel:
            assert (await channel.call(GetClusterInfo())).body


def test_users_of_certificates_need_an_authority(path: Path) -> None:
    with pytest.raises(ConfigError, match="--certificate-users needs --tls-client-ca"):
        NameServerConfig(access_file=path, certificate_users=True)


def forged() -> UnregisterBroker:
    """A request that would take a broker out of all routes."""
    return UnregisterBroker(
        broker_name="broker-a",
        broker_addr="10.0.0.1:10911",
        cluster_name="DefaultCluster",
        broker_id=0,
    )


async def test_brokers_register_as_their_inner_user(path: Path) -> None:
    from roquet.broker.app import BrokerServer
    from roquet.broker.settings.config import BrokerConfig

    config = NameServerConfig(host="127.0.0.1", port=0, access_file=path)
    async with NameServer(config) as server:
        for credentials, count in ((ALICE, 0), (ROOT, 1)):
            settings = BrokerConfig(
                **SMALL_BROKER, name_servers=(server.address,), inner_credentials=credentials
            )
            async with BrokerServer(settings):
                assert len(server.state.brokers.registrations) == count


def test_a_file_that_cannot_be_used_stops_the_start(tmp_path: Path) -> None:
    path = tmp_path / "access.json"
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        AccessUsers(path)
    path.write_text("nonsense")
    with pytest.raises(ConfigError, match=r"cannot be used: .*; mend it"):
        AccessUsers(path)
    path.write_bytes(encode_document(AccessTables()))
    with pytest.raises(ConfigError, match="there is no user in it"):
        AccessUsers(path)


def test_a_changed_file_is_taken_over_and_a_broken_one_is_not(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    users = AccessUsers(path)
    path.write_bytes(encode_document(USERS))
    users.reload(0)
    assert users.tables == USERS
    for content in (b"nonsense", encode_document(AccessTables())):
        path.write_bytes(content)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            users.reload(0)
            users.reload(0)
        assert users.tables == USERS
        assert len(caplog.messages) == 1
