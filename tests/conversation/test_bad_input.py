"""Whatever a peer sends: it gets the protocol's answer, the broker lives, nothing is lost."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.conversation.conftest import broker_of

from roquet.broker.app import BrokerServer
from roquet.rules.retention import DiskUsage
from roquet.wire.codes import ResponseCode

pytestmark = pytest.mark.virtual_time(False)


def frame(code: int, body: bytes = b"", *, opaque: int = 1, **fields: Any) -> bytes:
    """A request as any client might write it."""
    header = json.dumps(
        {"code": code, "flag": 0, "language": "JAVA", "opaque": opaque, "version": 63,
         "extFields": fields}
    ).encode()  # fmt: skip
    content = len(header).to_bytes(4, "big") + header + body
    return len(content).to_bytes(4, "big") + content


class RawConnection:
    """A connection on which a test writes bytes itself."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, server: BrokerServer) -> "RawConnection":
        return cls(*await asyncio.open_connection("127.0.0.1", server.port))

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def answer(self) -> dict[str, Any]:
        """The header of the next answer."""
        async with asyncio.timeout(5):
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            content = await self._reader.readexactly(size)
        length = int.from_bytes(content[1:4], "big")
        return {"extFields": {}, **json.loads(content[4 : 4 + length])}

    async def ask(self, data: bytes) -> dict[str, Any]:
        self.send(data)
        return await self.answer()

    async def is_closed_by_peer(self) -> bool:
        async with asyncio.timeout(5):
            try:
                return await self._reader.read(1) == b""
            except ConnectionResetError:
                return True

    async def close(self) -> None:
        self._writer.close()
        await asyncio.gather(self._writer.wait_closed(), return_exceptions=True)


@pytest.fixture
async def raw(server: BrokerServer) -> AsyncIterator[RawConnection]:
    raw = await RawConnection.open(server)
    yield raw
    await raw.close()


SEND: dict[str, Any] = {
    "a": "pg", "b": "orders", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0",
    "i": "", "j": "0", "k": "false", "m": "false",
}  # fmt: skip
PULL: dict[str, Any] = {
    "consumerGroup": "g", "topic": "orders", "queueId": "0", "queueOffset": "0",
    "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
    "subscription": "*", "subVersion": "0",
}  # fmt: skip


def without(fields: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}


async def still_serves(raw: RawConnection) -> None:
    """The connection goes on, and what was stored is there."""
    assert (await raw.ask(frame(310, b"still here", **SEND)))["code"] == 0
    assert (await raw.ask(frame(11, **PULL)))["code"] == 0


@pytest.mark.parametrize(
    ("request_frame", "code", "remark"),
    [
        (frame(36, offset="0", group="g", delayLevel="0"), 1, "look message by offset failed, 0"),
        (frame(36, offset="-1", group="g", delayLevel="0"), 1, "look message by offset failed"),
        (frame(36, offset="0", group="a b", delayLevel="0"), 26, "subscription group not exist"),
        (frame(36, offset="0", group="g"), 1, "delayLevel (delay_level) is missing"),
        (frame(9_999_999), 3, " request type 9999999 not supported"),
        (frame(-7), 3, " request type -7 not supported"),
        (frame(310, b"x", **without(SEND, "b")), 1, "b (topic) is missing"),
        (frame(310, b"x", **{**SEND, "e": ""}), 1, "e (queue_id) is ''"),
        (frame(310, b"x", **{**SEND, "e": "first"}), 1, "not a whole number"),
        (frame(310, b"x", **{**SEND, "k": "perhaps"}), 1, "neither true nor false"),
        (frame(310, b"x", **{**SEND, "b": "no good"}), 29, "contains illegal"),
        (frame(310, b"x", **{**SEND, "e": "99"}), 29, "queueId[99] is illegal"),
        (frame(310, b"x", **{**SEND, "c": "unknown"}), 17, "not exist"),
        (frame(310, bytes(4 * 1024 * 1024 + 1), **SEND), 13, "4194304"),
        (frame(310, b"x", **{**SEND, "i": f"a\x01{'v' * 40_000}\x02"}), 13, "32767"),
        (frame(310, b"x", **{**SEND, "h": str(2**40)}), 1, "beyond its limits"),
        (frame(320, b"junk", **{**SEND, "m": "true"}), 13, "batch"),
        (frame(11, **{**PULL, "topic": "unknown"}), 17, "not exist"),
        (frame(11, **{**PULL, "consumerGroup": "no good"}), 26, "does not exist"),
        (frame(11, **without(PULL, "queueOffset")), 1, "queueOffset (queue_offset) is missing"),
        (frame(34, b"not json"), 1, "JSON"),
        (frame(17, topic="a b", readQueueNums="1", writeQueueNums="1", perm="6"), 29, "illegal"),
        (frame(105, topic="orders"), 3, " request type 105 not supported"),
    ],
)
async def test_a_bad_request_gets_its_code_and_a_remark(
    raw: RawConnection, request_frame: bytes, code: int, remark: str
) -> None:
    answer = await raw.ask(request_frame)
    assert answer["code"] == code
    assert remark in answer["remark"]
    assert answer["opaque"] == 1
    await still_serves(raw)


