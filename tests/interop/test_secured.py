"""Our clients against Apache RocketMQ 5.5.0 with its own access control, and with TLS."""

import asyncio
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import genuine
from roquet.admin.client import AdminClient
from roquet.client import (
    ClientConfig,
    ConsumeFrom,
    ConsumerConfig,
    Message,
    PopConsumer,
    Producer,
    ProducerConfig,
    PullConsumer,
    PushConsumer,
    Tls,
)
from roquet.model.errors import CallRefused, ConnectFailed
from roquet.net.address import split_address
from roquet.wire.calls.offset import MaxOffset
from roquet.wire.codes import SerializeType
from roquet.wire.command import Command, decode
from roquet.wire.frame import FrameReader
from roquet.wire.signing import Credentials, Signer

pytestmark = pytest.mark.interop

CERTIFICATES = Path(__file__).parents[1] / "certificates"
CA = CERTIFICATES / "ca.pem"
KEYS: dict[str, Any] = {"access_key": "admin", "secret_key": "hush-hush"}
WRONG: dict[str, Any] = {"access_key": "admin", "secret_key": "guessed"}
OURS = Tls(ca=CA, cert=CERTIFICATES / "client.pem", key=CERTIFICATES / "client.key")

AUTH = "org.apache.rocketmq.auth"
ACCESS_CONTROL = {
    "authenticationEnabled": "true",
    "authenticationProvider": f"{AUTH}.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": (
        f"{AUTH}.authentication.provider.LocalAuthenticationMetadataProvider"
    ),
    "initAuthenticationUser": json.dumps(
        {"username": KEYS["access_key"], "password": KEYS["secret_key"]}
    ),
    "innerClientAuthenticationCredentials": json.dumps(
        {"accessKey": KEYS["access_key"], "secretKey": KEYS["secret_key"]}
    ),
    "authorizationEnabled": "true",
    "authorizationProvider": f"{AUTH}.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": (
        f"{AUTH}.authorization.provider.LocalAuthorizationMetadataProvider"
    ),
}


