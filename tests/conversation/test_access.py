"""Access control: recorded conversations with a genuine broker, our clients, and attacks."""

import asyncio
import json
import logging
import struct
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from tests.conversation.conftest import SMALL, broker_of, next_of, pull_of, virtual_cluster

from roquet.access.gaps import ALL, AccessGap
from roquet.access.guard import AccessGuard
from roquet.broker.app import BrokerServer
from roquet.broker.handlers import HANDLERS
from roquet.broker.settings.config import BrokerConfig
from roquet.client import (
    ConsumeFrom,
    ConsumerConfig,
    Message,
    PopConsumer,
    Producer,
    ProducerConfig,
    PushConsumer,
)
from roquet.model.errors import CallRefused
from roquet.model.subscription import HeartbeatData, ProducerData
from roquet.net.channel import Channel, Security
from roquet.net.router import Router
from roquet.testing.clock import in_virtual_time, this_loop
from roquet.testing.cluster import cluster
from roquet.wire.call import Call, Reply
from roquet.wire.calls.access import (
    AclInfo,
    CreateAcl,
    CreateUser,
    ListUsers,
    PolicyInfo,
    UpdateUser,
    UserInfo,
)
from roquet.wire.calls.access import PolicyEntryInfo as Entry
from roquet.wire.calls.admin.settings import GetSettings, UpdateSettings
from roquet.wire.calls.heartbeat import Heartbeat
from roquet.wire.calls.offset import MaxOffset
from roquet.wire.calls.query import ViewMessage
from roquet.wire.calls.reply import PushReply, SendReplyMessage
from roquet.wire.calls.send import Send, SendBack
from roquet.wire.calls.transaction import CheckTransactionState
from roquet.wire.codes import RequestCode, ResponseCode
from roquet.wire.command import Command, decode
from roquet.wire.fastjson import codec
from roquet.wire.proxy_protocol import SIGNATURE
from roquet.wire.signing import Credentials, Signer

pytestmark = pytest.mark.virtual_time(False)

VECTORS = Path(__file__).parents[1] / "vectors" / "auth"

ROOT = Credentials(access_key="rootuser", secret_key="rootsecret")
INNER = Credentials(access_key="inneruser", secret_key="innersecret")

SECURED: dict[str, Any] = {
    "authentication_enabled": True,
    "authorization_enabled": True,
    "initial_user": ROOT,
    "inner_credentials": INNER,
}


class Exchange(NamedTuple):
    """One recorded request and its answer."""

    line: str
    """The file and the number of the line: `admin 1`."""
    header: str
    body: str
    code: int
    remark: str
    answer: str

    @property
    def opaque(self) -> int:
        """Place in its round."""
        return int(json.loads(self.header)["opaque"])

    @property
    def request_code(self) -> int:
        return int(json.loads(self.header)["code"])


def recorded(name: str) -> list[Exchange]:
    rows = map(json.loads, (VECTORS / f"{name}.jsonl").read_text("utf-8").splitlines())
    found = []
    for number, row in enumerate(rows, 1):
        out = json.loads(row["out"]["header"])
        found.append(
            Exchange(
                line=f"{name} {number}",
                header=row["in"]["header"],
                body=row["in"]["body"] or "",
                code=out["code"],
                remark=out.get("remark", ""),
                answer=row["out"]["body"] or "",
            )
        )
    return found


def in_order() -> list[Exchange]:
    """All exchanges as they were held: the tool's, then two rounds, each in order of opaques."""
    admin, others = recorded("admin"), recorded("requests")
    second = next(n for n, one in enumerate(others) if '"AccessKey": "dave"' in one.header)
    rounds = (admin[26:29] + others[:second], admin[29:] + others[second:])
    return admin[:26] + [one for part in rounds for one in sorted(part, key=lambda x: x.opaque)]


EXCHANGES = in_order()

REFUSED = int(ResponseCode.NO_PERMISSION)

ILLEGAL_TYPE = "The user type is illegal: it is one of Super, Normal"
STRICTER: Mapping[str, tuple[int, str]] = {
    "admin 34": (REFUSED, ILLEGAL_TYPE),
    "admin 39": (1, "The body of user is null"),
    "admin 56": (1, "The body of acl is null"),
    "admin 57": (1, "The body of acl is null"),
    "admin 64": (REFUSED, "The resource is null."),
    "requests 22": (0, ""),  # there, a remark that no client looks at
}
"""Where our answer differs whatever the settings: code and remark."""

