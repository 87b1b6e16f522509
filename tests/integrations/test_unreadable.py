import logging
import sys

import pytest

from roquet.client import Compression, MessageQueue, ReceivedMessage
from roquet.client.reading.message import DEAD_LETTER, UNREADABLE, InboundMessage
from roquet.integrations.unreadable import readable_body
from roquet.wire.records import record
from roquet.wire.records.compression import compress, with_compression

HOST = bytes([127, 0, 0, 1, 0, 0, 0, 0])


class Owner:
    """Notes how its messages were settled."""

    is_held = True

    def __init__(self) -> None:
        self.delays: list[int | None] = []

    def finish(self, message: InboundMessage) -> None:
        raise AssertionError("an unread message is not handled")

    def retry(self, message: InboundMessage, delay_ms: int | None) -> None:
        self.delays.append(delay_ms)


def message_of(body: bytes, kind: Compression | None, owner: Owner) -> ReceivedMessage:
    sys_flag = 0 if kind is None else with_compression(0, kind)
    stored = record.pack(0, 0, 0, 0, sys_flag, 0, HOST, 0, HOST, 0, 0, body, b"orders", b"")
    return ReceivedMessage(MessageQueue("orders", "a", 0), record.decode(stored), owner)


@pytest.mark.parametrize(
    ("body", "kind"), [(b"x", None), (compress(b"x", Compression.ZLIB, 5), Compression.ZLIB)]
)
async def test_a_body_that_can_be_read_settles_nothing(
    body: bytes, kind: Compression | None
) -> None:
    owner = Owner()
    message = message_of(body, kind, owner)
    assert await readable_body(message) == b"x"
    assert (owner.delays, message.is_settled) == ([], False)


async def test_a_damaged_body_is_a_dead_letter_with_its_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    owner = Owner()
    message = message_of(b"no zlib", Compression.ZLIB, owner)
    with caplog.at_level(logging.WARNING, "roquet"):
        assert await readable_body(message) is None
    assert owner.delays == [DEAD_LETTER]
    assert "zlib" in (message.dead_letter_reason or "")
    assert "cannot be read and is given up" in caplog.text


async def test_a_body_whose_package_is_missing_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owner = Owner()
    message = message_of(compress(b"x", Compression.ZSTD, 3), Compression.ZSTD, owner)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    assert await readable_body(message) is None
    assert owner.delays == [UNREADABLE]
