from pathlib import Path

import pytest

from roquet.cli.servers.server_options import (
    MetricsOptions,
    calls_tls,
    metrics_address,
    proxies,
    server_tls,
)
from roquet.metrics.exporter_settings import MetricsExporterType
from roquet.model.errors import ConfigError, UsageError
from roquet.net.tls import ClientAuth, Tls, TlsMode
from roquet.observe.exporter import ExporterAddress


def test_a_certificate_is_what_turns_tls_on() -> None:
    assert server_tls(None, None, None) is None
    tls = server_tls(Path("c.pem"), Path("k.pem"), None)
    assert tls is not None
    assert (tls.cert, tls.key, tls.mode) == (Path("c.pem"), Path("k.pem"), TlsMode.ENFORCING)
    both = server_tls(Path("c.pem"), None, None, TlsMode.PERMISSIVE)
    assert both is not None
    assert (both.mode, both.client_auth) == (TlsMode.PERMISSIVE, ClientAuth.REQUIRE)
    asked = server_tls(Path("c.pem"), None, Path("a.pem"), None, ClientAuth.OPTIONAL)
    assert asked is not None
    assert (asked.client_ca, asked.client_auth) == (Path("a.pem"), ClientAuth.OPTIONAL)


def test_a_key_without_a_certificate_is_an_error() -> None:
    with pytest.raises(UsageError, match="of no use without --tls-cert"):
        server_tls(None, Path("server.key"), None)
    with pytest.raises(UsageError, match="of no use without --tls-cert"):
        server_tls(None, None, None, TlsMode.PERMISSIVE)
    with pytest.raises(UsageError, match="of no use without --tls-client-ca"):
        server_tls(Path("c.pem"), None, None, None, ClientAuth.NONE)


def test_calls_by_tls_show_the_servers_certificate() -> None:
    cert, key = Path("c.pem"), Path("k.pem")
    assert calls_tls(None, cert, key) is None
    assert calls_tls(Path("a.pem"), cert, key) == Tls(ca=Path("a.pem"), cert=cert, key=key)


def test_proxies_are_addresses_and_blocks() -> None:
    assert proxies(None) is None
    assert proxies("10.0.0.0/8,::1") == ("10.0.0.0/8", "::1")
    with pytest.raises(ConfigError, match="--proxy-from: 'lb' is no IP address"):
        proxies("lb")


def test_metrics_are_an_address_or_a_port_alone() -> None:
    assert MetricsOptions().exporter == {}
    assert MetricsOptions(metrics="5557").exporter == {
        "metrics_exporter": MetricsExporterType.PROM,
        "metrics_port": 5557,
        "metrics_host": "",
    }
    assert metrics_address("[::1]:9") == ExporterAddress("::1", 9)
    for wrong in ("", "x", "70000", "a:b", "-1"):
        with pytest.raises(ConfigError, match="--metrics"):
            metrics_address(wrong)
