import pytest

from roquet.cli.terminal import name_servers
from roquet.model.errors import UsageError


def test_the_option_goes_before_the_environment_and_that_before_roquet_dev(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "env:1;more:2")
    assert name_servers.namesrv_addresses("typed:3") == "typed:3"
    assert name_servers.namesrv_addresses(None) == "env:1;more:2"
    monkeypatch.delenv("NAMESRV_ADDR")
    assert name_servers.namesrv_addresses(None) == "127.0.0.1:9876"


def test_a_wrong_address_is_an_error_that_names_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "nonsense")
    with pytest.raises(UsageError, match="NAMESRV_ADDR: 'nonsense' is not HOST:PORT"):
        name_servers.namesrv_addresses(None)
    with pytest.raises(UsageError, match="--namesrv: 'x' is not HOST:PORT"):
        name_servers.namesrv_addresses("x")
