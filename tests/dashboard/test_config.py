import pytest

from roquet.dashboard.config import DashboardConfig, is_loopback
from roquet.model.errors import ConfigError
from roquet.net.tls import ServerTls


def config(**settings: object) -> DashboardConfig:
    return DashboardConfig(name_servers="127.0.0.1:9876", **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.7", "::", "example.org"])
def test_a_dashboard_without_login_listens_on_the_loopback_alone(host: str) -> None:
    with pytest.raises(ConfigError, match="listen on 127"):
        config(host=host)
    assert config(host=host, login=True).host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost"])
def test_the_loopback_has_several_names(host: str) -> None:
    assert is_loopback(host)
    assert config(host=host).host == host


def test_browsers_reach_it_by_its_own_names_and_by_those_that_are_named() -> None:
    assert "dash.example" in config(public_names=("Dash.example",)).allowed_hosts
    assert "0.0.0.0" not in config(host="0.0.0.0", login=True).allowed_hosts
    assert "192.0.2.7" in config(host="192.0.2.7", login=True).allowed_hosts


def test_it_is_secure_with_tls_of_its_own_or_behind_a_proxy() -> None:
    assert not config().is_secure
    assert config(is_behind_tls=True).is_secure
    assert config(tls=ServerTls(cert="c.pem")).is_secure


def test_passwords_are_readable_on_a_network_without_tls() -> None:
    assert config(host="192.0.2.7", login=True).is_readable
    assert not config(host="192.0.2.7", login=True, is_behind_tls=True).is_readable
    assert not config(login=True).is_readable
    assert not config().is_readable