OF_THE_BROKER = {21, 26, 28, 43, 201, 305}
"""Codes whose answers hold the broker's own settings, tables or counts."""

FOLLOWING = {"admin 36", "admin 46", "admin 65"}
"""Answers whose bodies differ since an earlier request was refused here."""

NOT_SUPER = "The acl can only be changed by super user"
CLOSED: Mapping[AccessGap, Mapping[str, tuple[int, str]]] = {
    AccessGap.CODES: {
        one.line: (
            REFUSED,
            "User:alice has no permission to access "
            f"{resource} from 127.0.0.1, no matched policies.",
        )
        for one in EXCHANGES
        for code, resource in {
            361: "Group:h-1",
            26: "Cluster:DefaultCluster",
            28: "Cluster:DefaultCluster",
            25: "Cluster:DefaultCluster",
            18: "Topic:viaList",
            200: "Group:sneaky",
            21: "Cluster:DefaultCluster",
            201: "Cluster:DefaultCluster",
            43: "Cluster:DefaultCluster",
            305: "Cluster:DefaultCluster",
            400: "Group:h-1",
        }.items()
        if one.request_code == code and '"AccessKey": "alice"' in one.header
    },
    AccessGap.POLICIES: {
        "admin 47": (REFUSED, NOT_SUPER),
        **{
            one.line: (
                REFUSED,
                "User:dave has no permission to access Topic:anything from 127.0.0.1, "
                "no matched policies.",
            )
            for one in EXCHANGES
            if '"b": "anything"' in one.header
        },
    },
}
"""Gaps of the genuine broker that are closed unless `access_compatibility` opens them."""


