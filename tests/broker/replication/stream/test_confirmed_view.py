"""Messages that are not confirmed are hidden, and wake nobody."""

import asyncio

from roquet.broker.log.long_polling import LongPolling
from roquet.broker.replication.stream.confirmed_view import ConfirmedView
from roquet.store.store import Draft, Store
from roquet.testing.clock import in_virtual_time, this_loop


class Scene:
    """A store, a view of it and those who wait for messages of one queue."""

    def __init__(self) -> None:
        self.clock = this_loop().clock
        self.store = Store.open(None, now_ms=self.clock.now_ms())
        self.arrivals = LongPolling(self.clock)
        self.view = ConfirmedView(self.store, self.arrivals)

    def append(self) -> int:
        draft = Draft("orders", 0, b"x", b"", 0, store_host=b"\x0a\x00\x00\x01\x00\x00\x2a\x9f")
        appended = self.store.append(draft, self.clock.now_ms())
        self.arrivals.arrived("orders", 0, appended.queue_offset, (0,))
        return self.store.end_position

    @property
    def visible(self) -> int:
        return self.store.bounds("orders", 0)[1]

    def waiter(self, next_offset: int) -> "asyncio.Task[bool]":
        deadline_ms = self.clock.monotonic_ms() + 1_000
        return asyncio.create_task(self.arrivals.reach("orders", 0, next_offset, None, deadline_ms))


async def woken(task: "asyncio.Task[bool]") -> bool:
    await asyncio.sleep(0.01)
    return task.done()


@in_virtual_time
async def test_messages_are_shown_once_they_are_confirmed() -> None:
    scene = Scene()
    waiter = scene.waiter(1)
    await asyncio.sleep(0.01)
    first, second = scene.append(), scene.append()
    assert not await woken(waiter)
    assert scene.visible == 0
    scene.view.show(first)
    assert await woken(waiter)
    assert scene.visible == 1
    scene.view.show(second)
    assert scene.visible == 2
    assert scene.view.position == second


@in_virtual_time
async def test_all_messages_are_shown_at_once_where_nobody_has_to_confirm() -> None:
    scene = Scene()
    waiter = scene.waiter(1)
    await asyncio.sleep(0.01)
    scene.append()
    scene.view.show(None)
    assert await woken(waiter)
    later = scene.waiter(2)
    await asyncio.sleep(0.01)
    scene.append()
    assert await woken(later)
    assert scene.visible == 2


@in_virtual_time
async def test_what_was_hidden_and_cut_never_arrives() -> None:
    scene = Scene()
    waiter = scene.waiter(1)
    await asyncio.sleep(0.01)
    scene.append()
    scene.store.raw.truncate(0)
    scene.view.cut()
    assert await woken(waiter)  # it looks again, and waits for what comes now
    again = scene.waiter(1)
    scene.view.show(1_000)
    assert not await woken(again)
    assert not await again
