"""The trace of a message: its send, its deliveries and how each of them ended."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from roquet.admin import messages
from roquet.admin.client import AdminClient
from roquet.model.errors import UsageError
from roquet.model.names import TRACE_TOPIC
from roquet.wire import trace_text
from roquet.wire.trace_text import (
    ConsumeEndTrace,
    ConsumeReturnType,
    ConsumeStartTrace,
    RecallTrace,
    SendTrace,
    Trace,
    TransactionTrace,
)

RECORDS_MAX: Final = 64
"""Trace messages that are looked up for one message."""

_OUTCOMES: Final = {
    ConsumeReturnType.SUCCESS: "handled",
    ConsumeReturnType.TIMED_OUT: "timed out",
    ConsumeReturnType.RAISED: "raised an error",
    ConsumeReturnType.RETURNED_NOTHING: "returned nothing",
    ConsumeReturnType.FAILED: "failed",
}


class TraceStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step in the life of a message, as a client has recorded it."""

    at_ms: int
    """By the client's clock; 0 when an older client does not say."""
    group: str
    event: str
    """As `sent`, or `handled, try 2`."""
    took_ms: int | None = None
    success: bool | None = None
    """None while a handler has not reported how it ended."""
    detail: str = ""


async def trace_of(
    admin: AdminClient, message_id: str, topic: str = TRACE_TOPIC
) -> Sequence[TraceStep]:
    """The steps of a message by time; empty when its clients write no trace.

    Raises UsageError when there is no such trace topic.
    """
    if await admin.route(topic) is None:
        raise UsageError(
            f"tracing is off: no broker has the topic {topic} (traceTopicEnable=true makes it)"
        )
    found = await messages.by_key(admin, topic, message_id, count=RECORDS_MAX)
    texts = [message.body.decode("utf-8", "replace") for message in found]
    return steps_of(message_id, (trace for text in texts for trace in trace_text.decode(text)))


def steps_of(message_id: str, traces: Iterable[Trace]) -> Sequence[TraceStep]:
    """The steps that trace records tell of one message, by time."""
    mine = [trace for trace in traces if trace.message_id == message_id]
    ends = {trace.request_id: trace for trace in mine if isinstance(trace, ConsumeEndTrace)}
    starts = {trace.request_id for trace in mine if isinstance(trace, ConsumeStartTrace)}
    steps = [step for trace in mine for step in _step(trace, ends, starts)]
    return sorted(steps, key=lambda step: step.at_ms)


def _step(trace: Trace, ends: dict[str, ConsumeEndTrace], starts: set[str]) -> Iterator[TraceStep]:
    match trace:
        case SendTrace():
            yield TraceStep(
                at_ms=trace.at_ms,
                group=trace.group,
                event="sent" if trace.success else "send failed",
                took_ms=trace.took_ms,
                success=trace.success,
                detail=f"to {trace.store_host}" if trace.store_host else "",
            )
        case ConsumeStartTrace():
            end = ends.get(trace.request_id)
            yield TraceStep(
                at_ms=trace.at_ms,
                group=trace.group,
                event=f"{_outcome(end)}, try {trace.tries + 1}",
                took_ms=end.took_ms if end else None,
                success=end.success if end else None,
            )
        case ConsumeEndTrace():
            if trace.request_id in starts:
                return
            yield TraceStep(
                at_ms=trace.at_ms,
                group=trace.group,
                event=_outcome(trace),
                took_ms=trace.took_ms,
                success=trace.success,
            )
        case TransactionTrace():
            yield TraceStep(
                at_ms=trace.at_ms,
                group=trace.group,
                event=f"transaction: {trace.state}",
                detail="after a check" if trace.from_check else "",
            )
        case RecallTrace():
            yield TraceStep(
                at_ms=trace.at_ms, group=trace.group, event="recalled", success=trace.success
            )


def _outcome(end: ConsumeEndTrace | None) -> str:
    if end is None:
        return "handler runs, or never reported"
    known = {int(value): text for value, text in _OUTCOMES.items()}
    return known.get(end.outcome, f"ended with {end.outcome}")
