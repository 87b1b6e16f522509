"""Broker registrations: JSON, or a compact layout that is sent compressed.

    ┌────────────┬─────────┬───────────┬─ for each topic ─┬────────────┬─────────┬──────────────┐
    │ length (4) │ version │ count (4) │ length (4) │ text │ length (4) │ servers │ mappings (4) │
    └────────────┴─────────┴───────────┴──────────────────┴────────────┴─────────┴──────────────┘

The version and the filter servers are JSON, a topic is the text
`name read write perm filter-type attributes`. Mappings belong to static topics, which we do not
have: they are not read.

A broker may have tens of thousands of topics, so both forms can be decoded in slices.
"""

import struct
import zlib
from collections.abc import Generator, Iterator
from json import JSONDecoder
from typing import Any, Final, TypeAlias

import msgspec

from roquet.model.errors import FieldError, RecordError
from roquet.model.flags import SysFlag
from roquet.model.topic import DataVersion, TopicConfig
from roquet.wire.calls.bodies import RegisterBrokerBody, TopicsOfBroker
from roquet.wire.fastjson.coercion import coerce
from roquet.wire.frame import FRAME_SIZE_MAX
from roquet.wire.records import compression
from roquet.wire.request_body import decode_body

DECOMPRESSED_SIZE_MAX: Final = FRAME_SIZE_MAX
"""Bytes of a decompressed registration: no more than a frame holds without compression."""

TOPICS_MAX: Final = 100_000
"""Topics of one broker: each takes about a KiB of the name server's memory."""

PLAIN_SIZE_MAX: Final = 64 * 1024
"""Bytes of JSON that are decoded at once, in C; larger ones are decoded topic by topic."""

SLICE_TOPICS: Final = 256
"""Topics of one slice of the compact form: one to two milliseconds."""

SLICE_SIZE: Final = 16 * 1024
"""Characters of one slice of JSON: one to two milliseconds, whatever its members are."""

VALUE_SIZE: Final = 4 * 1024
VALUE_SIZE_MAX: Final = 64 * 1024
"""Characters within which one topic ends, usually and at most."""

_LENGTH: Final = struct.Struct(">i")
_json_value: Final = JSONDecoder(strict=False).raw_decode
_DAMAGED: Final = (FieldError, RecordError, ValueError, RecursionError, struct.error)

DecodeSlices: TypeAlias = Generator[None, None, RegisterBrokerBody]
"""Generator that pauses between slices of work, and returns the decoded value."""


def checksum(body: bytes) -> int:
    """CRC-32 of a registration, without its sign bit, as Java ints need it."""
    return zlib.crc32(body) & 0x7FFF_FFFF


def decode(body: bytes, *, compressed: bool) -> RegisterBrokerBody:
    """Decode a registration."""
    slices = decode_slices(decompress(body) if compressed else body, compressed=compressed)
    while True:
        try:
            next(slices)
        except StopIteration as end:
            registration: RegisterBrokerBody = end.value
            return registration


def decompress(body: bytes) -> bytes:
    """Decompress a registration; raises FieldError if it is damaged or too long."""
    try:
        plain = body and compression.decompress(body, SysFlag.COMPRESSED, DECOMPRESSED_SIZE_MAX)
    except RecordError as error:
        raise FieldError(f"a compressed registration is damaged: {error}") from error
    if body and not plain:
        raise FieldError("a compressed registration is damaged: nothing is in it")
    return plain


def decode_slices(body: bytes, *, compressed: bool) -> DecodeSlices:
    """Like `decode` for a decompressed body, with pauses for other work."""
    if not body:
        return RegisterBrokerBody()
    if compressed:
        return (yield from _compact_slices(body))
    if len(body) <= PLAIN_SIZE_MAX:
        return decode_body(body, RegisterBrokerBody)
    return (yield from _json_slices(body))


