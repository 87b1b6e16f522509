"""What a broker registers: JSON, or a compact layout that is sent compressed.

    ┌────────────┬─────────┬───────────┬─ for each topic ─┬────────────┬─────────┬──────────────┐
    │ length (4) │ version │ count (4) │ length (4) │ text │ length (4) │ servers │ mappings (4) │
    └────────────┴─────────┴───────────┴──────────────────┴────────────┴─────────┴──────────────┘

The version and the filter servers are JSON, a topic is the text `name read write perm filter-type
attributes`. Mappings belong to static topics, which we do not have: they are left unread.
"""

import struct
import zlib
from typing import Final

from roquet.model.errors import FieldError, RecordError
from roquet.model.flags import SysFlag
from roquet.model.topic import DataVersion, TopicConfig
from roquet.wire import compression, dialect
from roquet.wire.calls.bodies import RegisterBrokerBody, TopicsOfBroker

_LENGTH: Final = struct.Struct(">i")


def checksum(body: bytes) -> int:
    """The CRC-32 that travels with a registration: without its sign bit, as Java ints want it."""
    return zlib.crc32(body) & 0x7FFF_FFFF


def decode(body: bytes, *, compressed: bool) -> RegisterBrokerBody:
    """What the broker registers."""
    if not body:
        return RegisterBrokerBody()
    return decode_compact(body) if compressed else dialect.loads(body, RegisterBrokerBody)


def decode_compact(body: bytes) -> RegisterBrokerBody:
    """What the broker registers in the compressed form."""
    try:
        parts = _Parts(compression.decompress(body, SysFlag.COMPRESSED))
        version = dialect.loads(parts.part(), DataVersion)
        topics = [_topic(parts.part().decode()) for _ in range(parts.number())]
        servers = dialect.loads(parts.part(), list[str])
    except (FieldError, RecordError, ValueError, struct.error) as error:
        raise FieldError(f"a compressed registration is damaged: {error}") from error
    return RegisterBrokerBody(
        filter_server_list=servers,
        topic_config_serialize_wrapper=TopicsOfBroker(
            topic_config_table={topic.topic_name: topic for topic in topics},
            data_version=version,
        ),
    )


def _topic(text: str) -> TopicConfig:
    # Brokers before 5.0 write five words; the attributes came later.
    name, read, write, perm, filter_type, *rest = text.split(" ", 5)
    return TopicConfig(
        topic_name=name,
        read_queue_nums=int(read),
        write_queue_nums=int(write),
        perm=int(perm),
        topic_filter_type=filter_type,
        attributes=dialect.loads(rest[0].encode(), dict[str, str]) if rest else {},
    )


class _Parts:
    """Reads numbers and the parts whose length stands before them, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self) -> int:
        (number,) = _LENGTH.unpack_from(self._data, self._at)
        self._at += _LENGTH.size
        return int(number)

    def part(self) -> bytes:
        length = self.number()
        part = self._data[self._at : self._at + length]
        if len(part) != length:
            raise ValueError(f"a part of {length} bytes, {len(part)} are left")
        self._at += length
        return part
