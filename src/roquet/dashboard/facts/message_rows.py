"""Message rows: messages as tables and streams show them, with masked bodies in one line."""

from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import urlencode

import msgspec

from roquet.dashboard.facts.body import preview
from roquet.dashboard.masking import MaskRule, mask_body
from roquet.model.message import StoredMessage
from roquet.model.printable_text import printable


class MessageRow(msgspec.Struct, frozen=True, kw_only=True):
    """A message in a table; what does not print is escaped."""

    topic: str
    broker: str
    queue: int
    offset: int
    message_id: str
    stored_ms: int
    tag: str | None
    keys: str
    """All keys, separated by spaces."""
    size: int
    """Bytes of the body."""
    tries: int
    """Earlier failed tries."""
    preview: str
    body_note: str
    """Why the body is not whole; empty when it is."""
    is_masked: bool
    address: str
    """Path and query of its own page."""


def message_rows(
    messages: Iterable[StoredMessage], rules: Sequence[MaskRule]
) -> Sequence[MessageRow]:
    """Messages as rows, in their order."""
    return [message_row(message, rules) for message in messages]


def message_row(message: StoredMessage, rules: Sequence[MaskRule]) -> MessageRow:
    """One message as a row."""
    body = mask_body(rules, message)
    return MessageRow(
        topic=printable(message.topic),
        broker=message.broker_name,
        queue=message.queue_id,
        offset=message.queue_offset,
        message_id=printable(message.message_id),
        stored_ms=message.stored_ms,
        tag=None if message.tag is None else printable(message.tag),
        keys=printable(" ".join(message.keys)),
        size=len(message.body),
        tries=message.reconsume_times,
        preview=preview(body),
        body_note=message.body_note,
        is_masked=body.is_masked,
        address=f"/messages/one?{urlencode(place(message))}",
    )


def place(message: StoredMessage) -> Mapping[str, str]:
    """The fields of an address that name a message by its place."""
    return {
        "topic": message.topic,
        "broker": message.broker_name,
        "queue": str(message.queue_id),
        "offset": str(message.queue_offset),
    }
