"""The sends that `plain_sends` reads, read by command and call as every other request is.

Tests and fuzzing hold the compiled form to this one.
"""

from inspect import unwrap

from roquet.broker.ingest.property_normalizer import plain_facts
from roquet.model.properties import UNIQUE_KEY
from roquet.wire import command
from roquet.wire.calls.send import Send
from roquet.wire.fields import decode_call
from roquet.wire.plain_send import SEND_CODES, PlainSend
from roquet.wire.records.property_text import decode_properties, encode_properties
from roquet.wire.records.speedups import extension
from roquet.wire.signing import SigningKey, signed_by

Keys = dict[str, SigningKey] | None


def usual_send(frame: bytes, end: int = 0, keys: Keys = None) -> PlainSend:
    """The plain send of a whole frame that ends at `end` of its chunk, or is all of it."""
    sent = command.decode(frame[4:])
    call, key = decode_call(sent, Send), None
    text, facts = _text_and_facts(call)
    assert sent.code in SEND_CODES
    assert call.batch or sent.code == SEND_CODES[0]
    assert (sent.flag, sent.remark) == (0, None)
    if keys is not None:
        signer = unwrap(signed_by)(sent.fields, call.body, keys, ())
        assert signer is not None
        key = keys[signer[0]]
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


def usual_sends(chunk: bytes, size_max: int, keys: Keys) -> list[PlainSend]:
    """As many sends as `plain_sends` finds compiled."""
    sends, at = [], 0
    assert extension is not None
    for _ in extension.plain_sends(chunk, size_max, keys):
        end = at + 4 + int.from_bytes(chunk[at : at + 4])
        sends.append(usual_send(chunk[at:end], end, keys))
        at = end
    return sends
