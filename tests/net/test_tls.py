"""TLS on real sockets, with certificates that hold for a hundred years."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from roquet.model.errors import CallError, ConfigError, ConnectFailed, ConnectionLost
from roquet.net.blocking import BlockingChannel
from roquet.net.channel import Channel, Security
from roquet.net.pool import ChannelPool
from roquet.net.reloaded_tls import ReloadedTls
from roquet.net.router import Router
from roquet.net.server import Server
from roquet.net.tls import ServerTls, Tls, certificate_name, tls_error
from roquet.wire.calls.route import GetKV
from roquet.wire.signing import Credentials, Signer

HERE = Path(__file__).parents[1] / "certificates"
CA = HERE / "ca.pem"
ECHO = GetKV(namespace="echo", key="k")


def server_of(router: Router, name: str | None = "server", *, asks: bool = False) -> Server:
    server = Server(router, host="127.0.0.1")
    if name is not None:
        tls = ServerTls(
            cert=HERE / f"{name}.pem", key=HERE / f"{name}.key", client_ca=CA if asks else None
        )
        server.tls = ReloadedTls(tls)
    return server


async def asked(server: Server, tls: Tls | None) -> str | None:
    """What a client with these settings hears."""
    security = Security(
        context=tls.context() if tls else None, server_name=tls.server_name if tls else None
    )
    async with ChannelPool(security=security) as pool:
        return (await pool.call(f"127.0.0.1:{server.port}", ECHO)).value


OURS = {"cert": HERE / "client.pem", "key": HERE / "client.key"}


@pytest.mark.parametrize(
    ("name", "asks", "settings"),
    [
        ("server", False, {"ca": CA}),
        ("server", False, {"ca": str(CA), "server_name": "localhost"}),
        ("server", True, {"ca": CA, **OURS}),
        ("elsewhere", False, {"ca": CA, "check_host": False}),
        ("elsewhere", False, {"ca": CA, "server_name": "elsewhere.example"}),
        ("stranger", False, {"ca": HERE / "stranger.pem"}),
        ("stranger", False, {"verify": False}),
    ],
)
async def test_peers_that_trust_each_other_exchange_calls(
    router: Router, name: str, asks: bool, settings: dict[str, Any]
) -> None:
    async with server_of(router, name, asks=asks) as server:
        assert await asked(server, Tls(**settings)) == "k"


@pytest.mark.parametrize(
    ("name", "settings", "text"),
    [
        ("elsewhere", {"ca": CA}, "certificate is for another host .* tls.server_name"),
        ("server", {"ca": CA, "server_name": "x.example"}, "certificate is for another host"),
        ("stranger", {"ca": CA}, "certificate is not trusted .* tls.ca"),
        ("server", {}, "certificate is not trusted"),
        (None, {"ca": CA}, "does it speak TLS|does not speak TLS"),
    ],
)
async def test_an_untrusted_server_gets_no_request(
    router: Router, name: str | None, settings: dict[str, Any], text: str
) -> None:
    async with server_of(router, name) as server:
        with pytest.raises(ConnectFailed, match=text):
            await asked(server, Tls(**settings))


async def test_a_server_that_requires_a_certificate_is_named_in_the_error(router: Router) -> None:
    async with server_of(router, asks=True) as server:
        with pytest.raises(CallError, match=r"wants? a certificate of ours"):
            await asked(server, Tls(ca=CA))


async def test_a_server_with_tls_closes_plain_connections(router: Router) -> None:
    async with server_of(router) as server:
        with pytest.raises(
            ConnectionLost, match=r"without a word: does it speak TLS alone\? Then set tls"
        ):
            await asked(server, None)


async def test_large_bodies_and_many_calls_pass(router: Router, kept: list[str]) -> None:
    async with server_of(router) as server:
        security = Security(context=Tls(ca=CA).context())
        channel = await Channel.connect("127.0.0.1", server.port, security=security)
        async with channel:
            big = GetKV(namespace="echo", key="x" * 200_000)
            replies = await asyncio.gather(*(channel.call(ECHO) for _ in range(200)))
            assert len(replies) == 200
            assert (await channel.call(big)).value == big.key


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"ca": "/nowhere/ca.pem"}, "tls.ca: /nowhere/ca.pem cannot be used: No such file"),
        ({"ca": __file__}, "tls.ca: .* cannot be used: no certificate or crl found"),
        ({"cert": CA}, "tls.cert: .* cannot be used"),
        ({"cert": HERE / "client.pem", "key": HERE / "server.key"}, "key values mismatch"),
        ({"key": HERE / "server.key"}, "of no use without tls.cert"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Tls(**settings).context()


def test_a_servers_files_are_checked_as_well() -> None:
    with pytest.raises(ConfigError, match=r"tls_cert: .*/ca.pem cannot be used"):
        ServerTls(cert=CA).context()
    with pytest.raises(ConfigError, match="tls_client_ca: /nowhere cannot be used"):
        ServerTls(cert=HERE / "server.pem", key=HERE / "server.key", client_ca="/nowhere").context()


def test_other_faults_keep_the_systems_words() -> None:
    assert tls_error(ConnectionRefusedError(111, "Connection refused")) == "Connection refused"
    assert "does it speak TLS? If not, set no tls" in tls_error(ConnectionResetError(104, "reset"))


def test_a_password_is_not_printed() -> None:
    tls = Tls(cert="c.pem", key="k.pem", key_password="hidden")
    assert "hidden" not in f"{tls!r} {tls.__rich_repr__()}"


@pytest.mark.parametrize(
    ("certificate", "name"),
    [
        (None, None),
        ({}, None),
        ({"subject": ((("countryName", "DE"),), (("commonName", "billing"),))}, "billing"),
        (
            {
                "subject": ((("commonName", "billing"),),),
                "subjectAltName": (("DNS", "other.example"),),
            },
            "billing",
        ),
        (
            {"subjectAltName": (("IP Address", "10.0.0.1"), ("URI", "spiffe://a/b"), ("DNS", "x"))},
            "spiffe://a/b",
        ),
        ({"subject": ((("countryName", "DE"),),)}, None),
    ],
)
def test_a_certificate_is_named_by_its_common_or_first_alternative_name(
    certificate: dict[str, Any] | None, name: str | None
) -> None:
    assert certificate_name(certificate) == name


def test_a_plain_socket_speaks_tls_as_well(router: Router) -> None:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = server_of(router)
    asyncio.run_coroutine_threadsafe(server.start(), loop).result()
    try:
        address = f"127.0.0.1:{server.port}"
        signer = Signer(Credentials(access_key="a", secret_key="s"))
        security = Security(context=Tls(ca=CA).context(), signer=signer)
        with BlockingChannel(address, security=security) as channel:
            for size in (1, 200_000):
                key = "x" * size
                assert channel.call(GetKV(namespace="echo", key=key)).value == key
        stranger = Security(context=Tls(ca=HERE / "stranger.pem").context())
        with pytest.raises(ConnectFailed, match="certificate is not trusted"):
            BlockingChannel(address, security=stranger)
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
