"""Plain requests, read by command and call as every other request is.

Tests and fuzzing hold the compiled readers to these.
"""

from collections.abc import Iterator
from inspect import unwrap

from msgspec.structs import asdict

from roquet.broker.ingest.property_normalizer import plain_facts
from roquet.model.properties import UNIQUE_KEY
from roquet.wire import command
from roquet.wire.calls.pull import Pull
from roquet.wire.calls.send import Send
from roquet.wire.fields import decode_call
from roquet.wire.plain_pull import PULL_CODE, PlainPull
from roquet.wire.plain_send import SEND_CODES, PlainSend
from roquet.wire.records.property_text import decode_properties, encode_properties
from roquet.wire.records.speedups import extension
from roquet.wire.signing import SigningKey, signed_by

Keys = dict[str, SigningKey] | None


def usual_send(frame: bytes, end: int = 0, keys: Keys = None) -> PlainSend:
    """The plain send of a whole frame that ends at `end` of its chunk, or is all of it."""
    sent = command.decode(frame[4:])
    call, key = decode_call(sent, Send), _key_of(sent, keys)
    text, facts = _text_and_facts(call)
    assert sent.code in SEND_CODES
    assert call.batch or sent.code == SEND_CODES[0]
    assert (sent.flag, sent.remark) == (0, None)
    return PlainSend(
        sent.opaque, sent.serialize_type, sent.language, sent.version, call.topic, call.queue_id,
        call.sys_flag, call.born_timestamp, call.flag, call.reconsume_times, text, facts[0],
        facts[2].decode(), call.body, key, end or len(frame), sent.code, call.batch,
    )  # fmt: skip


def _text_and_facts(call: Send) -> tuple[bytes, tuple[int, bool, bytes]]:
    """The properties that a plain send has, and their facts, which a batch lacks."""
    if call.batch:
        shared = decode_properties(call.properties)
        shared.pop(UNIQUE_KEY, None)
        return encode_properties(shared), (0, True, b"")
    text = call.properties.encode("utf-8", "surrogatepass")
    facts = plain_facts(text)
    assert facts is not None
    return text, facts


def usual_pull(frame: bytes, end: int = 0, keys: Keys = None) -> PlainPull:
    """The plain pull of a whole frame that ends at `end` of its chunk, or is all of it."""
    sent = command.decode(frame[4:])
    call = decode_call(sent, Pull)
    assert (sent.code, sent.flag, sent.remark, sent.body) == (PULL_CODE, 0, None, b"")
    assert call.topic_id is None
    parts = asdict(sent) | asdict(call) | {"end": end or len(frame), "key": _key_of(sent, keys)}
    return PlainPull(**{name: parts[name] for name in PlainPull.__struct_fields__})


def _key_of(sent: command.Command, keys: Keys) -> SigningKey | None:
    """The key among `keys` that has signed a request; None where signatures are not looked at."""
    if keys is None:
        return None
    signer = unwrap(signed_by)(sent.fields, sent.body, keys, ())
    assert signer is not None
    return keys[signer[0]]


def usual_sends(chunk: bytes, size_max: int, keys: Keys) -> list[PlainSend]:
    """As many sends as `plain_sends` finds compiled."""
    assert extension is not None
    found = extension.plain_sends(chunk, size_max, keys)
    return [usual_send(*frame, keys) for frame in _frames(chunk, len(found))]


def usual_pulls(chunk: bytes, size_max: int, keys: Keys) -> list[PlainPull]:
    """As many pulls as `plain_pulls` finds compiled."""
    assert extension is not None
    found = extension.plain_pulls(chunk, size_max, keys)
    return [usual_pull(*frame, keys) for frame in _frames(chunk, len(found))]


def _frames(chunk: bytes, count: int) -> Iterator[tuple[bytes, int]]:
    """The first frames of a chunk, and where each ends."""
    at = 0
    for _ in range(count):
        end = at + 4 + int.from_bytes(chunk[at : at + 4])
        yield chunk[at:end], end
        at = end
