"""Consumer group of the demo: its processes, their queues and their event logs.

A member is a process of its own, `python -m roquet.cli.demo.consumer_group SETTINGS`. It writes
every flight to its event log, and reports on stdout which queues it owns.
"""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from roquet.cli.demo import event_log
from roquet.cli.demo.event_log import HandledFlight, QueuesOwned
from roquet.cli.demo.flights import ROW, TOPIC
from roquet.cli.process.child_processes import ChildProcess, ChildProcessFailed
from roquet.client.config import ConsumeFrom, ConsumerConfig
from roquet.client.push import PushConsumer
from roquet.client.reading.message import ReceivedMessage
from roquet.model.queue import MessageQueue
from roquet.net import loop
from roquet.net.clock import SYSTEM_CLOCK

SETTLE_TIMEOUT_S: Final = 60
"""A killed member is noticed at once; a member that misses that notice rebalances after 20 s."""

POLL_S: Final = 0.05

MODULE: Final = "roquet.cli.demo.consumer_group"


class MemberSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one member, as JSON on its command line."""

    namesrv: str
    group: str
    book: str
    """Path of its event log."""
    started_ms: int
    """When the demo began, in ms since the epoch."""


class DemoMember:
    """Handles flights, and reports its queues."""

    def __init__(self, book: int, started_ms: int) -> None:
        self._book = book
        self._started_ms = started_ms
        self._queues: set[str] = set()

    async def handle(self, message: ReceivedMessage) -> None:
        """Write a flight to the event log; only then is it acknowledged."""
        row = int(message.properties[ROW])
        stored_ms = max(0, message.stored_ms - self._started_ms)
        os.write(self._book, event_log.pack(HandledFlight(row, self._now_ms(), stored_ms)))

    def gained(self, queues: Sequence[MessageQueue]) -> None:
        """Report queues that were assigned."""
        self._queues |= {name_of(queue) for queue in queues}
        self._say()

    def lost(self, queues: Sequence[MessageQueue]) -> None:
        """Report queues that were revoked."""
        self._queues -= {name_of(queue) for queue in queues}
        self._say()

    def _say(self) -> None:
        owned = QueuesOwned(self._now_ms(), tuple(sorted(self._queues)))
        print(msgspec.json.encode(owned).decode(), flush=True)

    def _now_ms(self) -> int:
        return max(0, SYSTEM_CLOCK.now_ms() - self._started_ms)


def name_of(queue: MessageQueue) -> str:
    """A queue of the topic as BROKER:ID."""
    return f"{queue.broker_name}:{queue.queue_id}"


async def run(settings: MemberSettings) -> None:
    """Handle flights until SIGTERM."""
    book = os.open(Path(settings.book), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    member = DemoMember(book, settings.started_ms)
    config = ConsumerConfig(consume_from=ConsumeFrom.FIRST)
    consumer = PushConsumer(settings.namesrv, group=settings.group, topic=TOPIC, config=config)
    consumer.on_assigned(member.gained)
    consumer.on_revoked(member.lost)
    async with consumer:
        await consumer.run(member.handle)


class ConsumerProcesses:
    """Members as child processes, and the queues that they reported."""

    def __init__(self, directory: Path, settings: MemberSettings, queues: int) -> None:
        self._directory = directory
        self._settings = settings
        self._queues = queues
        self._children: dict[str, ChildProcess] = {}
        self._listening: list[asyncio.Task[None]] = []
        self.owned: dict[str, list[QueuesOwned]] = {}
        """Changes of ownership that each member reported."""
        self.ends_ms: dict[str, int] = {}
        """When each member ended."""

    def now_ms(self) -> int:
        """Ms since the demo began."""
        return SYSTEM_CLOCK.now_ms() - self._settings.started_ms

    async def join(self, name: str) -> None:
        """Start a member."""
        settings = msgspec.structs.replace(self._settings, book=str(self._book(name)))
        child = await ChildProcess.start(
            name, MODULE, msgspec.json.encode(settings).decode(), logs=self._directory
        )
        self._children[name] = child
        self.owned[name] = []
        self._listening.append(asyncio.create_task(self._listen(child)))

    async def kill(self, name: str) -> None:
        """Kill a member with SIGKILL."""
        child = self._children.pop(name)
        await child.kill()
        self.ends_ms[name] = self.now_ms()

    async def stop(self) -> None:
        """Stop all members in good order."""
        try:
            await asyncio.gather(*(child.stop() for child in self._children.values()))
        finally:
            for name in self._children:
                self.ends_ms[name] = self.now_ms()
            self._children.clear()
            for task in self._listening:
                task.cancel()

    def owners(self) -> Mapping[str, Sequence[str]]:
        """The queues of each living member."""
        return {
            name: self.owned[name][-1].queues if self.owned[name] else () for name in self._children
        }

    @property
    def is_settled(self) -> bool:
        """Whether every queue has exactly one owner, and every member a queue."""
        owned = list(self.owners().values())
        queues = [queue for mine in owned for queue in mine]
        return len(queues) == len(set(queues)) == self._queues and all(owned)

    async def settled(self) -> None:
        """Wait until every queue has one owner. Raises ChildProcessFailed after 60 s."""
        for _ in range(int(SETTLE_TIMEOUT_S / POLL_S)):
            self.check()
            if self.is_settled:
                return
            await asyncio.sleep(POLL_S)
        raise ChildProcessFailed(f"the queues have no clear owners after {SETTLE_TIMEOUT_S} s")

    def check(self) -> None:
        """Raise ChildProcessFailed when a member has died that was not killed."""
        for child in self._children.values():
            if not child.is_running:
                raise child.failure()

    def books(self) -> dict[str, list[HandledFlight]]:
        """The event log of each member, of killed ones, too."""
        books = {name: self._book(name) for name in self.owned}
        return {
            name: event_log.read(book.read_bytes()) if book.exists() else []
            for name, book in books.items()
        }

    def notes(self) -> int:
        """Number of entries in all event logs, from the files' sizes."""
        books = [self._book(name) for name in self.owned]
        return (
            sum(book.stat().st_size for book in books if book.exists())
            // event_log.RECORD_FORMAT.size
        )

    def _book(self, name: str) -> Path:
        return self._directory / f"{name}.book"

    async def _listen(self, child: ChildProcess) -> None:
        async for line in child.lines():
            self.owned[child.name].append(msgspec.json.decode(line, type=QueuesOwned))


if __name__ == "__main__":
    loop.run(run(msgspec.json.decode(sys.argv[1], type=MemberSettings)))
