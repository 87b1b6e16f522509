"""Keys and TLS, from the settings and environment to what brokers see."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.client.conftest import FakeBroker, config_of, fake_cluster, next_of

from roquet.client.config import ClientConfig, ConsumerConfig, ProducerConfig
from roquet.client.connection.security import connection_security, resolve_credentials, resolve_tls
from roquet.client.producer import Producer
from roquet.client.push import PushConsumer
from roquet.model.errors import CallRefused, ConfigError
from roquet.model.message import Message
from roquet.net.router import Peer
from roquet.net.tls import Tls
from roquet.wire.calls.heartbeat import Heartbeat, HeartbeatReply
from roquet.wire.codes import ResponseCode
from roquet.wire.command import Command

KEYS = {"access_key": "admin", "secret_key": "hush"}
ENVIRONMENT = {"ROCKETMQ_ACCESS_KEY": "env", "ROCKETMQ_SECRET_KEY": "quiet\n"}


def found(environ: dict[str, str], **settings: Any) -> tuple[str, str, str | None] | None:
    keys = resolve_credentials(ClientConfig(**settings), environ)
    return None if keys is None else (keys.access_key, keys.secret_key, keys.security_token)


def test_keys_come_from_the_settings_else_from_the_environment() -> None:
    assert found({}) is None
    assert found({}, **KEYS) == ("admin", "hush", None)
    assert found({}, **KEYS, security_token="t") == ("admin", "hush", "t")
    assert found(ENVIRONMENT) == ("env", "quiet", None)
    assert found(ENVIRONMENT, **KEYS) == ("admin", "hush", None)
    assert found(ENVIRONMENT, access_key="admin") == ("admin", "quiet", None)


def test_a_token_of_the_environment_belongs_to_the_keys_of_the_environment() -> None:
    environ = {**ENVIRONMENT, "ROCKETMQ_SECURITY_TOKEN": "t"}
    assert found(environ) == ("env", "quiet", "t")
    assert found(environ, **KEYS) == ("admin", "hush", None)


def test_empty_keys_are_no_keys() -> None:
    assert found({"ROCKETMQ_ACCESS_KEY": "", "ROCKETMQ_SECRET_KEY": " "}) is None


def test_a_key_without_its_secret_is_refused() -> None:
    with pytest.raises(ConfigError, match="access key a without secret_key"):
        found({}, access_key="a")
    with pytest.raises(ConfigError, match="without access_key") as told:
        found({}, secret_key="hush")
    assert "hush" not in str(told.value)


@pytest.mark.parametrize(
    ("setting", "environ", "expected"),
    [
        (None, {}, None),
        (False, {"ROCKETMQ_TLS": "true"}, None),
        (True, {}, Tls()),
        ("ca.pem", {"ROCKETMQ_TLS_CERT": "c"}, Tls(ca="ca.pem")),
        (Path("ca.pem"), {}, Tls(ca=Path("ca.pem"))),
        (Tls(verify=False), {}, Tls(verify=False)),
        (None, {"ROCKETMQ_TLS": "on"}, Tls()),
        (None, {"ROCKETMQ_TLS": "off", "ROCKETMQ_TLS_CA": "a"}, None),
        (None, {"ROCKETMQ_TLS_CA": "a"}, Tls(ca="a")),
        (True, {"ROCKETMQ_TLS_SERVER_NAME": "n"}, Tls(server_name="n")),
        (True, {"ROCKETMQ_TLS_CERT": "c", "ROCKETMQ_TLS_KEY": "k"}, Tls(cert="c", key="k")),
    ],
)  # fmt: skip
def test_tls_is_chosen_by_the_settings_else_by_the_environment(
    setting: Any, environ: dict[str, str], expected: Tls | None
) -> None:
    assert resolve_tls(ClientConfig(tls=setting), environ) == expected


def test_an_unreadable_tls_switch_is_refused() -> None:
    with pytest.raises(ConfigError, match="ROCKETMQ_TLS: 'perhaps'"):
        resolve_tls(ClientConfig(), {"ROCKETMQ_TLS": "perhaps"})


def test_a_client_without_keys_or_tls_has_neither_signer_nor_context() -> None:
    plain = connection_security(ClientConfig(), {})
    assert (plain.context, plain.signer) == (None, None)
    assert plain.arguments("h") == {}


@pytest.mark.parametrize("kind", [ClientConfig, ProducerConfig, ConsumerConfig])
def test_secrets_are_not_printed(kind: Any) -> None:
    config = kind(**KEYS, security_token="token", tls=Tls(key_password="pass"))
    printed = f"{config!r} {config} {config.__rich_repr__()}"
    assert "admin" in printed
    assert not [secret for secret in ("hush", "token'", "pass'") if f"'{secret}" in printed]


class AccessGuard:
    """Refuses all requests, or only records them."""

    def __init__(self, broker: FakeBroker, *, lets_in: bool) -> None:
        self.seen: list[Command] = []
        self.lets_in = lets_in
        broker.router.inspect = self.inspect

    def inspect(self, command: Command) -> None:
        self.seen.append(command)
        if not self.lets_in:
            raise CallRefused(ResponseCode.NO_PERMISSION, "check signature failed.")


async def test_every_request_of_every_client_is_signed() -> None:
    async with fake_cluster(t={"a": 1}) as cluster:
        guard = AccessGuard(cluster.a, lets_in=True)
        async with Producer(cluster.address, config=config_of(ProducerConfig, **KEYS)) as producer:
            await producer.send("t", b"one")
            await producer.send_oneway("t", b"two")
            await producer.send_batch([Message("t", b"three"), Message("t", b"four")])
        config = config_of(ConsumerConfig, **KEYS)
        async with PushConsumer(cluster.address, group="g", topic="t", config=config) as consumer:
            await consumer.next(5_000)
            await asyncio.sleep(10)
        assert {command.code for command in guard.seen} >= {310, 320, 34, 35, 11, 38, 14, 15}
        assert all(command.ext["AccessKey"] == "admin" for command in guard.seen)
        assert all(command.ext["Signature"] for command in guard.seen)


async def test_a_producer_raises_the_brokers_refusal_of_its_keys() -> None:
    async with fake_cluster(t={"a": 1}) as cluster:
        guard = AccessGuard(cluster.a, lets_in=False)
        async with Producer(cluster.address, config=config_of(ProducerConfig, **KEYS)) as producer:
            with pytest.raises(CallRefused, match="check signature failed") as told:
                await producer.send("t", b"one")
            assert "signed with access key 'admin'" in "".join(told.value.__notes__)
            await asyncio.sleep(300)
        assert len([command for command in guard.seen if command.code == 310]) == 3
        assert len(guard.seen) < 20


async def test_a_consumer_without_access_ends_refused(caplog: pytest.LogCaptureFixture) -> None:
    async with fake_cluster(t={"a": 1}) as cluster:
        guard = AccessGuard(cluster.a, lets_in=False)
        config = config_of(ConsumerConfig)

        async def handle(message: object) -> None:
            raise AssertionError(message)

        async with PushConsumer(cluster.address, group="g", topic="t", config=config) as consumer:
            with pytest.raises(CallRefused, match="check signature failed") as told:
                await consumer.run(handle)
            with pytest.raises(CallRefused):
                await consumer.next()
            with pytest.raises(CallRefused):
                await consumer.fetch(3)
            assert "not signed: give access_key and secret_key" in "".join(told.value.__notes__)
            before = len(guard.seen)
            await asyncio.sleep(300)
            assert len(guard.seen) == before  # it is not tried for ever
            assert not consumer.is_open
    assert "group g: no broker grants access: code 16" in caplog.text


async def test_a_consumer_that_had_access_waits_until_it_has_access_again() -> None:
    async with fake_cluster(t={"a": 1}) as cluster:
        is_shut = False
        heartbeat = cluster.a.heartbeat

        def guarded(call: Heartbeat, peer: Peer) -> HeartbeatReply:
            if is_shut:
                raise CallRefused(ResponseCode.NO_PERMISSION, "not now")
            reply: HeartbeatReply = heartbeat(call, peer)
            return reply

        cluster.a.handlers[Heartbeat] = guarded
        config = config_of(ConsumerConfig, **KEYS)
        async with PushConsumer(cluster.address, group="g", topic="t", config=config) as consumer:
            await asyncio.sleep(5)
            is_shut = True
            await asyncio.sleep(100)
            is_shut = False
            await asyncio.sleep(40)
            cluster.a.put("t", 0, b"still here")
            message = await next_of(consumer, 30_000)
            assert message.body == b"still here"
