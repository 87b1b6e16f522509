import asyncio
import ssl
from pathlib import Path

import httpx
import pytest

from roquet.dashboard.config import DashboardConfig
from roquet.dashboard.server import serve_dashboard
from roquet.model.errors import ConfigError
from roquet.net.address import split_address
from roquet.net.tls import ServerTls
from roquet.testing.cluster import cluster

CERTIFICATES = Path(__file__).parent.parent / "certificates"


async def test_a_dashboard_listens_until_its_end() -> None:
    async with cluster(brokers=1) as running:
        settings = DashboardConfig(name_servers=running.namesrv_addr, port=0)
        async with serve_dashboard(settings) as url, httpx.AsyncClient() as client:
            response = await client.get(f"{url}brokers")
            assert response.status_code == 200
            assert "server" not in response.headers
        async with httpx.AsyncClient() as client:
            with pytest.raises(httpx.ConnectError):
                await client.get(url)


async def test_a_port_that_is_taken_is_said_so() -> None:
    async with cluster(brokers=1) as running:
        _, port = split_address(running.namesrv_addr)
        settings = DashboardConfig(name_servers=running.namesrv_addr, port=port)
        with pytest.raises(ConfigError, match=f"--port {port}: .*another one"):
            async with serve_dashboard(settings):
                pass


async def test_with_a_certificate_it_speaks_tls_alone() -> None:
    tls = ServerTls(cert=CERTIFICATES / "server.pem", key=CERTIFICATES / "server.key")
    settings = DashboardConfig(name_servers="127.0.0.1:9", port=0, tls=tls)
    trusting = ssl.create_default_context(cafile=CERTIFICATES / "ca.pem")
    async with serve_dashboard(settings) as url, httpx.AsyncClient(verify=trusting) as client:
        response = await client.get(f"{url}login")
        assert "__Host-roquet=" in response.headers["set-cookie"]
        assert "Secure" in response.headers["set-cookie"]
        with pytest.raises(httpx.TransportError):
            await client.get(url.replace("https", "http"))


async def test_a_renewed_certificate_is_shown_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roquet.dashboard.server.RELOAD_MS", 10)

    def renew(name: str, *suffixes: str) -> None:
        for suffix in suffixes:
            (tmp_path / f"own.{suffix}").write_bytes(
                (CERTIFICATES / f"{name}.{suffix}").read_bytes()
            )

    def shown(port: int) -> bytes:
        return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(("127.0.0.1", port)))

    def own(name: str) -> bytes:
        return ssl.PEM_cert_to_DER_cert((CERTIFICATES / f"{name}.pem").read_text())

    renew("server", "pem", "key")
    tls = ServerTls(cert=tmp_path / "own.pem", key=tmp_path / "own.key")
    settings = DashboardConfig(name_servers="127.0.0.1:9", port=0, tls=tls)
    async with serve_dashboard(settings) as url:
        port = int(url.rstrip("/").rpartition(":")[2])
        assert await asyncio.to_thread(shown, port) == own("server")
        renew("elsewhere", "pem")
        await asyncio.sleep(0.05)
        assert await asyncio.to_thread(shown, port) == own("server"), "its key is not there yet"
        renew("elsewhere", "key")
        await asyncio.sleep(0.05)
        assert await asyncio.to_thread(shown, port) == own("elsewhere")
