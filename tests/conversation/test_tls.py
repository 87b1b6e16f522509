"""A cluster by TLS: name server, brokers and clients, and certificates as users."""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from roquet.broker.app import BrokerServer
from roquet.broker.settings.config import BrokerConfig
from roquet.client import ConsumeFrom, ConsumerConfig, Producer, ProducerConfig, PushConsumer, Tls
from roquet.controller.app import ControllerServer
from roquet.controller.config import ControllerConfig
from roquet.lake.queue_offsets import QueueKey
from roquet.model.errors import CallError, CallRefused
from roquet.namesrv.app import NameServer
from roquet.namesrv.config import NameServerConfig
from roquet.net.blocking import BlockingChannel
from roquet.net.channel import Channel, Security
from roquet.net.tls import ClientAuth, ServerTls, TlsMode
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.options import parse as parse_source
from roquet.spark.sink.options import parse as parse_sink
from roquet.spark.sink.sender import open_connections
from roquet.testing.cluster import SMALL_BROKER
from roquet.wire.calls.access import CreateUser, ListUsers, UserInfo
from roquet.wire.calls.controller import ElectMaster
from roquet.wire.calls.offset import MaxOffset
from roquet.wire.fastjson import codec
from roquet.wire.signing import Credentials, Signer

pytestmark = pytest.mark.virtual_time(False)

HERE = Path(__file__).parents[1] / "certificates"
CA = HERE / "ca.pem"
PAIR: dict[str, Any] = {"cert": HERE / "server.pem", "key": HERE / "server.key"}
OURS = Tls(ca=CA, cert=HERE / "client.pem", key=HERE / "client.key")
SECURED: dict[str, Any] = {
    "tls_cert": PAIR["cert"], "tls_key": PAIR["key"], "tls_ca": CA, "tls_client_ca": CA,
}  # fmt: skip


def broker_of(**settings: Any) -> BrokerServer:
    local = {"host": "127.0.0.1", "port": 0, "advertise": "127.0.0.1", "vip_port": False}
    return BrokerServer(BrokerConfig(**{**local, **settings}))


def names_of(mode: TlsMode = TlsMode.ENFORCING) -> NameServer:
    tls = ServerTls(**PAIR, client_ca=CA, mode=mode)
    calls = Tls(ca=CA, **PAIR)
    return NameServer(NameServerConfig(host="127.0.0.1", port=0, tls=tls, calls=calls))


async def test_producers_and_consumers_speak_tls_to_name_server_and_broker() -> None:
    async with names_of() as names, broker_of(**SECURED, name_servers=(names.address,)):
        config = ProducerConfig(tls=OURS)
        async with Producer(names.address, config=config) as producer:
            receipts = [await producer.send("orders", b"%d" % n) for n in range(3)]
            assert all(receipt.ok for receipt in receipts)
        reading = ConsumerConfig(tls=OURS, consume_from=ConsumeFrom.FIRST)
        async with PushConsumer(
            names.address, group="g", topic="orders", config=reading
        ) as consumer:
            bodies = {message.body for message in await consumer.fetch(3, 10_000)}
            assert bodies == {b"0", b"1", b"2"}


async def test_a_permissive_cluster_serves_both_kinds_of_clients() -> None:
    settings = {**SECURED, "tls_mode": TlsMode.PERMISSIVE}
    async with (
        names_of(TlsMode.PERMISSIVE) as names,
        broker_of(**settings, name_servers=(names.address,)),
    ):
        for tls in (OURS, False):
            config = ProducerConfig(tls=tls)
            async with Producer(names.address, config=config) as producer:
                assert (await producer.send("orders", b"x")).ok


