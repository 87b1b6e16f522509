"""Handlers run in spans, and stay what they were: functions or coroutines, with their results."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from roquet.client.reading.handler_pool import is_coroutine_function
from roquet.client.reading.message import ReceivedMessage
from roquet.client.tracing.handler_spans import in_spans

MESSAGE = cast("ReceivedMessage", object())


class RecordedSpans:
    """Notes the beginnings and ends of spans."""

    def __init__(self) -> None:
        self.events: list[str] = []

    @contextmanager
    def process(self, message: ReceivedMessage) -> Iterator[None]:
        assert message is MESSAGE
        self.events.append("begin")
        try:
            yield
        finally:
            self.events.append("end")


@pytest.mark.virtual_time(False)
async def test_a_coroutine_runs_in_a_span() -> None:
    spans: Any = RecordedSpans()

    async def handler(message: ReceivedMessage) -> str:
        spans.events.append("handled")
        return "result"

    wrapped: Any = in_spans(handler, spans)
    assert is_coroutine_function(wrapped)
    assert await wrapped(MESSAGE) == "result"
    assert spans.events == ["begin", "handled", "end"]


def test_a_function_runs_in_a_span_and_its_exception_passes() -> None:
    spans: Any = RecordedSpans()

    def handler(message: ReceivedMessage) -> None:
        raise ValueError("no")

    wrapped: Any = in_spans(handler, spans)
    assert not is_coroutine_function(wrapped)
    with pytest.raises(ValueError, match="no"):
        wrapped(MESSAGE)
    assert spans.events == ["begin", "end"]
