"""Messages are settled by what their handlers returned or raised."""

from typing import Any

import pytest

from roquet.client.reading.handler_result import HandlerResults, fail_message
from roquet.client.reading.message import DEAD_LETTER
from roquet.model.errors import BodyError


class FakeMessage:
    """The parts of a message that settle it; its own owner, which records how it was settled."""

    def __init__(self, tries: int = 0, undecodable: str | None = None) -> None:
        self.tries = tries
        self.undecodable = undecodable
        self.said: list[str] = []
        self._is_settled = False
        self.unreadable = ""
        self._owner = self

    def finish(self, _: object) -> None:
        self.said.append("handled")

    def retry(self, _: object, delay_ms: int | None) -> None:
        assert delay_ms == DEAD_LETTER
        self.said.append("given up")

    def _retry(self, _delay_ms: int | None, _error: object) -> None:
        self.said.append("failed")


async def forgotten() -> None:
    """A coroutine that is never awaited."""


@pytest.mark.parametrize(
    ("result", "said"),
    [(True, "handled"), (0, "handled"), ("x", "handled"), (False, "failed")],
    ids=["true", "zero", "text", "false"],
)
def test_only_false_among_what_is_returned_means_failure(result: Any, said: str) -> None:
    note: Any = FakeMessage()
    HandlerResults().settle(note, result)
    assert note.said == [said]


def test_a_coroutine_that_nobody_awaited_is_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    note: Any = FakeMessage()
    HandlerResults().settle(note, forgotten())
    assert note.said == ["failed"]
    assert "make it an `async def`" in caplog.text


def test_a_returned_value_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    results, note = HandlerResults(), FakeMessage()
    for _ in range(3):
        results.settle(note, "CONSUME_SUCCESS")  # type: ignore[arg-type]
    assert caplog.text.count("has no meaning") == 1


def test_the_first_failure_shows_where(caplog: pytest.LogCaptureFixture) -> None:
    for tries in range(3):
        fail_message(FakeMessage(tries), ValueError("broken"))  # type: ignore[arg-type]
    assert caplog.text.count("ValueError: broken") == 1
    assert "try 3" in caplog.text


def test_a_message_that_cannot_be_decoded_is_given_up_and_no_handler_blamed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    note: Any = FakeMessage(undecodable="KeyError: 'id'")
    fail_message(note, BodyError("the body cannot be decoded"))
    assert (note.said, note.dead_letter_reason) == (["given up"], "KeyError: 'id'")
    assert caplog.text == ""
