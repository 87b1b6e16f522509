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
from roquet.spark.sink.commit import roll_back
from roquet.spark.sink.delivery import DeliveredRequest
from roquet.spark.sink.half_message_refs import refs_of, to_bytes
from roquet.spark.sink.options import SinkOptions
from roquet.spark.sink.property_columns import unique_keys
from roquet.spark.sink.row_encoder import PartitionOrigin, RowEncoder
from roquet.spark.sink.send_requests import cut_requests
from roquet.spark.sink.sender import Sender
from roquet.wire.records.message_id import month_start_ms

TURN_STEP: Final = 7
"""Between the first queues of two tasks: a prime, so that they do not all begin with one broker."""


def send_partition(
    batches: Iterator[pa.RecordBatch],
    options: SinkOptions,
    columns: Sequence[str],
    origin: PartitionOrigin,
) -> tuple[int, bytes]:
    """Send all rows of a partition; gives their number, and in a transaction where they lie."""
    sent: list[DeliveredRequest] = []

    def taken(one: DeliveredRequest) -> None:
        if options.transactional:  # a partition's places have to fit into memory, not its bodies
            parcel = msgspec.structs.replace(one.parcel, body=b"", properties=None)
            sent.append(msgspec.structs.replace(one, parcel=parcel))

    try:
        with Sender(options, origin.partition * TURN_STEP, taken) as sender:
            shaper = RowEncoder(options, columns, origin, unique_key_maker(), sender.queues)
            count = _send_all(batches, options, shaper, sender)
    except RoquetError:
        if sent:  # nobody else will ever know of these half messages
            with suppress(RoquetError):
                roll_back(options, refs_of(sent, origin.partition))
        raise
    return count, to_bytes(refs_of(sent, origin.partition)) if options.transactional else b""


def _send_all(
    batches: Iterator[pa.RecordBatch], options: SinkOptions, shaper: RowEncoder, sender: Sender
) -> int:
    count = 0
    for batch in batches:
        count += len(batch)
        for rows in shaper.rows(batch):
            queues = () if rows.places is None else sender.queues(rows.topic)
            alone = options.transactional
            sender.put(cut_requests(rows, queues, options.batch_bytes, alone=alone))
    sender.finish()
    return count


def unique_key_maker() -> Callable[[int, int], pa.Array]:
    """Makes the unique keys of one task's rows."""
    now_ms = SYSTEM_CLOCK.now_ms()
    return unique_keys(
        ip_address(routable_address()).packed,
        os.getpid(),
        SystemRandom().getrandbits(32),
        now_ms - month_start_ms(now_ms),
    )
