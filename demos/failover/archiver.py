"""Archiver: a consumer that writes every flight to a table.

A process of its own, `python -m demos.failover.archiver SETTINGS`. A flight is acknowledged once
its row is written.
"""

import sys
from pathlib import Path

import msgspec

from demos.failover.flight_table import FlightTable
from roquet.cli.demo.flights import ROW, TOPIC
from roquet.client.config import ConsumeFrom, ConsumerConfig
from roquet.client.push import PushConsumer
from roquet.client.reading.message import ReceivedMessage
from roquet.net import loop


class ArchiverSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of an archiver, as JSON on its command line."""

    namesrv: str
    group: str
    table: str
    """Path of the table."""


async def run(settings: ArchiverSettings) -> None:
    """Write flights to the table until SIGTERM."""
    config = ConsumerConfig(consume_from=ConsumeFrom.FIRST)
    consumer = PushConsumer(settings.namesrv, group=settings.group, topic=TOPIC, config=config)
    with FlightTable(Path(settings.table)) as table:

        async def handle(message: ReceivedMessage) -> None:
            row = int(message.properties[ROW])
            table.add(message.queue_id, message.queue_offset, row, message.order_key)

        async with consumer:
            await consumer.run(handle)


if __name__ == "__main__":
    loop.run(run(msgspec.json.decode(sys.argv[1], type=ArchiverSettings)))