def _compact_slices(body: bytes) -> DecodeSlices:
    topics: dict[str, TopicConfig] = {}
    try:
        parts = _Parts(body)
        version = decode_body(parts.part(), DataVersion)
        for number in range(_checked(parts.number())):
            topic = _topic(parts.part().decode())
            topics[topic.topic_name] = topic
            if number % SLICE_TOPICS == 0:
                yield
        servers = decode_body(parts.part(), list[str])
    except _DAMAGED as error:
        raise FieldError(f"a compressed registration is damaged: {error}") from error
    wrapper = TopicsOfBroker(topic_config_table=topics, data_version=version)
    return RegisterBrokerBody(filter_server_list=servers, topic_config_serialize_wrapper=wrapper)


def _json_slices(body: bytes) -> DecodeSlices:
    """Decode strict JSON, one topic after the other."""
    wrapper, servers = TopicsOfBroker(), list[str]()
    try:
        text = _JsonText(body.decode())
        for name in text.members():
            if name == "filterServerList":
                servers = _typed(text.value(), list[str])
            elif name == "topicConfigSerializeWrapper":
                wrapper = yield from _wrapper_slices(text)
            else:
                text.value()
            if text.slice_ends():
                yield
    except _DAMAGED as error:
        raise FieldError(f"a registration of {len(body)} bytes is damaged: {error}") from error
    return RegisterBrokerBody(filter_server_list=servers, topic_config_serialize_wrapper=wrapper)


def _wrapper_slices(text: "_JsonText") -> Generator[None, None, TopicsOfBroker]:
    topics: dict[str, TopicConfig] = {}
    version = DataVersion()
    for name in text.members():
        if name == "topicConfigTable":
            yield from _take_topics(text, topics)
        elif name == "dataVersion":
            version = _typed(text.value(), DataVersion)
        else:
            text.value()
        if text.slice_ends():
            yield
    return TopicsOfBroker(topic_config_table=topics, data_version=version)


def _take_topics(text: "_JsonText", topics: dict[str, TopicConfig]) -> Generator[None, None, None]:
    for number, name in enumerate(text.members()):
        _checked(number)
        topics[name] = _typed(text.value(), TopicConfig)
        if text.slice_ends():
            yield


def _typed(value: object, wanted: Any) -> Any:
    try:
        return msgspec.convert(value, wanted, strict=False)
    except msgspec.ValidationError:
        return coerce(value, wanted)


def _checked(count: int) -> int:
    if count > TOPICS_MAX:
        raise ValueError(f"more than {TOPICS_MAX} topics")
    return count


def _topic(text: str) -> TopicConfig:
    # Brokers before 5.0 write five fields; the attributes came later.
    name, read, write, perm, filter_type, *rest = text.split(" ", 5)
    return TopicConfig(
        topic_name=name,
        read_queue_nums=int(read),
        write_queue_nums=int(write),
        perm=int(perm),
        topic_filter_type=filter_type,
        attributes=decode_body(rest[0].encode(), dict[str, str]) if rest else {},
    )


class _JsonText:
    """Reader of strict JSON without blanks, as brokers write it, value by value."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._slice_begin = 0

    def slice_ends(self) -> bool:
        """Whether enough for one slice was read since the last that ended."""
        ends = self._at - self._slice_begin >= SLICE_SIZE
        if ends:
            self._slice_begin = self._at
        return ends

    def members(self) -> Iterator[str]:
        """Names in the next object; the caller reads each name's value before the next name."""
        self._skip("{")
        while not self._text.startswith("}", self._at):
            name = self.value()
            if not isinstance(name, str):
                raise ValueError(f"a name is expected at character {self._at}")  # noqa: TRY004
            self._skip(":")
            yield name
            if self._text.startswith(",", self._at):
                self._at += 1
        self._at += 1

    def value(self) -> object:
        """The next value."""
        at = self._at
        try:
            value, size = _json_value(self._text[at : at + VALUE_SIZE])
        except ValueError:
            value, size = _json_value(self._text[at : at + VALUE_SIZE_MAX])
        self._at += size
        return value

    def _skip(self, sign: str) -> None:
        if not self._text.startswith(sign, self._at):
            raise ValueError(f"{sign} is expected at character {self._at}")
        self._at += 1


class _Parts:
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
