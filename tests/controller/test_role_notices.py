import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.controller.conftest import broker, controller, sleep_ms
from tests.rules.election.conftest import group_of, led

from roquet.controller.role_notices import PAUSE_MS, TRIES, RoleNotices, role_notice
from roquet.testing.clock import this_loop
from roquet.wire.fields import to_ext

pytestmark = pytest.mark.virtual_time

FRAMES = Path(__file__).parents[1] / "vectors" / "replication" / "controller-frames.jsonl"


def test_a_notice_is_apaches() -> None:
    (frame,) = [
        one for one in map(json.loads, FRAMES.read_text().splitlines()) if one["code"] == 1008
    ]
    group = led(group_of(1, 2), 1, 5)
    notice = role_notice(group)
    names = {"masterBrokerId", "masterEpoch", "masterAddress", "syncStateSetEpoch"}
    assert to_ext(notice).keys() == frame["ext"].keys() == names
    assert notice.body.decode() == frame["body"].replace('Epoch":2', 'Epoch":5')


async def test_a_broker_that_cannot_be_reached_is_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with controller(), AsyncExitStack() as stack:
        one = await stack.enter_async_context(broker(1))
        notices = RoleNotices(this_loop().clock)
        notices.send(led(group_of(1), 1), [one.address, "127.0.0.1:1"])
        await sleep_ms(PAUSE_MS * TRIES)
        assert [notice.master_broker_id for notice in one.notices] == [1]
        (line,) = [text for text in caplog.messages if "was not told" in text]
        assert "127.0.0.1:1" in line
        await notices.close()


async def test_a_stop_does_not_wait_for_brokers_that_are_away() -> None:
    notices = RoleNotices(this_loop().clock)
    notices.send(led(group_of(1), 1), ["127.0.0.1:1"])
    await asyncio.sleep(0.01)
    await notices.close()
    assert this_loop().clock.monotonic_ms() < PAUSE_MS
