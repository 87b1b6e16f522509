"""Member: one consumer of the demo's group.

A process of its own, `python -m roquet.cli.demo.member SETTINGS`. It writes every flight to its
event log, and reports on stdout which queues it owns.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from roquet.cli.demo import event_log
from roquet.cli.demo.event_log import HandledFlight, QueuesOwned
from roquet.cli.demo.flights import ROW, TOPIC
from roquet.client.config import ConsumeFrom, ConsumerConfig
from roquet.client.push import PushConsumer
from roquet.client.reading.message import ReceivedMessage
from roquet.model.queue import MessageQueue
from roquet.net import loop
from roquet.net.clock import SYSTEM_CLOCK


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


if __name__ == "__main__":
    loop.run(run(msgspec.json.decode(sys.argv[1], type=MemberSettings)))
