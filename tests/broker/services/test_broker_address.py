import logging
from pathlib import Path

import pytest
from msgspec.structs import replace

from roquet.access.gaps import AccessGap
from roquet.broker.services import broker_address
from roquet.broker.services.broker_address import (
    advertised_address,
    encode_address,
    warn_of_container_address,
    warn_of_open_broker,
    warn_of_refused_replicas,
)
from roquet.broker.settings.config import BrokerConfig
from roquet.model.errors import ConfigError
from roquet.net.tls import TlsMode
from roquet.rules.replication.acknowledgement import BrokerRole
from roquet.wire.signing import Credentials


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("10.0.0.5", "10.0.0.5:10911"),
        ("10.0.0.5:9000", "10.0.0.5:9000"),
        ("broker.example:9000", "broker.example:9000"),
        ("[2001:db8::1]", "[2001:db8::1]:10911"),
    ],
)
def test_the_configured_address_is_advertised(setting: str, expected: str) -> None:
    assert advertised_address(BrokerConfig(advertise=setting), 10_911) == expected


def test_a_broker_on_one_interface_advertises_its_address() -> None:
    assert advertised_address(BrokerConfig(host="127.0.0.1"), 5) == "127.0.0.1:5"


def test_a_routable_address_of_the_machine_is_advertised_by_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_address, "routable_address", lambda: "10.1.2.3")
    assert advertised_address(BrokerConfig(), 10_911) == "10.1.2.3:10911"


def test_inside_a_container_one_line_warns(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(broker_address, "in_container", lambda: True)
    with caplog.at_level(logging.WARNING):
        warn_of_container_address(BrokerConfig(), "172.17.0.2:10911")
        warn_of_container_address(BrokerConfig(advertise="10.0.0.5"), "10.0.0.5:10911")
        warn_of_container_address(BrokerConfig(), "127.0.0.1:10911")
    assert len(caplog.records) == 1
    assert "--advertise" in caplog.text


def test_a_broker_that_is_open_to_everybody_says_so(caplog: pytest.LogCaptureFixture) -> None:
    root = Credentials(access_key="root", secret_key="first")
    with caplog.at_level(logging.WARNING):
        warn_of_open_broker(BrokerConfig(host="127.0.0.1"), "127.0.0.1:10911")
        secured = BrokerConfig(authentication_enabled=True, initial_user=root)
        warn_of_open_broker(secured, "10.0.0.5:10911")
        with_certificates = BrokerConfig(
            tls_cert=Path("c.pem"), tls_key=Path("k.pem"), tls_client_ca=Path("ca.pem")
        )
        warn_of_open_broker(with_certificates, "10.0.0.5:10911")
        assert caplog.records == []
        plain_too = replace(with_certificates, tls_mode=TlsMode.PERMISSIVE)
        warn_of_open_broker(plain_too, "10.0.0.6:10911")
        warn_of_open_broker(BrokerConfig(), "10.0.0.5:10911")
    assert len(caplog.records) == 2
    assert "everybody who reaches 10.0.0.5:10911 may do everything there" in caplog.text


INNER = Credentials(access_key="inner", secret_key="inside")
CLOSED = BrokerConfig(authentication_enabled=True, broker_role=BrokerRole.SYNC_MASTER)


@pytest.mark.parametrize(
    "config",
    [
        BrokerConfig(broker_role=BrokerRole.SYNC_MASTER),
        replace(CLOSED, ha_replicas=("10.0.0.7",)),
        replace(CLOSED, ha_plain_replicas=("10.0.0.7",)),
        replace(CLOSED, inner_credentials=INNER),
        replace(CLOSED, access_compatibility=(AccessGap.REPLICA_LOG,)),
        replace(CLOSED, host="127.0.0.1"),
        replace(CLOSED, host="::1"),
        replace(CLOSED, host="localhost"),
        replace(CLOSED, tls_cert=Path("c"), tls_client_ca=Path("a")),
    ],
)
def test_nothing_is_said_where_others_may_connect_for_the_log_or_nobody_could(
    config: BrokerConfig, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        warn_of_refused_replicas(config, 10_912)
        warn_of_refused_replicas(CLOSED, 0)
    assert caplog.messages == []


def test_one_line_says_that_replicas_elsewhere_are_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    elected = BrokerConfig(
        authentication_enabled=True, controller_mode=True, controllers=("10.0.0.5:9878",)
    )
    alone = BrokerConfig(authentication_enabled=True, host="10.0.0.5")
    with caplog.at_level(logging.INFO):
        for config in (CLOSED, elected, alone):
            warn_of_refused_replicas(config, 10_912)
    levels = [record.levelname for record in caplog.records]
    assert levels == ["WARNING", "WARNING", "INFO"]
    assert set(caplog.messages) == {
        "only replicas on this machine may connect to port 10912 for the log: with access control "
        "all brokers of the group have to have innerClientAuthenticationCredentials, or the "
        "addresses of others to be in ha_replicas, or certificates be required (tls_client_ca)"
    }


def test_one_line_says_that_tls_alone_keeps_no_stranger_from_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    secured = BrokerConfig(tls_cert=Path("broker.pem"), broker_role=BrokerRole.SYNC_MASTER)
    with caplog.at_level(logging.INFO):
        warn_of_refused_replicas(secured, 10_912)
        warn_of_refused_replicas(replace(secured, inner_credentials=INNER), 10_912)
    assert caplog.messages == [
        "whoever reaches port 10912 gets the log, and may say that it is a replica: set "
        "innerClientAuthenticationCredentials, or require certificates (tls_client_ca)"
    ]


def test_a_container_is_recognised(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(broker_address, "CONTAINER_SIGNS", (tmp_path / "sign",))
    assert not broker_address.in_container()
    (tmp_path / "sign").touch()
    assert broker_address.in_container()


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        ("10.0.0.5:258", b"\x0a\x00\x00\x05\x00\x00\x01\x02"),
        ("[::1]:1", bytes(15) + b"\x01\x00\x00\x00\x01"),
    ],
)
def test_records_hold_the_address_as_numbers(text: str, raw: bytes) -> None:
    assert encode_address(text) == raw


def test_a_name_becomes_the_number_it_stands_for() -> None:
    assert encode_address("localhost:1") in (
        encode_address("127.0.0.1:1"),
        encode_address("[::1]:1"),
    )


def test_a_name_that_stands_for_nothing_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"'nowhere\.invalid' stands for no address"):
        encode_address("nowhere.invalid:1")
