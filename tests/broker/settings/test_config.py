import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from roquet.broker.settings.config import BrokerConfig
from roquet.model.errors import ConfigError
from roquet.model.flags import Permission
from roquet.net.channel import PLAIN
from roquet.net.tls import ServerTls, TlsMode
from roquet.rules.replication.acknowledgement import BrokerRole
from roquet.wire.signing import Credentials

HERE = Path(__file__).parents[2] / "certificates"
CA = HERE / "ca.pem"


@pytest.mark.parametrize("permission", range(8))
def test_the_permission_decides_which_requests_are_served(permission: int) -> None:
    config = BrokerConfig(permission=permission)
    assert config.readable == bool(permission & Permission.READ)
    assert config.writable == bool(permission & Permission.WRITE)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"port": "x"}, "port: 'x' is not a whole number"),
        ({"sync_flush": 1}, "sync_flush: 1 is not True or False"),
        ({"free_min": "1GiB"}, "free_min: '1GiB' is not a whole number or None"),
        ({"message_delay_levels": 5}, "message_delay_levels: 5 is not a tuple"),
        ({"prot": 1}, "prot: BrokerConfig has no such setting; did you mean 'port'?"),
        ({"log_path": Path("/x")}, "log_path: BrokerConfig has no such setting"),
    ],
)
def test_a_wrong_name_or_type_is_an_error(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig(**changes)
    assert str(caught.value).startswith(complaint)


def test_connections_are_taken_with_tls_where_there_is_a_certificate() -> None:
    config = BrokerConfig(tls_cert=Path("/c.pem"), tls_client_ca=Path("/a.pem"))
    assert config.server_tls == ServerTls(cert=Path("/c.pem"), client_ca=Path("/a.pem"))
    assert config.server_tls.mode is TlsMode.ENFORCING
    assert BrokerConfig().server_tls is None
    assert BrokerConfig().calls() is PLAIN


def test_replicas_that_show_certificates_need_not_be_named() -> None:
    tls: dict[str, Any] = {"tls_cert": Path("/c.pem"), "tls_client_ca": Path("/a.pem")}
    access: dict[str, Any] = {"authentication_enabled": True}
    assert BrokerConfig().serves_any_replica
    assert not BrokerConfig(**access).serves_any_replica
    assert BrokerConfig(**access, **tls).serves_any_replica
    permissive = BrokerConfig(**access, **tls, tls_mode=TlsMode.PERMISSIVE)
    assert not permissive.serves_any_replica, "a replica may come without TLS"


@pytest.mark.parametrize(
    ("settings", "is_tls", "verifies", "checks_host"),
    [
        ({}, False, False, False),
        ({"tls_ca": CA}, True, True, True),
        ({"tls_ca": CA, "tls_enable": False}, False, False, False),
        ({"tls_enable": True}, True, True, True),
        ({"tls_enable": True, "tls_verify": False}, True, False, False),
        ({"tls_ca": CA, "tls_check_host": False}, True, True, False),
    ],
)
def test_calls_of_the_broker_are_secured_as_the_settings_say(
    settings: dict[str, Any], is_tls: bool, verifies: bool, checks_host: bool
) -> None:
    context = BrokerConfig(**settings).calls().context
    assert (context is not None) is is_tls
    if context is not None:
        assert (context.verify_mode is ssl.CERT_REQUIRED) is verifies
        assert context.check_hostname is checks_host


def test_calls_show_the_servers_certificate_or_one_of_their_own() -> None:
    with pytest.raises(ConfigError, match=r"server.pem with .*client.key cannot be used"):
        BrokerConfig(tls_ca=CA, tls_cert=HERE / "server.pem", tls_key=HERE / "client.key").calls()
    own: dict[str, Any] = {
        "tls_client_cert": HERE / "client.pem",
        "tls_client_key": HERE / "client.key",
    }
    assert BrokerConfig(tls_ca=CA, tls_cert=HERE / "server.pem", **own).calls().context is not None


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"tls_mode": TlsMode.PERMISSIVE}, "tls.server.mode=permissive needs a certificate"),
        ({"certificate_users": True}, "certificate_users needs tls_client_ca"),
    ],
)
def test_tls_that_cannot_work_is_refused(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        BrokerConfig(**settings)


@pytest.mark.parametrize(
    ("role", "broker_id", "advice"),
    [
        (BrokerRole.SLAVE, 0, "give this replica brokerId=1, or a higher number"),
        (BrokerRole.ASYNC_MASTER, 2, "brokerRole is ASYNC_MASTER: write brokerId=0 for a master"),
        (BrokerRole.SYNC_MASTER, 1, "or brokerRole=SLAVE for a replica"),
    ],
)
def test_an_id_belongs_to_a_role(role: BrokerRole, broker_id: int, advice: str) -> None:
    with pytest.raises(ConfigError, match=advice):
        BrokerConfig(broker_role=role, broker_id=broker_id)
    assert BrokerConfig(broker_role=BrokerRole.SLAVE, broker_id=3).broker_id == 3


CONTROLLED: Mapping[str, Any] = {"controller_mode": True, "controllers": ("127.0.0.1:9878",)}


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        (
            {**CONTROLLED, "broker_heartbeat_interval": 3_000},
            "brokerHeartbeatInterval=3000 is not less than controllerHeartBeatTimeoutMills=3000, "
            "and the controller would take a broker that lives for dead: set "
            "brokerHeartbeatInterval to 1000 or less, or controllerHeartBeatTimeoutMills to 9000 "
            "or more",
        ),
        (
            {"ha_heartbeat_interval": 5_000, "ha_housekeeping_interval": 4_000},
            "haSendHeartbeatInterval=5000 is not less than haHousekeepingInterval=4000, and "
            "connections between master and replicas would be closed again and again: set "
            "haSendHeartbeatInterval to 1333 or less, or haHousekeepingInterval to 15000 or more",
        ),
    ],
)
def test_heartbeats_come_before_their_lack_shows(settings: dict[str, Any], advice: str) -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig(**settings)
    assert str(refused.value) == advice


def test_heartbeats_to_a_controller_are_free_where_there_is_none() -> None:
    assert BrokerConfig(broker_heartbeat_interval=60_000).broker_heartbeat_interval == 60_000
    assert BrokerConfig(**CONTROLLED, broker_heartbeat_interval=2_999).controller_mode


def test_a_broker_signs_its_own_requests_with_its_inner_credentials() -> None:
    inner = Credentials(access_key="inner", secret_key="hush")
    calls = BrokerConfig(inner_credentials=inner).calls()
    assert calls.signer is not None
    assert (calls.signer.access_key, calls.context) == ("inner", None)
    assert BrokerConfig().calls() is PLAIN


def test_policies_without_signatures_are_refused() -> None:
    with pytest.raises(ConfigError, match="authorizationEnabled without authenticationEnabled"):
        BrokerConfig(authorization_enabled=True)
