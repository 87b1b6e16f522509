"""Writers: flights that come at a steady pace, each sent until a broker has acknowledged it.

    file ──one each 1/rate s──▶ a writer for each line of aircraft ──▶ brokers ──▶ acknowledgements

All flights of an aircraft go through one writer, one after the other, so they stay in order
whatever happens to brokers. A flight whose outcome is unknown is sent again, and may then be stored
twice.
"""

import asyncio
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from demos.failover.timeline import Acknowledgement
from roquet.cli.demo.flights import ROW
from roquet.client.producer import Producer
from roquet.model.errors import RoquetError
from roquet.model.message import Message
from roquet.model.results import SendReceipt
from roquet.wire.records.message_id import parse_offset_message_id

WRITERS: Final = 32
"""Flights that may be under way at a time: each waits for the one before it."""

AGAIN_S: Final = 0.02
"""Pause before a flight is sent again."""

WAITING_MAX: Final = 50_000
"""Flights of one writer that may wait: minutes without a master."""


class FlightWriters:
    """Sends flights until told to stop, and notes who acknowledged them."""

    def __init__(
        self,
        producer: Producer,
        brokers: Mapping[int, str],
        now_ms: Callable[[], int],
    ) -> None:
        """`brokers` are names by the port that clients are told."""
        self._producer = producer
        self._brokers = brokers
        self._now_ms = now_ms
        self._lines: list[asyncio.Queue[Message | None]] = [
            asyncio.Queue(WAITING_MAX) for _ in range(WRITERS)
        ]
        self._stopping = asyncio.Event()
        self._acknowledged_one = asyncio.Event()
        self.arrived_ms: list[int] = []
        """When each flight came, in ms since the demo began."""
        self.acknowledged: list[Acknowledgement] = []
        self.failures = 0
        """Tries that ended without the acknowledgement that was asked for."""

    def stop(self) -> None:
        """Let no further flights come; those that came are still sent."""
        self._stopping.set()

    async def run(self, flights: Iterator[Message], rate: int) -> None:
        """Send flights, `rate` of them a second, until stopped or the file ends."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._arrive(flights, rate))
            for line in self._lines:
                group.create_task(self._write(line))

    async def acknowledged_by_others(self, broker: str, position: int) -> Acknowledgement:
        """Wait for an acknowledgement of another broker, the first one from a position on."""
        while True:
            for one in self.acknowledged[position:]:
                if one.broker != broker:
                    return one
            position = len(self.acknowledged)
            self._acknowledged_one.clear()
            await self._acknowledged_one.wait()

    async def _arrive(self, flights: Iterator[Message], rate: int) -> None:
        """Hand each flight to its writer when its time has come."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        for number, flight in enumerate(flights):
            early_s = began_s + number / rate - loop.time()
            if early_s > 0:
                await asyncio.sleep(early_s)
            if self._stopping.is_set():
                break
            self.arrived_ms.append(self._now_ms())
            aircraft = flight.order_key or flight.properties[ROW]
            await self._lines[zlib.crc32(aircraft.encode()) % WRITERS].put(flight)
        for line in self._lines:
            await line.put(None)

    async def _write(self, line: asyncio.Queue[Message | None]) -> None:
        while (flight := await line.get()) is not None:
            receipt = await self._send(flight)
            host, _ = parse_offset_message_id(receipt.offset_message_id)
            port = int.from_bytes(host[-4:], "big")
            self.acknowledged.append(
                Acknowledgement(
                    row=int(flight.properties[ROW]),
                    queue_id=receipt.queue.queue_id,
                    offset=receipt.queue_offset,
                    at_ms=self._now_ms(),
                    broker=self._brokers[port],
                )
            )
            self._acknowledged_one.set()

    async def _send(self, flight: Message) -> SendReceipt:
        """Send one flight until it is acknowledged as durable as brokers promise."""
        while True:
            try:
                receipt = await self._producer.send(flight)
            except RoquetError:
                self.failures += 1
                await asyncio.sleep(AGAIN_S)
                continue
            self.failures += receipt.tries - 1
            if receipt.ok:
                return receipt
            self.failures += 1
