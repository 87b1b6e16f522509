"""A broker that is asked too much says so, and keeps what it acknowledged."""

import asyncio
import gc
import time
from collections import Counter
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.conversation.conftest import SMALL, broker_of, pull_of, send_of

from roquet.broker.app import BrokerServer
from roquet.broker.settings.config import BrokerConfig
from roquet.client.config import ProducerConfig
from roquet.client.producer import Producer
from roquet.model.errors import CallRefused
from roquet.net.channel import Channel
from roquet.net.connection.server_connection import SERVER_BUFFER_HIGH, ServerConnection
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.testing.cluster import cluster
from roquet.wire.calls.send import Send
from roquet.wire.codes import ResponseCode
from roquet.wire.fields import encode_call
from roquet.wire.records.record import decode_many

pytestmark = pytest.mark.virtual_time(False)


class SlowDisk(MemoryFiles):
    """Files whose log takes its time to be flushed."""

    def sync(self, path: Path, view: memoryview | None = None) -> None:
        """Later than others."""
        if "commitlog" in path.parts:
            time.sleep(0.05)
        super().sync(path, view)


def message(number: int) -> Send:
    return send_of(b"%d" % number, properties="WAIT\x01true\x02")


async def test_sends_beyond_a_slow_disk_are_refused_and_no_acknowledged_one_is_lost() -> None:
    config = BrokerConfig(**{**SMALL, "sync_flush": True, "send_capacity": 100})
    counts: Counter[str] = Counter()
    kept: dict[int, bytes] = {}

    async def sends(channel: Channel, first: int) -> None:
        for number in range(first, first + 3):
            try:
                reply = await channel.call(message(number))
            except CallRefused as error:
                counts[f"{error.code} {error.remark} {error.definite}"] += 1
            else:
                kept[reply.queue_offset] = b"%d" % number

    async with BrokerServer(config, files=SlowDisk()) as server:
        channels = [await Channel.connect("127.0.0.1", server.port) for _ in range(4)]
        await channels[0].call(message(10**6))
        async with asyncio.TaskGroup() as group:
            for number in range(400):
                group.create_task(sends(channels[number % 4], number * 10))
        assert counts.keys() == {"2 [OVERLOAD]system busy, start flow control for a while True"}
        assert len(kept) + counts.total() == 1_200
        assert server.broker.control.admission.gates["send"].count == 0
        reply = await channels[0].call(pull_of(0, max_msg_nums=1_000))
        stored = {record.queue_offset: record.body for record in decode_many(reply.body)}
        assert kept.items() <= stored.items()
        assert len(stored) == len(kept) + 1
        for channel in channels:
            await channel.close()


@pytest.mark.parametrize("brokers", [1, 2])
async def test_our_client_tries_again_when_a_broker_is_busy(brokers: int) -> None:
    async with cluster(brokers=brokers, **SMALL) as running:
        config = ProducerConfig(timeout_ms=2_000)
        async with Producer(running.namesrv_addr, config=config) as producer:
            await producer.send("flights", b"first")
            gate = running.brokers[0].broker.control.admission.gates["send"]
            gate.late(1_000)
            asyncio.get_running_loop().call_later(0.05, gate.late, 0)
            receipts = [await producer.send("flights", b"again") for _ in range(8)]
            assert all(receipt.ok for receipt in receipts)


async def test_long_polls_over_the_limit_are_asked_to_try_again() -> None:
    async with broker_of(pull_capacity=10) as server:
        channel = await Channel.connect("127.0.0.1", server.port)
        await channel.call(message(1))
        polls = [asyncio.create_task(channel.call(pull_of(1))) for _ in range(5)]
        await asyncio.sleep(0.05)
        with pytest.raises(CallRefused) as caught:
            await channel.call(pull_of(1))
        assert caught.value.code == ResponseCode.SYSTEM_BUSY
        assert (await channel.call(message(2))).queue_offset == 1
        assert [(await poll).next_begin_offset for poll in polls] == [2] * 5
        await channel.close()


async def test_a_client_that_reads_nothing_is_bounded_and_delays_no_other() -> None:
    async with broker_of(log_file_size=16 << 20) as server:
        channel = await Channel.connect("127.0.0.1", server.port)
        for number in range(4):
            await channel.call(replace(message(number), body=bytes(2 << 20)))
        loop = asyncio.get_running_loop()
        deaf, _ = await loop.create_connection(asyncio.Protocol, "127.0.0.1", server.port)
        deaf.pause_reading()
        pulls = [pull_of(0, max_msg_bytes=8 << 20), *(pull_of(4) for _ in range(50))]
        for opaque, pull in enumerate(pulls * 4):
            deaf.write(encode_call(pull, opaque=opaque))
        await asyncio.sleep(0.1)
        another = replace(message(4), body=bytes(2 << 20))
        assert (await channel.call(another, timeout_ms=500)).queue_offset == 4
        guests = [
            found
            for found in gc.get_objects()
            if type(found) is ServerConnection and not found.closed
        ]
        assert max(guest.unsent for guest in guests) <= (8 << 20) + SERVER_BUFFER_HIGH
        deaf.abort()
        await channel.close()
