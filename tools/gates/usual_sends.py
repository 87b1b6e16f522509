"""The sends that `plain_sends` reads, read by command and call as every other request is.

Tests and fuzzing hold the compiled form to this one.
"""

from inspect import unwrap

from roquet.broker.ingest.property_normalizer import plain_facts
from roquet.wire import command
from roquet.wire.calls.send import Send
from roquet.wire.fields import decode_call
from roquet.wire.plain_send import PLAIN_CODE, PlainSend
from roquet.wire.records.speedups import extension
from roquet.wire.signing import SigningKey, signed_by

Keys = dict[str, SigningKey] | None


def usual_send(frame: bytes, end: int = 0, keys: Keys = None) -> PlainSend:
    """The plain send of a whole frame that ends at `end` of its chunk, or is all of it."""
    sent = command.decode(frame[4:])
    call, key = decode_call(sent, Send), None
    text = call.properties.encode("utf-8", "surrogatepass")
    facts = plain_facts(text)
    assert facts is not None
    assert not call.batch
    assert (sent.code, sent.flag, sent.remark) == (PLAIN_CODE, 0, None)
    if keys is not None:
        signer = unwrap(signed_by)(sent.fields, call.body, keys, ())
        assert signer is not None
        key = keys[signer[0]]
    return PlainSend(
        sent.opaque, sent.serialize_type, sent.language, sent.version, call.topic, call.queue_id,
        call.sys_flag, call.born_timestamp, call.flag, call.reconsume_times, text, facts[0],
        facts[2].decode(), call.body, key, end or len(frame),
    )  # fmt: skip


def usual_sends(chunk: bytes, size_max: int, keys: Keys) -> list[PlainSend]:
    """As many sends as `plain_sends` finds compiled."""
    sends, at = [], 0
    assert extension is not None
    for _ in extension.plain_sends(chunk, size_max, keys):
        end = at + 4 + int.from_bytes(chunk[at : at + 4])
        sends.append(usual_send(chunk[at:end], end, keys))
        at = end
    return sends
