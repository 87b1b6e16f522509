"""One task's rows on their way: shaped, cut into requests, sent."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from ipaddress import ip_address
from random import SystemRandom
from typing import Final

import msgspec
import pyarrow as pa

from roquet.model.errors import RoquetError
from roquet.net.address import routable_address
from roquet.net.clock import SYSTEM_CLOCK
from roquet.spark.sink.commit import abandon
from roquet.spark.sink.delivery import Sent
from roquet.spark.sink.halves import halves_of, packed
from roquet.spark.sink.options import SinkOptions
from roquet.spark.sink.parcels import parcels
from roquet.spark.sink.rows import Origin, Shaper
from roquet.spark.sink.sender import Sender
from roquet.spark.sink.texts import unique_keys
from roquet.wire.message_id import month_start_ms

TURN_STEP: Final = 7
"""Between the first queues of two tasks: a prime, so that they do not all begin with one broker."""


def send(
    batches: Iterator[pa.RecordBatch], options: SinkOptions, columns: Sequence[str], origin: Origin
) -> tuple[int, bytes]:
    """Send all rows of a partition; gives their number, and in a transaction where they lie."""
    sent: list[Sent] = []

    def taken(one: Sent) -> None:
        if options.transactional:  # a partition's places have to fit into memory, not its bodies
            parcel = msgspec.structs.replace(one.parcel, body=b"", properties=None)
            sent.append(msgspec.structs.replace(one, parcel=parcel))

    try:
        with Sender(options, origin.partition * TURN_STEP, taken) as sender:
            shaper = Shaper(options, columns, origin, new_keys(), sender.queues)
            count = _send_all(batches, options, shaper, sender)
    except RoquetError:
        if sent:  # nobody else will ever know of these half messages
            with suppress(RoquetError):
                abandon(options, halves_of(sent, origin.partition))
        raise
    return count, packed(halves_of(sent, origin.partition)) if options.transactional else b""


def _send_all(
    batches: Iterator[pa.RecordBatch], options: SinkOptions, shaper: Shaper, sender: Sender
) -> int:
    count = 0
    for batch in batches:
        count += len(batch)
        for rows in shaper.rows(batch):
            queues = () if rows.places is None else sender.queues(rows.topic)
            alone = options.transactional
            sender.put(parcels(rows, queues, options.batch_bytes, alone=alone))
    sender.finish()
    return count


def new_keys() -> Callable[[int, int], pa.Array]:
    """Makes the unique keys of one task's rows."""
    now_ms = SYSTEM_CLOCK.now_ms()
    return unique_keys(
        ip_address(routable_address()).packed,
        os.getpid(),
        SystemRandom().getrandbits(32),
        now_ms - month_start_ms(now_ms),
    )