@pytest.mark.parametrize(
    ("fields", "code", "next_offset"),
    [
        ({"queueOffset": "5"}, ResponseCode.PULL_OFFSET_MOVED, "0"),
        ({"queueOffset": "-3"}, ResponseCode.PULL_OFFSET_MOVED, "0"),
        ({"queueOffset": "1"}, ResponseCode.PULL_NOT_FOUND, "1"),
    ],
)
async def test_an_offset_outside_the_queue_is_corrected(
    raw: RawConnection, fields: dict[str, Any], code: int, next_offset: str
) -> None:
    await raw.ask(frame(310, b"x", **SEND))
    answer = await raw.ask(frame(11, **{**PULL, **fields}))
    assert (answer["code"], answer["extFields"]["nextBeginOffset"]) == (code, next_offset)
    assert answer["extFields"]["minOffset"] == "0", "the JavaScript client reads these always"
    assert answer["extFields"]["maxOffset"] == "1"
    assert answer["extFields"]["suggestWhichBrokerId"] == "0"


@pytest.mark.parametrize(
    "data",
    [
        b"\x7f\xff\xff\xff",
        b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
        b"\x00\x00\x00\x08\x00\x00\x00\x04{bad",
        b"\x00\x00\x00\x08\x00\x00\xff\xff{}{}",
        b"\x00\x00\x00\x08\x07\x00\x00\x04{}{}",
        b"\xff\xff\xff\xff\xff\xff\xff\xff",
    ],
)
async def test_a_malformed_frame_ends_only_its_connection(
    server: BrokerServer, raw: RawConnection, data: bytes
) -> None:
    bad = await RawConnection.open(server)
    bad.send(data)
    assert await bad.is_closed_by_peer()
    await bad.close()
    await still_serves(raw)


async def test_a_close_within_a_frame_affects_no_other(
    server: BrokerServer, raw: RawConnection
) -> None:
    for cut in (3, 20, 150):
        half = await RawConnection.open(server)
        half.send(frame(310, b"x" * 100, **SEND)[:cut])
        await half.close()
    await still_serves(raw)
    assert server.broker.log.store.bounds("orders", 0) == (0, 1), "half a message is none"


async def test_a_request_in_single_bytes_is_one_request(raw: RawConnection) -> None:
    for byte in frame(310, b"slow", **SEND):
        raw.send(bytes((byte,)))
        await asyncio.sleep(0)
    assert (await raw.answer())["code"] == 0


async def test_a_refused_send_names_the_region_as_well(raw: RawConnection) -> None:
    answer = await raw.ask(frame(310, b"", **SEND))
    assert (answer["code"], answer["extFields"]["MSG_REGION"]) == (13, "DefaultRegion")


async def test_numbers_and_booleans_may_be_json_values(raw: RawConnection) -> None:
    fields = {**SEND, "d": 4, "e": 0, "f": 0, "g": 1, "k": False, "m": "0"}
    assert (await raw.ask(frame(310, b"x", **fields)))["code"] == 0


async def test_a_number_of_a_request_may_be_negative(raw: RawConnection) -> None:
    assert (await raw.ask(frame(310, b"x", opaque=-5, **SEND)))["opaque"] == -5


async def test_the_cpp_clients_one_means_a_batch(server: BrokerServer, raw: RawConnection) -> None:
    item = b"\x00\x00\x00\x1a" + bytes(8) + b"\x00\x00\x00\x00" + b"\x00\x00\x00\x04abcd\x00\x00"
    answer = await raw.ask(frame(310, item * 2, **{**SEND, "m": "1"}))
    assert answer["code"] == 0
    assert answer["extFields"]["msgId"].count(",") == 1
    assert server.broker.log.store.bounds("orders", 0) == (0, 2)


async def test_a_full_disk_refuses_sends_and_lets_reads_go_on() -> None:
    async with broker_of(refuse_ratio=0.9) as server:
        raw = await RawConnection.open(server)
        await raw.ask(frame(310, b"before", **SEND))
        server.broker.log.store.watch_disk(DiskUsage(total=100, free=1))
        answer = await raw.ask(frame(310, b"too late", **SEND))
        assert answer["code"] == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "free" in answer["remark"]
        assert (await raw.ask(frame(11, **PULL)))["code"] == 0
        assert server.broker.log.store.bounds("orders", 0) == (0, 1)
        await raw.close()
