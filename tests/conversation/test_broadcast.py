"""Broadcasting: every member gets every message, and remembers by itself how far it was."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.conversation.conftest import consumer_of, send, virtual_cluster

from roquet.client.push import PushConsumer
from roquet.client.reading.message import ReceivedMessage
from roquet.model.errors import UsageError
from roquet.model.subscription import MessageModel
from roquet.testing.cluster import Cluster


def member_of(running: Cluster, folder: Path, **settings: Any) -> PushConsumer:
    return consumer_of(
        running, message_model=MessageModel.BROADCASTING, offsets_dir=folder, **settings
    )


async def test_every_member_gets_all_messages_and_continues_at_its_offset(tmp_path: Path) -> None:
    async with virtual_cluster() as running:
        await send(running, b"a", b"b")
        async with (
            member_of(running, tmp_path, instance="one") as one,
            member_of(running, tmp_path, instance="two") as two,
        ):
            for member in (one, two):
                found = await member.fetch(2, 20_000)
                assert sorted(m.body for m in found) == [b"a", b"b"]
                for message in found:
                    await message.ack()
        await send(running, b"c")
        async with member_of(running, tmp_path, instance="one") as one:
            assert [m.body for m in await one.fetch(3, 20_000)] == [b"c"]


async def test_failures_are_dropped_and_a_second_member_needs_a_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with virtual_cluster() as running:
        await send(running, b"a", b"b")
        calls: list[bytes] = []

        async def handler(message: ReceivedMessage) -> None:
            calls.append(message.body)
            raise ValueError("never")

        async with member_of(running, tmp_path) as consumer:
            with pytest.raises(UsageError, match="an `instance` of its own"):
                await member_of(running, tmp_path).start()
            task = asyncio.create_task(consumer.run(handler))
            await asyncio.sleep(100)
            assert set((await consumer.lag()).values()) == {0}
        await task
        assert sorted(calls) == [b"a", b"b"]
    assert caplog.text.count("is dropped") == 2
