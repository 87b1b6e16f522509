"""Certificates that change while a server runs: new connections get the new one, when it fits."""

import asyncio
import shutil
import ssl
from pathlib import Path

import pytest

from roquet.model.errors import ConfigError
from roquet.net import server as server_module
from roquet.net.channel import Channel, Security
from roquet.net.reloaded_tls import ReloadedTls
from roquet.net.router import Router
from roquet.net.server import Server
from roquet.net.tls import ServerTls, Tls
from roquet.wire.calls.route import GetKV

HERE = Path(__file__).parents[1] / "certificates"
CA = HERE / "ca.pem"


def put(folder: Path, name: str, *kinds: str) -> None:
    """Exchange certificate and key, or one of them."""
    for kind in kinds:
        shutil.copy(HERE / f"{name}.{kind}", folder / f"now.{kind}")


@pytest.fixture
def tls(tmp_path: Path) -> ReloadedTls:
    put(tmp_path, "server", "pem", "key")
    shutil.copy(CA, tmp_path / "ca.pem")
    return ReloadedTls(
        ServerTls(
            cert=tmp_path / "now.pem", key=tmp_path / "now.key", client_ca=tmp_path / "ca.pem"
        )
    )


def test_files_that_stay_the_same_make_no_new_context(tls: ReloadedTls) -> None:
    before = tls.context
    tls.reload(0)
    assert tls.context is before


def test_a_changed_pair_is_taken_once_both_fit(
    tls: ReloadedTls, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = tls.context
    put(tmp_path, "elsewhere", "pem")
    for _ in range(3):
        tls.reload(0)
        assert tls.context is before
    assert [record.getMessage() for record in caplog.records] == [
        "the certificate in force stays, since the changed files fail: "
        f"tls_cert: {tmp_path}/now.pem with {tmp_path}/now.key cannot be used: key values mismatch"
    ]
    put(tmp_path, "elsewhere", "key")
    tls.reload(0)
    assert tls.context is not before
    taken = caplog.records[-1]
    assert taken.levelname == "WARNING"  # the level that servers log by default
    assert taken.getMessage().startswith("new connections get the changed certificate in ")


@pytest.mark.parametrize("content", [None, b"", b"-----BEGIN CERTIFICATE-----\nMII"])
@pytest.mark.parametrize("name", ["now.pem", "now.key", "ca.pem"])
def test_a_torn_or_deleted_file_keeps_what_was(
    tls: ReloadedTls, tmp_path: Path, content: bytes | None, name: str
) -> None:
    before, whole = tls.context, (tmp_path / name).read_bytes()
    (tmp_path / name).unlink() if content is None else (tmp_path / name).write_bytes(content)
    tls.reload(0)
    assert tls.context is before
    (tmp_path / name).write_bytes(whole)
    tls.reload(0)
    assert isinstance(tls.context, ssl.SSLContext)


def test_an_authority_alone_may_change(tls: ReloadedTls, tmp_path: Path) -> None:
    shutil.copy(HERE / "stranger.pem", tmp_path / "ca.pem")
    tls.reload(0)
    names = [ca["subject"] for ca in tls.context.get_ca_certs()]
    assert "stranger" in str(names)


def test_a_server_does_not_start_with_files_that_fail(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tls_cert: .* cannot be used: No such file"):
        ReloadedTls(ServerTls(cert=tmp_path / "no.pem"))


async def test_open_connections_survive_the_exchange(
    tmp_path: Path, router: Router, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "RELOAD_MS", 5)
    put(tmp_path, "server", "pem", "key")
    server = Server(router, host="127.0.0.1")
    server.tls = ReloadedTls(ServerTls(cert=tmp_path / "now.pem", key=tmp_path / "now.key"))
    first = server.tls.context
    security = Security(context=Tls(ca=CA, check_host=False).context())
    ask = GetKV(namespace="echo", key="k")

    async def shown(channel: Channel) -> str:
        return str((await channel.call(ask)).value)

    async with server, await Channel.connect("127.0.0.1", server.port, security=security) as old:
        assert await shown(old) == "k"
        put(tmp_path, "elsewhere", "pem", "key")
        while server.tls.context is first:  # noqa: ASYNC110 - it calls nobody back
            await asyncio.sleep(0.005)
        name = Security(context=Tls(ca=CA).context(), server_name="elsewhere.example")
        async with await Channel.connect("127.0.0.1", server.port, security=name) as new:
            assert (await shown(new), await shown(old)) == ("k", "k")
