from pathlib import Path

import pytest

from roquet.cli.servers.server_options import exporter_options, metrics_address, server_tls
from roquet.metrics.exporter_settings import MetricsExporterType
from roquet.model.errors import ConfigError, UsageError
from roquet.net.exporter.exporter import ExporterAddress


def test_a_certificate_is_what_turns_tls_on() -> None:
    assert server_tls(None, None, None) is None
    tls = server_tls(Path("c.pem"), Path("k.pem"), None)
    assert tls is not None
    assert (tls.cert, tls.key) == (Path("c.pem"), Path("k.pem"))


def test_a_key_without_a_certificate_is_an_error() -> None:
    with pytest.raises(UsageError, match="of no use without --tls-cert"):
        server_tls(None, Path("server.key"), None)


def test_metrics_are_an_address_or_a_port_alone() -> None:
    assert exporter_options(None) == {}
    assert exporter_options("5557") == {
        "metrics_exporter": MetricsExporterType.PROM,
        "metrics_port": 5557,
        "metrics_host": "",
    }
    assert metrics_address("[::1]:9") == ExporterAddress("::1", 9)
    for wrong in ("", "x", "70000", "a:b", "-1"):
        with pytest.raises(ConfigError, match="--metrics"):
            metrics_address(wrong)
