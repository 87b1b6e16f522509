"""What name server and controllers of `roquet serve` get of the brokers' settings."""

from pathlib import Path
from typing import Any

import pytest

from roquet.broker.settings.config import BrokerConfig
from roquet.cli.servers.shared_security import (
    client_config,
    name_server_options,
    security_options,
)
from roquet.model.errors import ConfigError
from roquet.net.tls import ClientAuth, KeyPassword, Tls, TlsMode
from roquet.wire.signing import Credentials

OWN = "namesrv.conf"
PAIR: dict[str, Any] = {"tls_cert": Path("c.pem"), "tls_key": Path("k.pem")}


def test_brokers_without_tls_say_nothing(tmp_path: Path) -> None:
    assert security_options(tmp_path, OWN, None) == []
    assert security_options(tmp_path, OWN, BrokerConfig()) == []
    disabled = BrokerConfig(**PAIR, tls_mode=TlsMode.DISABLED)
    assert security_options(tmp_path, OWN, disabled) == []


def test_all_that_brokers_say_of_certificates_is_an_option(tmp_path: Path) -> None:
    brokers = BrokerConfig(
        **PAIR, tls_mode=TlsMode.PERMISSIVE, tls_client_ca=Path("ca.pem"),
        tls_client_auth=ClientAuth.OPTIONAL, tls_ca=Path("other.pem"),
    )  # fmt: skip
    assert security_options(tmp_path, OWN, brokers) == [
        "--tls-cert", "c.pem", "--tls-mode", "permissive", "--tls-key", "k.pem",
        "--tls-client-ca", "ca.pem", "--tls-client-auth", "optional", "--tls-ca", "other.pem",
    ]  # fmt: skip


def test_a_file_of_its_own_takes_the_place_of_that(tmp_path: Path) -> None:
    (tmp_path / OWN).write_text("")
    brokers = BrokerConfig(**PAIR, proxy_protocol_from=("10.0.0.5",))
    assert name_server_options(tmp_path, OWN, brokers) == ["--config", str(tmp_path / OWN)]


def test_a_password_of_a_key_is_refused_with_advice(tmp_path: Path) -> None:
    brokers = BrokerConfig(**PAIR, tls_key_password=KeyPassword("hidden"))
    with pytest.raises(ConfigError, match=r"give each a namesrv\.conf in its directory") as refused:
        security_options(tmp_path, OWN, brokers)
    assert "hidden" not in str(refused.value)
    (tmp_path / OWN).write_text("")
    assert security_options(tmp_path, OWN, brokers) == ["--config", str(tmp_path / OWN)]


@pytest.mark.parametrize(
    "calls",
    [
        {"tls_enable": True},
        {"tls_ca": Path("ca.pem"), "tls_check_host": False},
        {"tls_ca": Path("ca.pem"), "tls_client_cert": Path("other.pem")},
    ],
)
def test_other_calls_than_theirs_are_refused_with_advice(
    tmp_path: Path, calls: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match=r"give each a namesrv\.conf in its directory"):
        security_options(tmp_path, OWN, BrokerConfig(**PAIR, **calls))


def test_users_are_checked_where_there_is_a_file_of_them(tmp_path: Path) -> None:
    brokers = BrokerConfig(
        **PAIR, tls_client_ca=Path("ca.pem"), authentication_enabled=True, certificate_users=True,
        initial_user=Credentials(access_key="root", secret_key="s"),
    )  # fmt: skip
    assert "--certificate-users" not in name_server_options(tmp_path, OWN, brokers)
    for options_of in (security_options, name_server_options):
        options = options_of(tmp_path, OWN, brokers, Path("users.json"))
        assert options[-3:] == ["--access-file", "users.json", "--certificate-users"]
    assert security_options(tmp_path, OWN, None, Path("users.json"))[0] == "--access-file"


def test_without_certificates_of_clients_none_names_a_user(tmp_path: Path) -> None:
    brokers = BrokerConfig(
        **PAIR, tls_client_ca=Path("ca.pem"), tls_mode=TlsMode.DISABLED,
        authentication_enabled=True, certificate_users=True,
        initial_user=Credentials(access_key="root", secret_key="s"),
    )  # fmt: skip
    options = security_options(tmp_path, OWN, brokers, Path("users.json"))
    assert options == ["--access-file", "users.json"]


def test_its_own_questions_are_signed_as_the_brokers_sign() -> None:
    assert client_config(None).tls is None
    brokers = BrokerConfig(
        tls_ca=Path("ca.pem"), inner_credentials=Credentials(access_key="a", secret_key="s")
    )
    config = client_config(brokers)
    assert (config.tls, config.access_key, config.secret_key) == (Tls(ca=Path("ca.pem")), "a", "s")
