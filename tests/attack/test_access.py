"""Attacks on access control: strangers, forged and repeated requests, names and logins of any kind.

A broker, a name server and a controller check users; each request code of the protocol is tried on
each of them.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from roquet.access.guard import LINE_LENGTH_MAX
from roquet.access.translation import encode_document
from roquet.broker import app as broker_app
from roquet.broker.app import BrokerServer
from roquet.broker.handlers import HANDLERS
from roquet.broker.settings.config import BrokerConfig
from roquet.controller import app as controller_app
from roquet.controller.app import ControllerServer
from roquet.controller.config import ControllerConfig
from roquet.controller.handlers import HANDLERS as CONTROLLER_HANDLERS
from roquet.model.access import AccessTables, User, UserStatus, UserType
from roquet.model.errors import CallError, CallRefused
from roquet.namesrv import app as namesrv_app
from roquet.namesrv.app import NameServer
from roquet.namesrv.config import NameServerConfig
from roquet.namesrv.handlers import HANDLERS as NAME_SERVER_HANDLERS
from roquet.net.channel import Channel, Security
from roquet.testing.cluster import SMALL_BROKER
from roquet.wire.calls.access import CreateAcl, CreateUser, ListUsers, UserInfo
from roquet.wire.calls.send import Send
from roquet.wire.codes import RequestCode, ResponseCode
from roquet.wire.command import Command, decode, json_pairs
from roquet.wire.compact import encode_compact, write_pairs
from roquet.wire.fastjson import codec
from roquet.wire.fields import HEADER_CODECS
from roquet.wire.frame import FrameReader
from roquet.wire.signing import ACCESS_KEY, SIGNATURE, Credentials, Signer

pytestmark = pytest.mark.attack

USERS: Final = {
    "root": User(name="root", password="rootsecret", user_type=UserType.SUPER),
    "bob": User(name="bob", password="bobsecret"),
    "off": User(name="off", password="offsecret", status=UserStatus.DISABLE),
}
ROOT: Final = Signer(Credentials(access_key="root", secret_key="rootsecret"))
BOB: Final = Signer(Credentials(access_key="bob", secret_key="bobsecret"))

STRANGERS: Final[Mapping[str, Signer | None]] = {
    "unsigned": None,
    "wrongly signed": Signer(Credentials(access_key="root", secret_key="guessed")),
    "unknown": Signer(Credentials(access_key="eve", secret_key="evesecret")),
    "disabled": Signer(Credentials(access_key="off", secret_key="offsecret")),
}

CODES: Final = (*map(int, RequestCode), 0, -1, 9_999, 2**31 - 1)
"""Every request of the protocol, and numbers that are none."""


class RawConnection:
    """Sends requests as they are made here, signed or not."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._frames = FrameReader()

    async def ask(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> Command:
        """The answer to a request of this code, whatever the fields are."""
        return await self.repeat(frame(code, fields, body))

    async def repeat(self, data: bytes) -> Command:
        """The answer to these bytes; requests of the server in between do not count."""
        self._writer.write(data)
        while True:
            for found in self._frames.feed(await self._reader.read(65_536)):
                if (command := decode(found)).is_response:
                    return command

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


def compact_frame(code: int, fields: Mapping[str, str], body: bytes = b"") -> bytes:
    """The bytes of a request with the header in the compact form."""
    return encode_compact(code, 0, 7, (0, 500), None, write_pairs(dict(fields)), body)


def frame(code: int, fields: Mapping[str, str], body: bytes = b"") -> bytes:
    """The bytes of a request with the header in JSON."""
    pairs = json_pairs(dict(fields))
    start = f'{{"code":{code},"flag":0,"language":"JAVA","opaque":7,"version":500,"extFields":{{'
    header = start.encode() + pairs.lstrip(b",") + b"}}"
    size = (4 + len(header) + len(body)).to_bytes(4, "big")
    return size + len(header).to_bytes(4, "big") + header + body


async def connect(port: int) -> RawConnection:
    return RawConnection(*await asyncio.open_connection("127.0.0.1", port))


def signed(signer: Signer | None, fields: Mapping[str, str], body: bytes = b"") -> dict[str, str]:
    return dict(fields) if signer is None else signer.sign(fields, body)


FORMS: Final = {"JSON": frame, "compact": compact_frame}


@pytest.fixture
async def broker(frequent_looks: None, tmp_path: Path) -> AsyncIterator[BrokerServer]:
    folder = tmp_path / "broker" / "config"
    folder.mkdir(parents=True)
    (folder / "access.json").write_bytes(encode_document(AccessTables(users=USERS)))
    config = BrokerConfig(
        **SMALL_BROKER, store_dir=folder.parent,
        authentication_enabled=True, authorization_enabled=True,
    )  # fmt: skip
    async with BrokerServer(config) as server:
        yield server


@pytest.fixture
def frequent_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files with users are looked at each twentieth of a second."""
    for module in (broker_app, namesrv_app, controller_app):
        monkeypatch.setattr(module, "RELOAD_MS", 50)


@pytest.fixture
async def ports(broker: BrokerServer, tmp_path: Path) -> AsyncIterator[Mapping[str, int]]:
    """Ports of a broker, a name server and a controller that check users."""
    path = tmp_path / "access.json"
    path.write_bytes(encode_document(AccessTables(users=USERS)))
    common: dict[str, Any] = {"host": "127.0.0.1", "port": 0, "access_file": path}
    async with AsyncExitStack() as servers:
        names = await servers.enter_async_context(NameServer(NameServerConfig(**common)))
        controller = ControllerServer(ControllerConfig(**common))
        await servers.enter_async_context(controller)
        yield {"broker": broker.port, "namesrv": names.port, "controller": controller.port}


FIELDS: Final = {"topic": "orders", "consumerGroup": "g", "subject": "User:x"}


async def refused(
    ports: Mapping[str, int], requests: Mapping[int, bytes], remark: str | None = None
) -> None:
    """Make sure that each server refuses each request, by its code, and says nothing else."""
    for name, port in ports.items():
        connection = await connect(port)
        for code, request in requests.items():
            reply = await connection.repeat(request)
            said = reply.remark if remark is None else remark
            assert (name, code, reply.code, reply.remark) == (
                name, code, ResponseCode.NO_PERMISSION, said,
            )  # fmt: skip
            assert (reply.body, reply.ext) == (b"", {})
        await connection.close()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("who", STRANGERS)
async def test_every_code_of_every_server_is_refused_to_a_stranger(
    ports: Mapping[str, int], who: str, form: str
) -> None:
    fields = signed(STRANGERS[who], FIELDS)
    await refused(ports, {code: FORMS[form](code, fields) for code in CODES})


@pytest.mark.parametrize("form", FORMS)
async def test_a_super_users_request_of_any_code_that_was_changed_on_its_way_is_refused(
    ports: Mapping[str, int], form: str
) -> None:
    other_topic = signed(ROOT, FIELDS) | {"topic": "others"}
    other_body = signed(ROOT, FIELDS, b"{}")
    for fields, body in ((other_topic, b""), (other_body, b"[]"), (other_body, b"")):
        requests = {code: FORMS[form](code, fields, body) for code in CODES}
        await refused(ports, requests, "check signature failed.")


async def test_a_recorded_request_of_any_code_is_refused_once_its_user_is_disabled(
    ports: Mapping[str, int], tmp_path: Path
) -> None:
    fields = signed(BOB, FIELDS)
    recorded = {code: frame(code, fields) for code in CODES}
    off = USERS | {"bob": msgspec.structs.replace(USERS["bob"], status=UserStatus.DISABLE)}
    for path in (tmp_path / "access.json", tmp_path / "broker" / "config" / "access.json"):
        path.write_bytes(encode_document(AccessTables(users=off)))
    for port in ports.values():
        await until_refused(port, recorded[RequestCode.GET_BROKER_CONFIG], "is disabled.")
    await refused(ports, recorded, "User:bob is disabled.")


async def until_refused(port: int, request: bytes, words: str) -> None:
    """Wait until a server has read the users again."""
    connection = await connect(port)
    for _ in range(200):
        if words in ((await connection.repeat(request)).remark or ""):
            break
        await asyncio.sleep(0.05)
    await connection.close()


@pytest.mark.parametrize("server", ["namesrv", "controller"])
async def test_a_user_without_policies_gets_nothing_from_name_servers_and_controllers(
    ports: Mapping[str, int], server: str
) -> None:
    handlers = NAME_SERVER_HANDLERS if server == "namesrv" else CONTROLLER_HANDLERS
    for value in ("orders", "0", "1", "true"):
        requests = {}
        for call in handlers:
            fields = {one.wire_name: value for one in HEADER_CODECS[call].fields}
            requests[int(call.code)] = frame(int(call.code), signed(BOB, fields))
        await refused({server: ports[server]}, requests)


def state(broker: BrokerServer) -> object:
    """All that requests can change for others."""
    tables = broker.broker.tables
    return (
        broker.broker.log.store.end_position,
        msgspec.json.encode(tables.topics.content().topic_config_table),
        msgspec.json.encode(tables.groups.content()),
        [key for key in tables.offsets.content().offset_table if "RMQ_SYS_TRANS" not in key],
        broker.broker.access.tables,
        broker.broker.control.settings.config,
    )


async def test_a_user_without_policies_changes_nothing_by_any_request(
    broker: BrokerServer,
) -> None:
    channel = await Channel.connect("127.0.0.1", broker.port, security=Security(signer=ROOT))
    for topic in ("orders", "%RETRY%orders"):
        await channel.call(
            Send(producer_group="p", topic=topic, queue_id=0, born_timestamp=1, body=b"x")
        )
    await channel.close()
    before = state(broker)
    connection = await connect(broker.port)
    bodies = (b"", b"{}", b'{"topicConfigList":[{"topicName":"evil"}],"groupName":"evil"}', b"a=b")
    for value in ("orders", "0", "1", "%RETRY%orders", "User:bob"):
        for call in HANDLERS:
            fields = {one.wire_name: value for one in HEADER_CODECS[call].fields}
            fields.pop(ACCESS_KEY, None)
            for body in bodies:
                reply = await connection.ask(int(call.code), signed(BOB, fields, body), body)
                assert reply.code != 0 or not reply.body, (call, value, body, reply.body[:80])
    await connection.close()
    assert state(broker) == before


async def test_a_request_that_is_repeated_passes_unchanged_alone(broker: BrokerServer) -> None:
    """The protocol has no numbers that count up: TLS keeps others from recording requests."""
    fields = {"a": "p", "b": "orders", "e": "0", "g": "1", "i": ""}
    sent = signed(ROOT, fields, b"pay 10")
    first, other = await connect(broker.port), await connect(broker.port)
    code = int(RequestCode.SEND_MESSAGE_V2)
    for connection in (first, other):
        assert (await connection.ask(code, sent, b"pay 10")).code == 0
    for changed, body in (
        (sent, b"pay 99"),
        ({**sent, "b": "others"}, b"pay 10"),
        ({**sent, "j": "1"}, b"pay 10"),
        ({**sent, ACCESS_KEY: "bob"}, b"pay 10"),
        ({name: value for name, value in sent.items() if name != "i"} | {"h": "1"}, b"pay 10"),
        ({**sent, SIGNATURE: ""}, b"pay 10"),
        ({**sent, SIGNATURE: sent[SIGNATURE].lower()}, b"pay 10"),
    ):
        reply = await other.ask(code, changed, body)
        assert (reply.code, reply.remark) == (
            ResponseCode.NO_PERMISSION,
            "check signature failed.",
        )
    again = signed(BOB, {"topic": "orders"})
    for kind in (RequestCode.GET_MAX_OFFSET, RequestCode.DELETE_TOPIC_IN_BROKER):
        assert (await other.ask(int(kind), again)).code == ResponseCode.NO_PERMISSION
    await first.close()
    await other.close()


NAMES: Final = (
    "../../../evil",
    "/tmp/evil",
    "..\\evil",
    "a/../../evil",
    "evil\0.json",
    "e" * 5_000,
)


def files_below(folder: Path) -> list[Path]:
    """Files other than the tables that the broker saves by the clock."""
    return sorted(
        path for path in folder.rglob("*") if path.parent.name != "config" or "evil" in path.name
    )


async def test_names_of_users_and_resources_are_no_paths(
    broker: BrokerServer, tmp_path: Path
) -> None:
    before = files_below(tmp_path)
    channel = await Channel.connect("127.0.0.1", broker.port, security=Security(signer=ROOT))
    for name in NAMES:
        body = codec.dumps(UserInfo(password="p"))
        await channel.call(CreateUser(username=name, body=body))
        policy = {"resource": f"Topic:{name}", "actions": ["Pub"], "decision": "Allow"}
        acl = codec.dumps({"policies": [{"entries": [policy]}]})
        await channel.call(CreateAcl(subject=f"User:{name}", body=acl))
        with pytest.raises(CallError):
            await channel.call(
                Send(producer_group="p", topic=name, queue_id=0, born_timestamp=1, body=b"x")
            )
    listed = codec.loads((await channel.call(ListUsers())).body, list[UserInfo])
    await channel.close()
    assert {user.username for user in listed} >= set(NAMES)
    assert files_below(tmp_path) == before


async def test_logins_of_any_size_are_refused_and_others_are_served(
    ports: Mapping[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    long = "x" * 60_000
    logins: tuple[dict[str, str], ...] = (
        {ACCESS_KEY: long},
        {ACCESS_KEY: long, SIGNATURE: long},
        {ACCESS_KEY: "root", SIGNATURE: long},
        {ACCESS_KEY: "root\0", SIGNATURE: "é\ud800"},
        {ACCESS_KEY: "root", SIGNATURE: "x", **{f"field{n}": "y" for n in range(3_000)}},
        {ACCESS_KEY: "../../root", SIGNATURE: "x"},
    )
    for port in ports.values():
        for login in logins:
            for body in (b"", b"z" * 8_000_000):
                connection = await connect(port)
                reply = await connection.ask(int(RequestCode.GET_BROKER_CONFIG), login, body)
                assert reply.code in (ResponseCode.NO_PERMISSION, ResponseCode.SYSTEM_ERROR)
                await connection.close()
        honest = await Channel.connect("127.0.0.1", port, security=Security(signer=ROOT))
        with suppress(CallRefused):  # of a broker alone: the others answer that they do not know it
            await honest.call(ListUsers(), 3_000)
        await honest.close()
    assert max(len(record.getMessage()) for record in caplog.records) <= LINE_LENGTH_MAX
