"""A directory of Apache RocketMQ goes on in this broker: messages, topics, groups, progress."""

import gzip
import json
import tarfile
from hashlib import sha1
from pathlib import Path
from typing import Any

import pytest
from tests.conversation.conftest import SMALL, Connect, broker_of, pull_of
from tests.unpacking import unpack

from roquet.broker.app import BrokerServer
from roquet.broker.settings.config import BrokerConfig
from roquet.net.channel import Channel
from roquet.wire.calls.offset import QueryOffset
from roquet.wire.calls.send import Send
from roquet.wire.records.record import decode_many

pytestmark = pytest.mark.virtual_time(False)

STORES = Path(__file__).parent.parent / "vectors" / "store"
LARGE = ("timerlog", "timerwheel")
"""Sparse files of the genuine timer, which are not read here."""


def unpacked(kind: str, directory: Path) -> Path:
    with tarfile.open(STORES / f"{kind}.tar.xz") as archive:
        wanted = [member for member in archive if not any(name in member.name for name in LARGE)]
        unpack(archive, directory, wanted)
    return directory


def expected(kind: str) -> list[dict[str, Any]]:
    path = STORES / f"{kind}.expected.jsonl"
    if path.exists():
        text = path.read_text("ascii")
    else:
        text = gzip.decompress(path.with_name(f"{path.name}.gz").read_bytes()).decode("ascii")
    return [json.loads(line) for line in text.splitlines()]


async def everything(channel: Channel, topic: str, queue_id: int) -> list[tuple[int, int, str]]:
    """Offset, position and body of all messages of a queue, pulled like a consumer would."""
    found: list[tuple[int, int, str]] = []
    offset, end = 0, 1
    while offset < end:
        given = {"topic": topic, "sys_flag": 4, "suspend_timeout_millis": 0}
        group = {"consumer_group": "TOOLS_CONSUMER", "max_msg_nums": 100}
        reply = await channel.call(pull_of(offset, queue_id, **given, **group))
        found += [
            (record.queue_offset, record.position, sha1(record.body).hexdigest())
            for record in decode_many(reply.body)
        ]
        offset, end = reply.next_begin_offset, reply.max_offset
    return found


@pytest.mark.parametrize("kind", ["5.5.0-clean", "5.5.0-killed", "4.9.7-clean", "4.9.7-torn"])
async def test_every_message_of_an_apache_directory_can_be_pulled(
    kind: str, tmp_path: Path, connect: Connect
) -> None:
    rows = expected(kind)
    queues: dict[tuple[str, int], list[tuple[int, int, str]]] = {}
    for row in rows:
        if row["in"]["what"] == "message":
            where, out = row["in"], row["out"]
            place = (where["queue_offset"], out["physical_offset"], out["body_sha1"])
            queues.setdefault((where["topic"], where["queue_id"]), []).append(place)
    directory = unpacked(kind, tmp_path)
    async with broker_of(store_dir=directory, read_internal_topics=True) as server:
        channel = await connect(server)
        for (topic, queue_id), messages in queues.items():
            if server.broker.tables.topics.get(topic) is not None:
                pulled = await everything(channel, topic, queue_id)
                # Behind them lies what still waited at a delay level, and is long due.
                assert pulled[: len(messages)] == sorted(messages), (topic, queue_id)
    assert sum(map(len, queues.values())) > 500


async def test_groups_continue_at_their_offsets_and_new_messages_follow_the_old(
    tmp_path: Path, connect: Connect
) -> None:
    config = BrokerConfig(**SMALL, store_dir=unpacked("5.5.0-clean", tmp_path))
    async with BrokerServer(config) as server:
        channel = await connect(server)
        ask = QueryOffset(consumer_group="CG_main", topic="TopicA", queue_id=0)
        assert (await channel.call(ask)).offset == 41
        send = Send(
            producer_group="pg", topic="TopicA", queue_id=0, born_timestamp=1, body=b"from here on"
        )
        before = server.broker.log.store.bounds("TopicA", 0)[1]
        assert (await channel.call(send)).queue_offset == before
