"""Requests of genuine C++ and JavaScript clients, as they were recorded, get their answers."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from roquet.broker.app import BrokerServer
from roquet.model.topic import TopicConfig

pytestmark = pytest.mark.virtual_time(False)

VECTORS = Path(__file__).parent.parent / "vectors"
NAME_SERVERS = 105
PULL = 11
SUCCESS, NOTHING_NEW = 0, 19

Answers = dict[int, tuple[int, dict[str, str]]]


def recorded(client: str) -> list[dict[str, Any]]:
    lines = (VECTORS / f"requests-{client}.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return [row for row in rows if row["header"]["code"] != NAME_SERVERS]


def frame(row: dict[str, Any], opaque: int) -> bytes:
    header = {**row["header"], "opaque": opaque}
    if header["code"] == PULL:
        header["extFields"] = {**header["extFields"], "suspendTimeoutMillis": "10"}
    text: bytes = json.dumps(header).encode()
    body: bytes = row["body"].encode()
    return (
        (4 + len(text) + len(body)).to_bytes(4, "big") + len(text).to_bytes(4, "big") + text + body
    )


async def answers(server: BrokerServer, rows: list[dict[str, Any]]) -> Answers:
    """The codes and fields of the answers to requests that are sent one after the other."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    found: Answers = {}
    for opaque, row in enumerate(rows):
        writer.write(frame(row, opaque))
        if row["header"].get("flag", 0) & 2:
            continue
        async with asyncio.timeout(5):
            while opaque not in found:
                size = int.from_bytes(await reader.readexactly(4), "big")
                content = await reader.readexactly(size)
                header = json.loads(content[4 : 4 + int.from_bytes(content[1:4], "big")])
                if not header["flag"] & 1:
                    continue  # the broker's notice that members changed
                found[header["opaque"]] = (header["code"], header.get("extFields", {}))
    writer.close()
    await writer.wait_closed()
    return found


@pytest.mark.parametrize(
    ("client", "group", "refused"),
    [("cpp-client-0.4.4", "CID_T044", {}), ("js-client-3.12.0", "CID_TALI", {})],
)
async def test_every_recorded_request_is_answered(
    server: BrokerServer, client: str, group: str, refused: dict[int, int]
) -> None:
    rows = recorded(client)
    for name in {row["header"].get("extFields", {}).get("topic") for row in rows} - {None}:
        queues = TopicConfig(topic_name=name, read_queue_nums=16, write_queue_nums=16)
        server.broker.tables.topics.put(queues, 0)
    found = await answers(server, rows)
    assert len(found) == len(rows)
    assert refused == {
        rows[opaque]["header"]["code"]: code
        for opaque, (code, _) in found.items()
        if code not in (SUCCESS, NOTHING_NEW)
    }
    assert server.broker.tables.groups.get(group) is not None


async def test_cpp_sends_are_stored_with_what_they_carry(server: BrokerServer) -> None:
    rows = [row for row in recorded("cpp-client-0.4.4") if row["header"]["code"] in (10, 310)]
    found = await answers(server, rows)
    assert found
    for code, fields in found.values():
        assert code == SUCCESS
        assert fields["MSG_REGION"] == "DefaultRegion"
        assert fields["queueOffset"].isdigit()
    bounds = [server.broker.log.store.bounds("T044", queue_id)[1] for queue_id in range(16)]
    assert sum(bounds) == len(rows)
