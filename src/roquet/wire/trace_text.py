"""Trace records: the text that clients write into the trace topic about their messages.

    Pub         time, region, group, topic, message, tag, keys, store host, body length, ms taken,
                kind, broker's id of the message, success
    SubBefore   time, region, group, request, message, tries, keys
    SubAfter    request, message, ms taken, success, keys, outcome, time, group
    EndTransaction, Recall: as below

A record begins with its name; U+0001 separates its fields, U+0002 ends it. An unknown value is the
text "null", as in Java: its own reader cannot read a SubBefore whose keys are empty.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Final, TypeAlias

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
    return list(_decoded(text))


def _decoded(text: str) -> Iterator[Trace]:
    for line in text.split(RECORD):
        fields = line.split(FIELD)
        read = _READERS.get(fields[0])
        if read is None:
            continue
        try:
            yield read(["" if field == UNKNOWN else field for field in fields])
        except (ValueError, IndexError):  # cut short, or another program's
            continue


def _record(trace: Trace) -> str:
    """Its name and its fields, which stand in the text as they do in the class."""
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
            return str(value)  # of a Kind or an Outcome its number


def _sent(f: list[str]) -> SendTrace:
    has_id = len(f) >= 14  # older clients do not tell the broker's own id
    return SendTrace(
        at_ms=int(f[1]),
        region=f[2],
        group=f[3],
        topic=f[4],
        message_id=f[5],
        tag=f[6],
        keys=f[7],
        store_host=f[8],
        body_length=int(f[9]),
        took_ms=int(f[10]),
        kind=int(f[11]),
        offset_message_id=f[12] if has_id else "",
        success=f[13 if has_id else 12] == "true",
    )


def _begun(f: list[str]) -> ConsumeStartTrace:
    return ConsumeStartTrace(
        at_ms=int(f[1]),
        region=f[2],
        group=f[3],
        request_id=f[4],
        message_id=f[5],
        tries=int(f[6]),
        keys=f[7],
    )


def _ended(f: list[str]) -> ConsumeEndTrace:
    return ConsumeEndTrace(
        request_id=f[1],
        message_id=f[2],
        took_ms=int(f[3]),
        success=f[4] == "true",
        keys=f[5],
        outcome=int(f[6]) if len(f) > 6 else ConsumeReturnType.SUCCESS,
        at_ms=int(f[7]) if len(f) > 8 else 0,
        group=f[8] if len(f) > 8 else "",
    )


def _transaction_ended(f: list[str]) -> TransactionTrace:
    return TransactionTrace(
        at_ms=int(f[1]),
        region=f[2],
        group=f[3],
        topic=f[4],
        message_id=f[5],
        tag=f[6],
        keys=f[7],
        store_host=f[8],
        kind=int(f[9]),
        transaction_id=f[10],
        state=f[11],
        from_check=f[12] == "true",
    )


def _recalled(f: list[str]) -> RecallTrace:
    return RecallTrace(
        at_ms=int(f[1]),
        region=f[2],
        group=f[3],
        topic=f[4],
        message_id=f[5],
        success=f[6] == "true",
    )


_READERS: Final[Mapping[str, Callable[[list[str]], Trace]]] = {
    "Pub": _sent,
    "SubBefore": _begun,
    "SubAfter": _ended,
    "EndTransaction": _transaction_ended,
    "Recall": _recalled,
}

_NAMES: Final[Mapping[type[Trace], str]] = {
    SendTrace: "Pub",
    ConsumeStartTrace: "SubBefore",
    ConsumeEndTrace: "SubAfter",
    TransactionTrace: "EndTransaction",
    RecallTrace: "Recall",
}
