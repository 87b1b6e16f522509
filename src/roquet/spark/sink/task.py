"""One task of a write: encodes the rows of a partition, cuts them into requests, sends these."""

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
from roquet.spark.sink.commit_records import refs_of, to_bytes
from roquet.spark.sink.delivery import DeliveredRequest
from roquet.spark.sink.options import SinkOptions
from roquet.spark.sink.property_columns import unique_keys
from roquet.spark.sink.row_encoder import PartitionOrigin, RowEncoder
from roquet.spark.sink.send_requests import cut_requests
from roquet.spark.sink.sender import Sender
from roquet.wire.records.message_id import month_start_ms

TURN_STEP: Final = 7
"""Distance of the first queues of two tasks: a prime, so that they begin at different brokers."""


def send_partition(
    batches: Iterator[pa.RecordBatch],
    options: SinkOptions,
    columns: Sequence[str],
    origin: PartitionOrigin,
) -> tuple[int, bytes]:
    """Send all rows of a partition.

    Returns their number and, in a transaction, the half messages as Arrow bytes (otherwise b"").
    """
    sent, count = list[DeliveredRequest](), 0

    def on_stored(delivered: DeliveredRequest) -> None:
        if options.transactional:  # without the body: only positions are kept in memory
            request = msgspec.structs.replace(delivered.request, body=b"", properties=None)
            sent.append(msgspec.structs.replace(delivered, request=request))

    try:
        with Sender(options, origin.partition * TURN_STEP, on_stored) as sender:
            encoder = RowEncoder(options, columns, origin, unique_key_maker(), sender.queues)
            for batch in batches:
                count += len(batch)
                for rows in encoder.rows(batch):
                    queues = () if rows.places is None else sender.queues(rows.topic)
                    alone = options.transactional
                    sender.put(cut_requests(rows, queues, options.batch_bytes, alone=alone))
            sender.finish()
    except RoquetError:
        if sent:  # the driver will not learn of these half messages
            with suppress(RoquetError):
                roll_back(options, refs_of(sent, origin.partition))
        raise
    return count, to_bytes(refs_of(sent, origin.partition)) if options.transactional else b""


def unique_key_maker() -> Callable[[int, int], pa.Array]:
    """A maker of the unique keys of one task's rows."""
    now_ms = SYSTEM_CLOCK.now_ms()
    return unique_keys(
        ip_address(routable_address()).packed,
        os.getpid(),
        SystemRandom().getrandbits(32),
        now_ms - month_start_ms(now_ms),
    )
