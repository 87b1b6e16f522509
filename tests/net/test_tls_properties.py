"""Genuine tls.properties: what they mean here, and what is stricter."""

from pathlib import Path

import pytest

from roquet.model.errors import ConfigError
from roquet.net.tls import ClientAuth, KeyPassword, ServerTls, Tls, TlsMode
from roquet.net.tls_properties import load_tls_properties, take_tls, tls_properties

CERT = {"tls.server.certPath": "/c.pem"}

GENUINE = """
tls.test.mode.enable=false
tls.server.need.client.auth=require
tls.server.keyPath=/opt/certs/server.key
tls.server.keyPassword=123456
tls.server.certPath=/opt/certs/server.pem
tls.server.authClient=true
tls.server.trustCertPath=/opt/certs/ca.pem
tls.enable=true
tls.client.keyPath=/opt/certs/client.key
tls.client.keyPassword=123456
tls.client.certPath=/opt/certs/client.pem
tls.client.authServer=true
tls.client.trustCertPath=/opt/certs/ca.pem
"""


def test_a_genuine_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "tls.properties").write_text(GENUINE)
    found, certs = load_tls_properties(tmp_path / "tls.properties"), Path("/opt/certs")
    assert found.server == ServerTls(
        cert=certs / "server.pem", key=certs / "server.key", key_password=KeyPassword("123456"),
        client_ca=certs / "ca.pem", client_auth=ClientAuth.REQUIRE, mode=TlsMode.PERMISSIVE,
    )  # fmt: skip
    assert found.calls == Tls(
        ca=certs / "ca.pem", cert=certs / "client.pem", key=certs / "client.key",
        key_password="123456", check_host=False,
    )  # fmt: skip


def test_defaults_are_those_of_apache() -> None:
    found = tls_properties(CERT | {"tls.enable": "true"}, "f")
    assert found.server == ServerTls(cert=Path("/c.pem"), mode=TlsMode.PERMISSIVE)
    assert found.calls == Tls(check_host=False, verify=False)
    nothing = tls_properties({"tls.server.keyPassword": ""}, "f")
    assert (nothing.server, nothing.calls) == (None, None)


def test_certificates_that_are_asked_for_are_always_checked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asks = {"tls.server.need.client.auth": "optional", "tls.server.trustCertPath": "/a.pem"}
    server = tls_properties(CERT | asks, "f").server
    assert server is not None
    assert (server.client_ca, server.client_auth) == (Path("/a.pem"), ClientAuth.OPTIONAL)
    assert "certificates of clients are checked" in caplog.text


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        (
            {"tls.server.certpath": "/c"},
            r"f: tls.server.certpath: no such .* 'tls.server.certPath'",
        ),
        ({"tls.server.mode": "enforcing"}, "without tls.server.certPath: .* this one needs files"),
        ({"tls.server.mode": "strict"}, "'strict' is none of disabled, permissive, enforcing"),
        ({"tls.enable": "perhaps"}, "f: tls.enable: 'perhaps' is neither true nor false"),
        (CERT | {"tls.server.need.client.auth": "require"}, "without tls.server.trustCertPath"),
    ],
)
def test_what_cannot_work_is_refused(values: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        tls_properties(values, "f")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("tls.enable=\\u12")
    for name in ("bad", "none"):
        with pytest.raises(ConfigError, match=f"{name}: cannot be read"):
            load_tls_properties(tmp_path / name)


def test_keys_of_tls_are_taken_out_of_other_settings(tmp_path: Path) -> None:
    others, found = take_tls(CERT | {"listenPort": "9"}, "f")
    assert (others, found) == ({"listenPort": "9"}, tls_properties(CERT, "f"))
    (tmp_path / "tls.properties").write_text("tls.server.certPath=/other.pem\n")
    named = CERT | {"tls.config.file": str(tmp_path / "tls.properties")}
    others, found = take_tls(named, "f")
    assert others == {}
    assert found.server == ServerTls(cert=Path("/other.pem"), mode=TlsMode.PERMISSIVE)
