"""Handlers are traced and run in spans, and stay what they were: functions or coroutines."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from tests.client.reading.test_handler_pool import RecordingOwner, filled

from roquet.client.arguments import is_coroutine_function
from roquet.client.reading.message import ReceivedMessage
from roquet.client.reading.message_batch import MessageBatch
from roquet.client.tracing.observed_handler import observed


class Recorder:
    """Notes the beginnings and ends of traces and spans."""

    def __init__(self) -> None:
        self.events: list[str] = []

    @contextmanager
    def _noted(self, kind: str) -> Iterator[None]:
        self.events.append(f"begin {kind}")
        try:
            yield
        except ValueError as error:
            self.events.append(f"{kind} sees {error}")
            raise
        self.events.append(f"end {kind}")

    def process(self, message: ReceivedMessage) -> Any:
        return self._noted(f"span {message.body.decode()}")

    def process_batch(self, messages: Sequence[ReceivedMessage]) -> Any:
        return self._noted(f"span of {len(messages)}")

    def handling(self, messages: Sequence[ReceivedMessage]) -> Any:
        return self._noted(f"trace of {len(messages)}")


def messages(count: int) -> list[ReceivedMessage]:
    return [*iter(filled(RecordingOwner(), count).pop, None)]


def test_a_handler_stays_what_it_is_without_any() -> None:
    assert observed(print, None, None) is print


@pytest.mark.virtual_time(False)
async def test_a_coroutine_is_traced_within_its_span() -> None:
    recorder: Any = Recorder()

    async def handler(_message: ReceivedMessage) -> str:
        recorder.events.append("handled")
        return "result"

    wrapped: Any = observed(handler, recorder, recorder)
    assert is_coroutine_function(wrapped)
    assert await wrapped(*messages(1)) == "result"
    assert recorder.events == [
        "begin span 0", "begin trace of 1", "handled", "end trace of 1", "end span 0",
    ]  # fmt: skip


def test_a_functions_exception_is_seen_and_passes() -> None:
    recorder: Any = Recorder()

    def handler(_message: ReceivedMessage) -> None:
        raise ValueError("no")

    wrapped: Any = observed(handler, None, recorder)
    assert not is_coroutine_function(wrapped)
    with pytest.raises(ValueError, match="no"):
        wrapped(*messages(1))
    assert recorder.events == ["begin span 0", "span 0 sees no"]


def test_a_batch_has_one_span_and_one_trace() -> None:
    recorder: Any = Recorder()
    wrapped: Any = observed(lambda _batch: None, recorder, recorder)
    wrapped(MessageBatch(messages(3)))
    assert recorder.events == [
        "begin span of 3", "begin trace of 3", "end trace of 3", "end span of 3",
    ]  # fmt: skip
