"""Genuine clients against our servers with TLS: one port for both kinds, and mutual TLS."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.interop.conftest import roquet_dev
from tests.interop.test_go_client import built
from tests.interop.test_js_client import js, js_packages

from harness import genuine
from roquet.client import ProducerConfig, Tls
from roquet.client.blocking import Producer

__all__ = ["js_packages"]

pytestmark = pytest.mark.interop
GO_PROGRAM = Path(__file__).with_name("go_tls_client")
PROGRAM = str(Path(__file__).with_name("RoundTrip.java"))
CERTIFICATES = Path(__file__).parents[1] / "certificates"
CA = CERTIFICATES / "ca.pem"

TRUSTING_ANYBODY = ["-Dtls.enable=true"]
"""What Java clients do with `tls.enable` alone: their test mode."""

MUTUAL = [
    *TRUSTING_ANYBODY,
    "-Dtls.test.mode.enable=false",
    "-Dtls.client.authServer=true",
    f"-Dtls.client.trustCertPath={CA}",
    f"-Dtls.client.certPath={CERTIFICATES / 'client.pem'}",
    f"-Dtls.client.keyPath={CERTIFICATES / 'client.key'}",
]


def running(
    folder: Path, patch: pytest.MonkeyPatch, mode: str, *, asks: bool = False
) -> Iterator[str]:
    """A name server and a broker of ours with a genuine tls.properties.

    `asks` wants a certificate of every client.
    """
    properties = folder / "tls.properties"
    values: Mapping[str, object] = {
        "tls.test.mode.enable": "false",
        "tls.server.mode": mode,
        "tls.server.certPath": CERTIFICATES / "server.pem",
        "tls.server.keyPath": CERTIFICATES / "server.key",
        "tls.server.need.client.auth": "require" if asks else "none",
        "tls.server.authClient": "true",
        "tls.server.trustCertPath": CA,
        "tls.enable": "true",
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": CA,
        "tls.client.certPath": CERTIFICATES / "client.pem",
        "tls.client.keyPath": CERTIFICATES / "client.key",
    }
    properties.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    patch.setenv("ROQUET_TLS_PROPERTIES", str(properties))
    with roquet_dev(folder) as address:
        yield address


@pytest.fixture(scope="module")
def patch() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def permissive(
    tmp_path_factory: pytest.TempPathFactory, patch: pytest.MonkeyPatch
) -> Iterator[str]:
    yield from running(tmp_path_factory.mktemp("permissive"), patch, "permissive")


@pytest.fixture(scope="module")
def enforcing(tmp_path_factory: pytest.TempPathFactory, patch: pytest.MonkeyPatch) -> Iterator[str]:
    yield from running(tmp_path_factory.mktemp("enforcing"), patch, "enforcing", asks=True)


@pytest.fixture
def tls_alone(tmp_path: Path, patch: pytest.MonkeyPatch) -> Iterator[str]:
    """Servers that take TLS alone, and ask for no certificate."""
    yield from running(tmp_path, patch, "enforcing")


def round_trip(namesrv: str, topic: str, home: Path, version: str, options: list[str]) -> None:
    jars = f"{genuine.client_jars(version)}/*"
    command = ["java", "-XX:TieredStopAtLevel=1", *options, "-cp", jars, PROGRAM, namesrv, topic]
    lines = genuine.run(command, seconds=180, home=home).splitlines()
    assert lines.count("sent SEND_OK") == 20
    assert "query body 7" in lines


@pytest.mark.parametrize("version", [genuine.VERSION, "4.9.7"])
def test_a_java_client_with_a_certificate_works_with_servers_that_ask_for_it(
    java: None, enforcing: str, tmp_path: Path, version: str
) -> None:
    topic = f"Mutual{version.partition('.')[0]}"
    round_trip(enforcing, topic, tmp_path / "h", version, MUTUAL)


@pytest.mark.parametrize("version", [genuine.VERSION, "4.9.7"])
def test_java_clients_of_both_kinds_share_a_permissive_port(
    java: None, permissive: str, tmp_path: Path, version: str
) -> None:
    topic = f"Both{version.partition('.')[0]}"
    round_trip(permissive, f"{topic}Tls", tmp_path / "h", version, TRUSTING_ANYBODY)
    round_trip(permissive, f"{topic}Plain", tmp_path / "h", version, [])


def test_the_go_client_works_with_servers_that_take_tls_alone(
    tls_alone: str, tmp_path: Path
) -> None:
    """Its release 2.1.2 has no TLS; the code after it has, shows no certificate and checks none."""
    client = built(GO_PROGRAM, "go-client-2.1.3")
    config = ProducerConfig(tls=Tls(ca=CA, check_host=False))
    with Producer(tls_alone, group="maker", config=config) as producer:
        assert producer.send("GoTls", b"body 0").ok  # it gives up where there is no topic
    output = genuine.run([client, tls_alone, "GoTls", "20"], seconds=120, home=tmp_path / "h")
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    assert lines == [{"status": 0}] * 20 + [{"read": 20}, {"over": True}]


def test_the_js_client_speaks_plain_beside_clients_with_tls(
    js_packages: Path, permissive: str, tmp_path: Path
) -> None:
    config = ProducerConfig(tls=Tls(ca=CA, check_host=False))
    with Producer(permissive, group="maker", config=config) as producer:
        assert producer.send("JsBeside", b"first", tag="first").ok
    lines = js(js_packages, tmp_path / "h", "send", permissive, "JsBeside", "10")
    assert [line["status"] for line in lines[:-1]] == ["SEND_OK"] * 12