class RawClient:
    """Sends recorded bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def ask(self, header: str, body: str) -> Command:
        """The answer to a request of these bytes; a push in between does not count."""
        head, data = header.encode(), body.encode()
        size = 4 + len(head) + len(data)
        self._writer.write(struct.pack(">II", size, len(head)) + head + data)
        while True:
            (size,) = struct.unpack(">I", await self._reader.readexactly(4))
            command = decode(await self._reader.readexactly(size))
            if command.is_response:
                return command

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


async def raw_client(server: BrokerServer) -> RawClient:
    return RawClient(*await asyncio.open_connection("127.0.0.1", server.port))


@pytest.mark.parametrize("gaps", [(), (AccessGap.CODES,), (AccessGap.POLICIES,), ALL])
async def test_recorded_conversations_have_the_same_answers(gaps: tuple[AccessGap, ...]) -> None:
    other = dict(STRICTER)
    for gap in CLOSED.keys() - set(gaps):
        other |= CLOSED[gap]
    differences = {}
    async with broker_of(**SECURED, access_compatibility=gaps) as server:
        client = await raw_client(server)
        for one in EXCHANGES:
            reply = await client.ask(one.header, one.body)
            got = (reply.code, reply.remark or "")
            is_same = got == other.get(one.line, (one.code, one.remark))
            if got == (one.code, one.remark) and one.line not in FOLLOWING:
                is_same = one.request_code in OF_THE_BROKER or reply.body.decode() == one.answer
            if not is_same:
                differences[one.line] = (got, reply.body[:200])
        await client.close()
    assert differences == {}


@pytest.fixture
async def secured() -> AsyncIterator[BrokerServer]:
    async with broker_of(**SECURED) as server:
        yield server


async def call_as(server: BrokerServer, who: Credentials | None, call: Call[Any]) -> Any:
    security = Security(signer=None if who is None else Signer(who))
    async with await Channel.connect("127.0.0.1", server.port, security=security) as channel:
        return await channel.call(call)


async def make_user(server: BrokerServer, name: str, *entries: Entry) -> Credentials:
    """A normal user with these policies."""
    secret = f"{name}-secret"
    body = codec.dumps(UserInfo(password=secret))
    await call_as(server, ROOT, CreateUser(username=name, body=body))
    if entries:
        acl = AclInfo(policies=[PolicyInfo(entries=list(entries))])
        await call_as(server, ROOT, CreateAcl(subject=f"User:{name}", body=codec.dumps(acl)))
    return Credentials(access_key=name, secret_key=secret)


def allow(resource: str, *actions: str) -> Entry:
    return Entry(resource=resource, actions=list(actions), decision="Allow")


async def refusal(server: BrokerServer, who: Credentials | None, call: Call[Any]) -> str:
    with pytest.raises(CallRefused) as refused:
        await call_as(server, who, call)
    assert refused.value.code == ResponseCode.NO_PERMISSION
    return refused.value.remark or ""


def headers() -> Iterator[tuple[int, dict[str, Any]]]:
    """A request of each code, without fields."""
    for kind in HANDLERS:
        yield int(kind.code), {"code": int(kind.code), "opaque": 1, "language": "JAVA", "flag": 0}


async def test_every_code_is_refused_to_strangers(secured: BrokerServer) -> None:
    client = await raw_client(secured)
    forged = {"AccessKey": "rootuser", "Signature": "x7uMwHumSOwUmD/9qmbyQqVZzY8="}
    for fields, remark in (
        (None, "username cannot be null."),
        ({"AccessKey": "stranger", "Signature": "x"}, "User:stranger is not found."),
        ({"AccessKey": "rootuser"}, "check signature failed."),
        (forged, "check signature failed."),
    ):
        for code, header in headers():
            said = header if fields is None else {**header, "extFields": fields}
            reply = await client.ask(json.dumps(said), "")
            assert (code, reply.code, reply.remark) == (code, REFUSED, remark)
    await client.close()


async def test_a_user_without_policies_may_do_nothing_with_resources(secured: BrokerServer) -> None:
    bob = await make_user(secured, "bob")
    send = Send(producer_group="pg", topic="orders", queue_id=0, born_timestamp=1, body=b"x")
    assert "Topic:orders" in await refusal(secured, bob, send)
    assert "Cluster:DefaultCluster" in await refusal(secured, bob, GetSettings())


async def test_nobody_reads_a_message_by_position_or_a_send_back(secured: BrokerServer) -> None:
    send = Send(producer_group="pg", topic="secret", queue_id=0, born_timestamp=1, body=b"x")
    await call_as(secured, ROOT, send)
    spy = await make_user(secured, "spy", allow("Topic:own", "All"), allow("Group:own", "All"))
    view = ViewMessage(topic="own", offset=0)
    assert "Topic:secret" in await refusal(secured, spy, view)
    assert "Topic:secret" in await refusal(secured, spy, ViewMessage(offset=0))
    back = SendBack(offset=0, group="own", delay_level=0)
    assert "Topic:secret" in await refusal(secured, spy, back)
    reader = await make_user(secured, "reader", allow("Topic:*", "Get"))
    assert (await call_as(secured, reader, ViewMessage(offset=0))).body


async def registered(
    server: BrokerServer, who: Credentials, client_id: str, group: str
) -> tuple[Channel, list[Call[Any]]]:
    """A connection that is registered as a producer, and what it is shown."""
    shown: list[Call[Any]] = []
    router = Router()
    for kind in (CheckTransactionState, PushReply):
        router.add(kind, lambda call, _peer: shown.append(call))
    channel = await Channel.connect(
        "127.0.0.1", server.port, router=router, security=Security(signer=Signer(who))
    )
    data = HeartbeatData(client_id=client_id, producer_data_set=[ProducerData(group_name=group)])
    await channel.call(Heartbeat(body=codec.dumps(data)))
    return channel, shown


async def test_nobody_is_shown_half_messages_that_he_may_not_send() -> None:
    quick: dict[str, Any] = {"transaction_timeout": 1, "transaction_check_interval": 20}
    async with broker_of(**SECURED, **quick) as server:
        shop = await make_user(server, "shop", allow("Topic:orders", "Pub"))
        spy = await make_user(server, "spy", allow("Topic:own", "All"), allow("Group:*", "All"))
        listening, seen = await registered(server, spy, "spy@1", "shop")
        half = Send(
            producer_group="shop", topic="orders", queue_id=0, born_timestamp=1, body=b"secret",
            sys_flag=4, properties="TRAN_MSG\x01true\x02PGROUP\x01shop\x02UNIQ_KEY\x01k\x02",
        )  # fmt: skip
        await call_as(server, shop, half)
        await asyncio.sleep(0.2)
        own, shown = await registered(server, shop, "shop@1", "shop")
        for _ in range(500):
            if shown:
                break
            await asyncio.sleep(0.02)
        assert shown
        assert seen == []
        await listening.close()
        await own.close()


async def test_nobody_takes_the_replies_of_another_users_client(secured: BrokerServer) -> None:
    shop = await make_user(secured, "shop", allow("Topic:*", "Pub"))
    spy = await make_user(secured, "spy", allow("Topic:own", "All"))
    own, shown = await registered(secured, shop, "shop@1", "shop")
    listening, seen = await registered(secured, spy, "shop@1", "shop")
    reply = SendReplyMessage(
        producer_group="p", topic="DefaultCluster_REPLY_TOPIC", queue_id=0, born_timestamp=1,
        body=b"secret", properties="CORRELATION_ID\x01c\x02REPLY_TO_CLIENT\x01shop@1\x02",
    )  # fmt: skip
    await call_as(secured, shop, reply)
    assert ([call.body for call in shown], seen) == ([b"secret"], [])
    await listening.close()
    await own.close()


async def test_a_waiting_pull_gets_nothing_once_its_user_is_disabled(secured: BrokerServer) -> None:
    bob = await make_user(secured, "bob", allow("Topic:orders", "All"), allow("Group:g", "Sub"))
    send = Send(producer_group="pg", topic="orders", queue_id=0, born_timestamp=1, body=b"x")
    await call_as(secured, ROOT, send)
    pull = pull_of(1, consumer_group="g", topic="orders", max_msg_nums=1, expression_type="TAG")
    waiting = asyncio.create_task(call_as(secured, bob, pull))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    off = codec.dumps(UserInfo(user_status="disable"))
    await call_as(secured, ROOT, UpdateUser(username="bob", body=off))
    await call_as(secured, ROOT, send)
    with pytest.raises(CallRefused, match=r"User:bob is disabled\."):
        await waiting


async def test_who_may_change_the_cluster_names_no_replica(secured: BrokerServer) -> None:
    dave = await make_user(secured, "dave", allow("Cluster:*", "All"))
    settings = secured.broker.control.settings
    for key in ("ha_replicas", "ha-replicas", "ha_plain_replicas"):
        body = f"{key}=0.0.0.0/0\nlongPollingEnable=false".encode()
        remark = await refusal(secured, dave, UpdateSettings(body=body))
        assert remark == f"{key.replace('-', '_')} can only be changed by super user"
    assert settings.config.long_polling, "all of them, or none"
    await call_as(secured, dave, UpdateSettings(body=b"longPollingEnable=false"))
    await call_as(secured, ROOT, UpdateSettings(body=b"ha_replicas=10.0.0.7"))
    assert settings.config.ha_replicas == ("10.0.0.7",)


async def test_who_may_change_the_cluster_does_not_become_super(secured: BrokerServer) -> None:
    dave = await make_user(secured, "dave", allow("Cluster:*", "All"))
    acl = AclInfo(policies=[PolicyInfo(entries=[allow("*", "All")])])
    call = CreateAcl(subject="User:dave", body=codec.dumps(acl))
    assert await refusal(secured, dave, call) == NOT_SUPER
    listed = await call_as(secured, dave, ListUsers())
    assert b"secret" not in listed.body
    body = codec.dumps(UserInfo(password="p", user_type="Super"))
    with pytest.raises(CallRefused, match="can only be create by super user"):
        await call_as(secured, dave, CreateUser(username="evil", body=body))
    users = codec.loads((await call_as(secured, ROOT, ListUsers())).body, list[UserInfo])
    assert [user.username for user in users] == ["dave", "inneruser", "rootuser"]


@pytest.mark.parametrize("gaps", [(), *((gap,) for gap in AccessGap), ALL])
async def test_each_gap_opens_what_it_names_and_nothing_else(gaps: tuple[AccessGap, ...]) -> None:
    config = BrokerConfig(**SMALL, **SECURED, access_compatibility=gaps)
    async with BrokerServer(config) as server:
        secret = Send(producer_group="pg", topic="secret", queue_id=0, born_timestamp=1, body=b"x")
        await call_as(server, ROOT, secret)
        spy = await make_user(server, "spy", allow("Topic:own", "All"), allow("Group:own", "All"))
        dave = await make_user(server, "dave", allow("Cluster:*", "All"))
        acl = codec.dumps(AclInfo(policies=[PolicyInfo(entries=[allow("Topic:x", "Pub")])]))

        async def serves(who: Credentials, call: Call[Any]) -> bytes:
            try:
                reply = await call_as(server, who, call)
            except CallRefused:
                return b""
            return bytes(reply.body) or b"done"

        view = ViewMessage(topic="own", offset=0)
        replicas = UpdateSettings(body=b"ha_replicas=10.0.0.7")
        found = {
            AccessGap.CODES: bool(await serves(spy, GetSettings())),
            AccessGap.MESSAGES: bool(await serves(spy, view)),
            AccessGap.TRANSACTION_CHECKS: server.broker.access.may_send("spy", "secret", "1.2.3.4"),
            AccessGap.REPLICA_LOG: not config.proves_replicas,
            AccessGap.POLICIES: bool(await serves(dave, CreateAcl(subject="User:dave", body=acl))),
            AccessGap.PASSWORDS: b"rootsecret" in await serves(dave, ListUsers()),
        }
        assert {gap for gap, is_open in found.items() if is_open} == set(gaps)
        assert bool(await serves(dave, replicas)) == (AccessGap.REPLICA_LOG in gaps)


async def test_secrets_are_in_no_log_error_or_printed_setting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    config = BrokerConfig(**SMALL, **SECURED, store_dir=tmp_path)
    async with BrokerServer(config) as server:
        await make_user(server, "bob", allow("Topic:orders", "Pub"))
        shown: Reply = await call_as(server, ROOT, GetSettings())
        assert b"initAuthenticationUser=******" in shown.body
        wrong = Credentials(access_key="bob", secret_key="other")
        refused = await refusal(server, wrong, GetSettings())
        printed = f"{config!r} {server.broker.access.tables!r}"
    for text in (shown.body.decode(), caplog.text, printed, refused):
        for secret in ("rootsecret", "innersecret", "bob-secret"):
            assert secret not in text


async def test_users_and_policies_survive_a_restart(tmp_path: Path) -> None:
    config = BrokerConfig(**SMALL, **SECURED, store_dir=tmp_path)
    async with BrokerServer(config) as server:
        bob = await make_user(server, "bob", allow("Topic:orders", "Pub"))
    path = tmp_path / "config" / "access.json"
    assert path.stat().st_mode & 0o777 == 0o600
    async with BrokerServer(config) as server:
        send = Send(producer_group="pg", topic="orders", queue_id=0, born_timestamp=1, body=b"x")
        assert (await call_as(server, bob, send)).queue_offset == 0


async def test_an_open_broker_manages_no_users(server: BrokerServer) -> None:
    with pytest.raises(CallRefused, match="this broker checks no users") as refused:
        await call_as(server, None, ListUsers())
    assert refused.value.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert int(RequestCode.AUTH_LIST_USER) == 3005


async def test_our_clients_work_with_the_rights_that_they_need() -> None:
    async with cluster(**SECURED) as running:
        server = running.brokers[0]
        await make_user(
            server, "app", allow("Topic:orders", "Pub", "Sub", "Get"), allow("Group:g", "Sub")
        )
        keys: dict[str, Any] = {"access_key": "app", "secret_key": "app-secret"}
        config = ProducerConfig(**keys)
        async with Producer(running.namesrv_addr, config=config) as producer:
            await producer.send(Message("orders", b"one"))
            with pytest.raises(CallRefused, match="no permission to access Topic:other"):
                await producer.send(Message("other", b"two"))
        got = []
        settings = ConsumerConfig(**keys, consume_from=ConsumeFrom.FIRST)
        async with PushConsumer(
            running.namesrv_addr, group="g", topic="orders", config=settings
        ) as consumer:
            message = await next_of(consumer, 10_000)
            got.append(message.body)
            await message.ack()
        assert got == [b"one"]


@pytest.mark.parametrize("is_v2", [None, False])
@in_virtual_time
async def test_a_popping_group_fails_again_and_again_with_rights_on_itself_and_its_topic(
    is_v2: bool | None, caplog: pytest.LogCaptureFixture
) -> None:
    clock = this_loop().clock
    async with virtual_cluster(retry_topic_v2=is_v2, **SECURED) as running:
        await make_user(
            running.brokers[0], "app", allow("Topic:Orders", "Pub", "Sub"),
            allow("Group:popping", "Sub", "Get"),
        )  # fmt: skip
        keys: dict[str, Any] = {"access_key": "app", "secret_key": "app-secret", "clock": clock}
        async with Producer(running.namesrv_addr, config=ProducerConfig(**keys)) as producer:
            await producer.send(Message("Orders", b"one"))
        settings = ConsumerConfig(**keys, consume_from=ConsumeFrom.FIRST, retries_max=9)
        tries: list[int] = []
        async with PopConsumer(
            running.namesrv_addr, group="popping", topic="Orders", config=settings
        ) as consumer:
            while len(tries) < 4 and (message := await consumer.next(20_000)) is not None:
                tries.append(message.reconsume_times)
                await (message.nack(500) if len(tries) < 4 else message.ack())
        assert tries == [0, 1, 2, 3]
        assert "no permission" not in caplog.text
        assert len(running.brokers[0].broker.delivery.revive.in_flight) == 0


async def test_an_open_broker_has_a_plain_router(monkeypatch: pytest.MonkeyPatch) -> None:
    def checked(*_: object) -> None:
        raise AssertionError("a broker without access control has checked a request")

    monkeypatch.setattr(AccessGuard, "admit", checked)
    async with broker_of() as server:
        send = Send(producer_group="pg", topic="orders", queue_id=0, born_timestamp=1, body=b"x")
        assert (await call_as(server, None, send)).queue_offset == 0


async def test_a_replica_follows_its_master_as_the_inner_user() -> None:
    async with cluster(**SECURED) as running:
        replica = await running.add_replica()
        bob = await make_user(running.brokers[0], "bob", allow("Topic:orders", "Pub"))
        send = Send(producer_group="pg", topic="orders", queue_id=0, born_timestamp=1, body=b"x")
        await call_as(running.brokers[0], bob, send)
        for _ in range(200):
            if replica.broker.tables.topics.get("orders") and replica.broker.log.store.end_position:
                break
            await asyncio.sleep(0.05)
        assert replica.broker.tables.topics.get("orders") is not None
        assert replica.broker.log.store.end_position > 0
        assert await refusal(replica, bob, GetSettings()) == "User:bob is not found."


ASK = MaxOffset(topic="TBW102", queue_id=0)


async def answered(server: BrokerServer, user: Credentials, header: bytes) -> Command:
    """The answer to a signed request behind a PROXY header."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(header + Signer(user).encode_call(ASK, opaque=1))
    (size,) = struct.unpack(">I", await reader.readexactly(4))
    reply = decode(await reader.readexactly(size))
    writer.close()
    return reply


@pytest.mark.virtual_time(False)
async def test_policies_on_addresses_go_by_the_client_behind_the_balancer() -> None:
    async with broker_of(**SECURED, proxy_protocol_from=("127.0.0.1",)) as server:
        entry = msgspec.structs.replace(allow("Topic:TBW102", "Get"), source_ips=["192.0.2.0/24"])
        ann = await make_user(server, "ann", entry)
        inside, outside = (
            b"PROXY TCP4 %s 10.0.0.1 56324 10911\r\n" % ip for ip in (b"192.0.2.7", b"198.51.100.7")
        )
        binary = SIGNATURE + b"\x21\x11\0\x0c" + bytes([192, 0, 2, 8, 10, 0, 0, 1, 0, 7, 0, 9])
        for header in (inside, binary):
            assert (await answered(server, ann, header)).code == ResponseCode.SUCCESS
        for header, ip in ((outside, "198.51.100.7"), (b"", "127.0.0.1")):
            reply = await answered(server, ann, header)
            assert reply.code == ResponseCode.NO_PERMISSION
            assert f"from {ip}" in (reply.remark or "")
