"""Three brokers and a controller: masters die, fall silent and come back; nothing is lost."""

import asyncio

import pytest
from tests.conversation.failover_group import group

from roquet.testing.clock import in_virtual_time


@in_virtual_time
async def test_a_group_begins_with_a_master_and_all_brokers_come_into_sync() -> None:
    async with group() as running:
        assert await running.settled(3) == 1
        await running.send_on(["one", "two"])
        running.check()
