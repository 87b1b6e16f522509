"""Message rows: messages as tables and streams show them, with masked bodies in one line."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final
from urllib.parse import urlencode

import msgspec

from roquet.dashboard.masking import MaskedBody, MaskRule, mask_body
from roquet.model.message import StoredMessage
from roquet.model.printable_text import printable

TEXT_MAX: Final = 128 * 1024
"""Bytes of a body that a page shows; the rest is in the download."""

HEX_MAX: Final = 16 * 1024
"""Bytes of a hex dump: each takes four characters on the page."""

PREVIEW_MAX: Final = 120
"""Characters of a body in a row of a table."""

_LINE: Final = 16
_BLANKS: Final = str.maketrans("\n\r\t", "   ")


class BodyForm(StrEnum):
    """Notation in which a body is shown."""

    AUTO = "auto"
    """JSON if it is an object or an array, else text if it is UTF-8, else hex."""
    JSON = "json"
    TEXT = "text"
    HEX = "hex"


class BodyView(msgspec.Struct, frozen=True, kw_only=True):
    """A body in one notation, cut to a length that a page bears."""

    form: BodyForm
    """Never AUTO."""
    text: str
    size: int
    """Bytes of the whole body."""
    shown: int
    """Bytes that the text stands for; fewer than `size` when it is cut."""
    is_binary: bool = False
    """Whether it is no UTF-8, or holds control characters."""
    is_masked: bool = False
    note: str = ""
    """Reason why the wanted notation is not shown; empty when it is."""

    @property
    def is_cut(self) -> bool:
        """Whether a part is left out."""
        return self.shown < self.size


def body_view(body: MaskedBody, form: BodyForm = BodyForm.AUTO) -> BodyView:
    """A body in the wanted notation, or in the next one that can show it."""
    text = _as_text(body.data)
    is_binary = text is None
    note = ""
    if form in (BodyForm.AUTO, BodyForm.JSON) and text is not None:
        indented = _as_json(body.data, scalars=form is BodyForm.JSON)
        if indented is not None:
            return _view(body, BodyForm.JSON, indented, is_binary=False)
        note = "the body is no JSON" if form is BodyForm.JSON else ""
    if form is BodyForm.HEX or (form is BodyForm.AUTO and is_binary):
        shown = body.data[:HEX_MAX]
        return BodyView(
            form=BodyForm.HEX,
            text="\n".join(_hex_lines(shown)),
            size=len(body.data),
            shown=len(shown),
            is_binary=is_binary,
            is_masked=body.is_masked,
        )
    if form is BodyForm.JSON and is_binary:
        note = "the body is binary"
    shown_text = body.data.decode("utf-8", "replace") if text is None else text
    return _view(body, BodyForm.TEXT, shown_text, is_binary=is_binary, note=note)


def preview(body: MaskedBody, longest: int = PREVIEW_MAX) -> str:
    """A body in one line, cut to `longest` characters; binary data as hex, with its length."""
    if body.is_masked and not body.data:
        return "(hidden by a rule)"
    head = body.data[: 4 * longest]
    text = _as_text(head if len(head) == len(body.data) else _whole_characters(head))
    if text is None:
        shown = body.data[: longest // 3].hex(" ")
        return f"binary, {len(body.data):,} bytes: {shown}"
    line = printable(text.translate(_BLANKS))
    return line if len(line) <= longest and len(head) == len(body.data) else f"{line[:longest]}…"


def _view(
    body: MaskedBody, form: BodyForm, text: str, *, is_binary: bool, note: str = ""
) -> BodyView:
    is_cut = len(text) > TEXT_MAX
    return BodyView(
        form=form,
        text=printable(text[:TEXT_MAX], keep="\n\t"),
        size=len(body.data),
        shown=min(TEXT_MAX, len(body.data) - 1) if is_cut else len(body.data),
        is_binary=is_binary,
        is_masked=body.is_masked,
        note=note,
    )


def _as_text(data: bytes) -> str | None:
    """UTF-8 text without control characters but tabs and line breaks; None for other bytes."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    plain = text.translate(_BLANKS)
    is_text = plain.isprintable() or not any(ord(char) < 0x20 or char == "\x7f" for char in plain)
    return text if is_text else None


def _whole_characters(head: bytes) -> bytes:
    """The start of a text without a character that the cut has halved."""
    for less in range(4):
        try:
            head[: len(head) - less].decode()
        except UnicodeDecodeError:
            continue
        return head[: len(head) - less]
    return head


def _as_json(data: bytes, *, scalars: bool) -> str | None:
    """Indented JSON; None for other text, and for numbers and strings without `scalars`."""
    if len(data) > TEXT_MAX or not (scalars or data.lstrip()[:1] in (b"{", b"[")):
        return None
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
        return msgspec.json.format(data, indent=2).decode()
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def _hex_lines(data: bytes) -> Iterator[str]:
    """Offset, 16 bytes in hex, and what of them is ASCII."""
    for at in range(0, len(data), _LINE):
        part = data[at : at + _LINE]
        letters = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)
        yield f"{at:08x}  {part[:8].hex(' '):23}  {part[8:].hex(' '):23}  {letters}"


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
