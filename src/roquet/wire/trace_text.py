"""Trace records: the text that clients write into the trace topic about their messages.

    Pub         time, region, group, topic, message, tag, keys, store host, body length, ms taken,
                kind, broker's id of the message, success
    SubBefore   time, region, group, request, message, tries, keys
    SubAfter    request, message, ms taken, success, keys, outcome, time, group
    EndTransaction, Recall: as below

A record begins with its name; U+0001 separates its fields, U+0002 ends it. An unknown value is the
text "null", as in Java: its own reader cannot read a SubBefore whose keys are empty.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from enum import IntEnum
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import astuple

FIELD: Final = "\x01"
RECORD: Final = "\x02"
UNKNOWN: Final = "null"


class TraceMessageType(IntEnum):
    """Kind of a sent message (Java's MessageType)."""

    NORMAL = 0
    HALF = 1
    COMMITTED = 2
    DELAYED = 3
    ORDERED = 4


class ConsumeReturnType(IntEnum):
    """Result of a handler (Java's ConsumeReturnType)."""

    SUCCESS = 0
    TIMED_OUT = 1
    RAISED = 2
    RETURNED_NOTHING = 3
    FAILED = 4


class SendTrace(msgspec.Struct, frozen=True, kw_only=True):
    """A message was sent."""

    at_ms: int
    region: str = ""
    group: str = ""
    topic: str
    message_id: str
    tag: str = ""
    keys: str = ""
    store_host: str = ""
    body_length: int = 0
    took_ms: int = 0
    kind: int = TraceMessageType.NORMAL
    offset_message_id: str = ""
    success: bool = True


class ConsumeStartTrace(msgspec.Struct, frozen=True, kw_only=True):
    """A handler has received a message."""

    at_ms: int
    region: str = ""
    group: str = ""
    request_id: str
    """Common to the two records of one try."""
    message_id: str
    tries: int = 0
    keys: str = ""


class ConsumeEndTrace(msgspec.Struct, frozen=True, kw_only=True):
    """A handler has finished."""

    request_id: str
    message_id: str
    took_ms: int = 0
    success: bool = True
    keys: str = ""
    outcome: int = ConsumeReturnType.SUCCESS
    at_ms: int = 0
    group: str = ""


class TransactionTrace(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction was committed or rolled back."""

    at_ms: int
    region: str = ""
    group: str = ""
    topic: str
    message_id: str
    tag: str = ""
    keys: str = ""
    store_host: str = ""
    kind: int = TraceMessageType.COMMITTED
    transaction_id: str = ""
    state: str = ""
    """COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW."""
    from_check: bool = False


class RecallTrace(msgspec.Struct, frozen=True, kw_only=True):
    """A timer message was cancelled."""

    at_ms: int
    region: str = ""
    group: str = ""
    topic: str
    message_id: str
    success: bool = True


Trace: TypeAlias = SendTrace | ConsumeStartTrace | ConsumeEndTrace | TransactionTrace | RecallTrace


def encode(traces: Iterable[Trace]) -> str:
    """Encode trace records."""
    return "".join([_record(trace) for trace in traces])


def decode(text: str) -> list[Trace]:
    """Decode trace records; those that cannot be understood are left out."""
    traces = []
    for record in text.split(RECORD):
        name, *texts = ["" if field == UNKNOWN else field for field in record.split(FIELD)]
        if (kind := _KINDS.get(name)) is not None:
            with suppress(ValueError):  # cut short, or another program's
                traces.append(_decoded(kind, texts))
    return traces


def _decoded(kind: type[Trace], texts: list[str]) -> Trace:
    """Decode the fields of a record, in the order of the class; raises ValueError."""
    if kind is SendTrace and len(texts) == len(_PARSERS[kind]) - 1:
        texts.insert(-1, "")  # older clients do not send the broker's id of the message
    if kind is ConsumeEndTrace and 5 <= len(texts) < len(_PARSERS[kind]):
        del texts[6:]  # older clients send neither the time nor the group, or not even the outcome
    elif len(texts) < len(_PARSERS[kind]):
        raise ValueError(f"{len(texts)} fields are too few")
    fields = zip(_PARSERS[kind].items(), texts, strict=False)
    values: dict[str, Any] = {name: parse(text) for (name, parse), text in fields}
    return kind(**values)


def _record(trace: Trace) -> str:
    return FIELD.join([_NAMES[type(trace)], *map(_text, astuple(trace))]) + RECORD


def _text(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case "":
            return UNKNOWN
        case str():  # its own separators would break all that follows
            return value.replace(FIELD, " ").replace(RECORD, " ")
        case _:
            return str(value)  # the number of an enum


_KINDS: Final[Mapping[str, type[Trace]]] = {
    "Pub": SendTrace,
    "SubBefore": ConsumeStartTrace,
    "SubAfter": ConsumeEndTrace,
    "EndTransaction": TransactionTrace,
    "Recall": RecallTrace,
}

_NAMES: Final = {kind: name for name, kind in _KINDS.items()}

_PARSE: Final[Mapping[type, Callable[[str], object]]] = {str: str, int: int, bool: "true".__eq__}

_PARSERS: Final = {
    kind: {field.name: _PARSE[field.type] for field in msgspec.structs.fields(kind)}
    for kind in _NAMES
}
"""By class, the parser of each field."""
