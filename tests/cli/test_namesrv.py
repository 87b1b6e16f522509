import pytest

from roquet.cli import namesrv
from roquet.model.errors import UsageError


def test_the_option_goes_before_the_environment_and_that_before_roquet_dev(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "env:1;more:2")
    assert namesrv.servers("typed:3") == "typed:3"
    assert namesrv.servers(None) == "env:1;more:2"
    monkeypatch.delenv("NAMESRV_ADDR")
    assert namesrv.servers(None) == "127.0.0.1:9876"


def test_what_is_no_address_is_told_with_where_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "nonsense")
    with pytest.raises(UsageError, match="NAMESRV_ADDR: 'nonsense' is not HOST:PORT"):
        namesrv.servers(None)
    with pytest.raises(UsageError, match="--namesrv: 'x' is not HOST:PORT"):
        namesrv.servers("x")