@pytest.fixture(scope="module")
def guarded(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[genuine.Genuine]:
    """One with access control; TLS as it is by default: permissive, with a made-up certificate."""
    with genuine.cluster(tmp_path_factory.mktemp("guarded"), **ACCESS_CONTROL) as running:
        yield running


@pytest.fixture(scope="module")
def enforcing(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[genuine.Genuine]:
    """One that speaks TLS alone, and wants a certificate of every client."""
    folder = tmp_path_factory.mktemp("enforcing")
    files = {"keyPath": "server.key", "certPath": "server.pem", "trustCertPath": "ca.pem"}
    settings = {
        "tls.test.mode.enable": "false",
        "tls.server.need.client.auth": "require",
        "tls.server.authClient": "true",
        "tls.client.authServer": "true",
        **{f"tls.server.{key}": str(CERTIFICATES / name) for key, name in files.items()},
        **{f"tls.client.{key}": str(CERTIFICATES / name) for key, name in files.items()},
    }
    properties = folder / "tls.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    options = [f"-Dtls.config.file={properties}", "-Dtls.enable=true"]
    options.append("-Dtls.server.mode=enforcing")
    with genuine.cluster(folder, options=options) as running:
        yield running


async def round_trip(namesrv: str, topic: str, **settings: Any) -> None:
    """Every kind of send, and every kind of consumer."""
    config = ProducerConfig(**settings)
    async with Producer(namesrv, group="secured", config=config) as producer:
        assert (await producer.send(topic, b"one", tag="T")).ok
        await producer.send_batch([Message(topic, b"two"), Message(topic, b"three")])
        await producer.send_oneway(topic, b"four")
        assert (await producer.send(topic, bytes(range(256)) * 4_000)).ok
    reading = ConsumerConfig(consume_from=ConsumeFrom.FIRST, **settings)
    for kind in (PushConsumer, PopConsumer):
        group = f"{topic}-{kind.__name__}"
        async with kind(namesrv, group=group, topic=topic, config=reading) as consumer:
            messages = await consumer.fetch(5, 40_000)
            for message in messages:
                await message.ack()
        assert {len(m.body) for m in messages} == {3, 5, 4, 1_024_000}
        assert len(messages) == 5
    async with PullConsumer(namesrv, group=f"{topic}-pull", config=reading) as audit:
        ends = [await audit.max_offset(queue) for queue in await audit.queues(topic)]
        assert sum(ends) == 5
    async with AdminClient(namesrv, ClientConfig(**settings)) as admin:
        (address,) = (await admin.brokers()).values()
        call = MaxOffset(topic=topic, queue_id=0)
        assert (await admin.ask(address, call)).offset == ends[0]


async def test_every_client_is_let_in_with_the_right_keys(guarded: genuine.Genuine) -> None:
    await round_trip(guarded.namesrv, "Signed", **KEYS)


async def test_the_keys_of_the_environment_do_as_well(
    guarded: genuine.Genuine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", KEYS["access_key"])
    monkeypatch.setenv("ROCKETMQ_SECRET_KEY", KEYS["secret_key"])
    async with Producer(guarded.namesrv) as producer:
        assert (await producer.send("FromEnvironment", b"one")).ok


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (WRONG, "check signature failed"),
        ({"access_key": "nobody", "secret_key": "x"}, "User:nobody is not found"),
        ({}, "username cannot be null"),
    ],
)
async def test_with_wrong_keys_the_brokers_words_come_through(
    guarded: genuine.Genuine, keys: dict[str, Any], message: str
) -> None:
    async with Producer(guarded.namesrv, config=ProducerConfig(**keys)) as producer:
        with pytest.raises(CallRefused, match=message) as error:
            await producer.send("Refused", b"one")
    assert "signed" in "".join(error.value.__notes__)
    config = ConsumerConfig(**keys)
    async with PushConsumer(guarded.namesrv, group="r", topic="Signed", config=config) as consumer:
        with pytest.raises(CallRefused, match=message):
            await consumer.next(30_000)


@pytest.mark.parametrize("kind", SerializeType)
async def test_both_forms_of_the_header_are_understood(
    guarded: genuine.Genuine, kind: SerializeType
) -> None:
    async with Producer(guarded.namesrv, config=ProducerConfig(**KEYS)) as producer:
        receipt = await producer.send("BothForms", b"one")
    call = MaxOffset(topic="BothForms", queue_id=receipt.queue.queue_id)
    for secret, code in ((KEYS["secret_key"], 0), ("guessed", 16)):
        signer = Signer(Credentials(access_key=KEYS["access_key"], secret_key=secret))
        frame = signer.encode_call(call, opaque=7, serialize_type=kind)
        assert (await asyncio.to_thread(answered, guarded.broker, frame)).code == code


def answered(address: str, frame: bytes) -> Command:
    """What a broker answers to one frame."""
    reader = FrameReader()
    with socket.create_connection(split_address(address), 10) as connection:
        connection.sendall(frame)
        while not (frames := list(reader.feed(connection.recv(65_536)))):
            pass
    return decode(frames[0])


async def test_a_permissive_server_takes_tls_and_plain_connections(
    guarded: genuine.Genuine,
) -> None:
    for tls in (Tls(verify=False), False):
        config = ProducerConfig(tls=tls, **KEYS)
        async with Producer(guarded.namesrv, config=config) as producer:
            assert (await producer.send("Permissive", b"one")).ok
    async with Producer(guarded.namesrv, config=ProducerConfig(tls=True, **KEYS)) as producer:
        with pytest.raises(ConnectFailed, match="certificate is not trusted"):
            await producer.send("Permissive", b"one")


async def test_with_certificates_on_both_sides_everything_works(
    enforcing: genuine.Genuine,
) -> None:
    await round_trip(enforcing.namesrv, "Enciphered", tls=OURS)


@pytest.mark.parametrize(
    ("tls", "message"),
    [
        (Tls(ca=CERTIFICATES / "stranger.pem"), "certificate is not trusted"),
        (Tls(ca=CA, server_name="elsewhere.example"), "certificate is for another host"),
        # The server may have hung up before its word on our missing certificate was read.
        (Tls(ca=CA), "wants? a certificate of ours|closed|hung up|reset"),
        (False, "without a word: does it speak TLS alone"),
    ],
)
async def test_an_untrusted_certificate_is_an_error_on_both_sides(
    enforcing: genuine.Genuine, tls: Tls, message: str
) -> None:
    async with Producer(enforcing.namesrv, config=ProducerConfig(tls=tls)) as producer:
        with pytest.raises(ConnectFailed, match=message):
            await producer.send("Enciphered", b"one")
