"""A broker's timer with all that it needs, in memory, and its clock in our hand."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.broker.log_harness import SMALL, LogHarness

from roquet.broker.ingest.append import IngestResult
from roquet.broker.services.timer.deliveries import TimerContext
from roquet.broker.services.timer.timer import Timer, offset_of
from roquet.broker.tables.timer_metrics import TimerMetrics
from roquet.rules.delay.timer import window_ms
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.store.store import Store
from roquet.store.timer.layout import TimerCheckpoint
from roquet.store.timer.timers import TimerConfig, TimerStore
from roquet.testing.clock import VirtualClock
from roquet.wire.calls.send import Send
from roquet.wire.records.property_text import decode_properties
from roquet.wire.records.record import Record

ROOT = Path("/data")
LOG = 64 * 1024
HOST = b"\x0a\x00\x00\x07\x00\x00\x13\x88"


class TimerHarness(LogHarness):
    """A timer, its store and its clock; the process may be killed, and stopped in order."""

    def __init__(
        self, *, retention_ms: int = 72 * 3_600_000, slots: int = 3 * 86_400, **settings: Any
    ) -> None:
        self.files = MemoryFiles()
        self.wheel = TimerConfig(wheel_slots=slots, log_file_size=LOG, log_step=LOG)
        self.retention_ms = retention_ms
        self.noted: list[tuple[Record, int, int]] = []
        self.timings = TimerMetrics(None)
        super().__init__(store=self.open_store(VirtualClock().now_ms()), **settings)
        self.open_timer()

    def open_store(self, now_ms: int) -> Store:
        return Store.open(ROOT, SMALL, files=self.files, now_ms=now_ms)

    def open(self) -> None:
        """What a process does as it starts."""
        self.open_log(self.open_store(self.clock.now_ms()))
        self.open_timer()

    def open_timer(self) -> None:
        now_ms = self.clock.now_ms()
        self.timers = TimerStore(
            ROOT, self.files, partial(offset_of, self.store), now_ms, self.wheel
        )
        self.parts = TimerContext(
            message_log=self.message_log,
            destinations=self.destinations,
            set_aside=self.set_aside,
            timers=self.timers,
            metrics=self.timings,
            window_ms=window_ms(self.retention_ms),
            on_revive_note=lambda *note: self.noted.append(note),
        )
        self.timer = Timer(self.parts, self.clock)

    def save(self) -> None:
        """The work of Timer.save, without threads."""
        work = self.timers.save_task(self.clock.now_ms())
        if work is not None:
            self.store.flush_log()
            work()

    def stop(self) -> None:
        """End in order."""
        self.save()
        self.timers.close()
        self.flush.close()
        self.store.close(self.clock.now_ms())

    def restart(self) -> None:
        """A normal stop and a new process."""
        self.stop()
        self.open()

    def kill(self) -> None:
        """What the next process finds: everything written, nothing closed."""
        self.files = self.files.copy()
        self.flush.close()
        self.open()

    def send(
        self, body: bytes, properties: dict[str, str] | None = None, queue_id: int = 0, **more: Any
    ) -> IngestResult:
        text = "".join(f"{name}\x01{value}\x02" for name, value in (properties or {}).items())
        text += f"UNIQ_KEY\x01{body.decode()}\x02"
        arguments = {"topic": "orders", "queue_id": queue_id, "born_timestamp": 5, **more}
        call = Send(producer_group="pg", properties=text, body=body, **arguments)
        return self.ingest.append(call, queue_id, self.peer)

    def after(self, body: bytes, delay_ms: int, **more: Any) -> IngestResult:
        """Send a message that is wanted so much later."""
        at = str(self.clock.now_ms() + delay_ms)
        return self.send(body, {"TIMER_DELIVER_MS": at}, **more)

    def after_each(self, count: int, delay_ms: int, step_ms: int = 0) -> list[bytes]:
        """Send "0", "1" and so on, each wanted so much later than the one before."""
        bodies = [b"%d" % number for number in range(count)]
        for number, body in enumerate(bodies):
            self.after(body, delay_ms + number * step_ms)
        return bodies

    def follow(self, offset: int, read_ms: int | None = None) -> None:
        """Follow a master that has taken the messages in front of an offset."""
        read_ms = self.clock.now_ms() if read_ms is None else read_ms
        asyncio.run(self.timer.follow(TimerCheckpoint(read_ms=read_ms, master_offset=offset)))

    def recall(self, body: bytes, deliver_ms: int, topic: str = "orders") -> None:
        """Store what takes a message back."""
        properties = {
            "TIMER_DEL_UNIQKEY": body.decode(),
            "UNIQ_KEY": body.decode(),
            "TIMER_DELIVER_MS": str(deliver_ms),
        }
        record = Record(topic, 0, 0, 0, 0, b"0", b"", 0, 0, 5, HOST, 5, HOST, 0, 0, 0)
        self.ingest.reappend(record, topic=topic, properties=properties)

    def step(self) -> int | None:
        return self.timer.step(self.clock.now_ms())

    def settle(self) -> int | None:
        """Steps until there is nothing more to do now; gives when there is."""
        for _ in range(100_000):
            at = self.step()
            if at is None or at > self.clock.now_ms():
                return at
        raise AssertionError("the timer does not come to an end")

    def wait(self, ms: int) -> None:
        """Let time pass as the timer's loop does: from one thing to do to the next."""
        end = self.clock.now_ms() + ms
        while True:
            at = self.settle()
            if at is None or (at := self.next_used(at, end)) > end:
                break
            self.clock.jump(at - self.clock.now_ms())
            self.save()
        self.clock.jump(max(end - self.clock.now_ms(), 0.001))
        self.settle()

    def next_used(self, at: int, end: int) -> int:
        """The next second with something in it, when the timer would only look whether there is."""
        if self.timer.behind:  # it waits for a place
            return at
        if at > end or at % 1_000:
            return at
        return self.timers.next_used_ms(at, end - end % 1_000 + 1_000)

    def skip(self, ms: int) -> None:
        """Let time pass at once, as for a process that was away."""
        self.clock.jump(ms)

    def properties(self, topic: str = "orders", queue_id: int = 0) -> list[dict[str, str]]:
        return [decode_properties(record.properties) for record in self.records(topic, queue_id)]


@pytest.fixture
def harness() -> TimerHarness:
    return TimerHarness()