async def test_a_controller_and_its_brokers_call_each_other_by_tls(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = ControllerConfig(
        host="127.0.0.1", port=0, advertise="127.0.0.1", tls=ServerTls(**PAIR, client_ca=CA),
        calls=Tls(ca=CA, **PAIR),
    )  # fmt: skip
    async with ControllerServer(config) as controller, AsyncExitStack() as running:
        brokers = [
            await running.enter_async_context(
                broker_of(
                    **{**SMALL_BROKER, **SECURED}, store_dir=tmp_path / name, broker_name="g",
                    controller_mode=True, controllers=(controller.address,),
                    min_in_sync_replicas=1, ha_port=0,
                )
            )
            for name in ("one", "two")
        ]  # fmt: skip
        async with asyncio.timeout(20):
            await leads(brokers[0])
            elect = ElectMaster(
                cluster_name=brokers[0].config.cluster_name, broker_name="g", broker_id=2,
                designate_elect=True,
            )  # fmt: skip
            security = Security(context=OURS.context())
            async with await Channel.connect(
                "127.0.0.1", controller.port, security=security
            ) as channel:
                await elected(channel, elect)
            await leads(brokers[1])
        with pytest.raises(CallError):
            async with await Channel.connect("127.0.0.1", controller.port) as plain:
                await plain.call(elect)
    assert "was not told" not in caplog.text


async def leads(broker: BrokerServer) -> None:
    while not broker.broker.replication.role.current.is_master:  # noqa: ASYNC110
        await asyncio.sleep(0.02)


async def elected(channel: Channel, elect: ElectMaster) -> None:
    """Elect a broker, which may have to catch up before."""
    while True:
        try:
            await channel.call(elect)
        except CallRefused:
            await asyncio.sleep(0.1)
        else:
            return


USERS: dict[str, Any] = {
    **SECURED,
    "tls_client_auth": ClientAuth.OPTIONAL,
    "authentication_enabled": True,
    "certificate_users": True,
    "initial_user": Credentials(access_key="client", secret_key="secret"),
}
ASK = MaxOffset(topic="TBW102", queue_id=0)


async def asked(port: int, tls: Tls, signer: Signer | None = None) -> int:
    security = Security(context=tls.context(), signer=signer)
    async with await Channel.connect("127.0.0.1", port, security=security) as channel:
        return (await channel.call(ASK)).offset


async def test_the_name_of_a_certificate_is_the_user_of_requests_that_are_not_signed() -> None:
    async with broker_of(**USERS) as broker:
        assert await asked(broker.port, OURS) == 0
        with pytest.raises(CallRefused, match="username cannot be null"):
            await asked(broker.port, Tls(ca=CA))
        server = Tls(ca=CA, **PAIR)
        with pytest.raises(CallRefused, match="User:server is not found"):
            await asked(broker.port, server)


def latest(options: Mapping[str, str]) -> Mapping[QueueKey, int]:
    """The ends of all queues, as Spark's driver asks for them."""
    channels: dict[str, BlockingChannel] = {}
    try:
        return ClusterClient(parse_source(options, {}), channels=channels).latest()
    finally:
        for channel in channels.values():
            channel.close()


async def test_sparks_reads_and_writes_sign_and_speak_tls() -> None:
    """What driver and workers connect with; Spark itself is not needed for that."""
    async with names_of() as names, broker_of(**USERS, name_servers=(names.address,)) as broker:
        options = {
            "namesrv": names.address, "topic": "TBW102", "tlsCa": str(CA),
            "tlsCert": str(OURS.cert), "tlsKey": str(OURS.key),
        }  # fmt: skip
        signed = {**options, "accessKey": "client", "secretKey": "secret"}
        wrong = {**options, "accessKey": "client", "secretKey": "guessed"}
        for right in (options, signed):
            assert set((await asyncio.to_thread(latest, right)).values()) == {0}
            pool, _ = open_connections(parse_sink(right, {}))
            async with pool:
                assert (await pool.call(broker.address, ASK)).offset == 0
        with pytest.raises(CallRefused, match="check signature failed") as refused:
            await asyncio.to_thread(latest, wrong)
        assert "signed with access key 'client'" in "".join(refused.value.__notes__)


async def test_a_super_user_by_certificate_manages_users() -> None:
    async with broker_of(**USERS) as broker:
        security = Security(context=OURS.context())
        async with await Channel.connect("127.0.0.1", broker.port, security=security) as channel:
            body = codec.dumps(UserInfo(password="p", user_type="Super"))
            await channel.call(CreateUser(username="boss", body=body))
            users = codec.loads((await channel.call(ListUsers())).body, list[UserInfo])
        assert [(user.username, user.password) for user in users] == [
            ("boss", "p"), ("client", "secret"),
        ]  # fmt: skip


async def test_a_signature_counts_before_a_certificate() -> None:
    async with broker_of(**USERS) as broker:
        right, wrong = (
            Signer(Credentials(access_key="client", secret_key=secret))
            for secret in ("secret", "guessed")
        )
        assert await asked(broker.port, Tls(ca=CA), right) == 0
        with pytest.raises(CallRefused, match="check signature failed"):
            await asked(broker.port, OURS, wrong)


async def test_without_the_setting_a_certificate_names_nobody() -> None:
    async with broker_of(**{**USERS, "certificate_users": False}) as broker:
        with pytest.raises(CallRefused, match="username cannot be null"):
            await asked(broker.port, OURS)
