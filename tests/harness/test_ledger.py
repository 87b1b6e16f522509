"""The ledger finds whatever a log may have done to acknowledged messages."""

import pytest

from harness.ledger import Ledger, Pauses


@pytest.fixture
def ledger() -> Ledger:
    """A ledger of one queue."""
    return Ledger(1)


def stored(ledger: Ledger, count: int) -> list[bytes]:
    """Bodies that were sent and acknowledged, in order."""
    bodies = [ledger.next_body(0) for _ in range(count)]
    for offset, body in enumerate(bodies):
        ledger.acknowledge(0, offset, body)
    return bodies


def test_a_log_with_every_acknowledged_message_is_right(ledger: Ledger) -> None:
    bodies = stored(ledger, 3)
    assert ledger.count == 3
    assert ledger.judge(0, bodies) == 0
    assert ledger.judge(0, [*bodies, ledger.next_body(0)]) == 0, "one whose outcome is unknown"


def test_a_message_that_was_sent_again_is_counted(ledger: Ledger) -> None:
    bodies = stored(ledger, 3)
    assert ledger.judge(0, [*bodies, bodies[-1]]) == 1


def test_a_lost_message_is_found(ledger: Ledger) -> None:
    bodies = stored(ledger, 3)
    with pytest.raises(AssertionError, match="acknowledged offset 2 is lost"):
        ledger.judge(0, bodies[:2])


def test_another_message_at_its_offset_is_found(ledger: Ledger) -> None:
    bodies = stored(ledger, 3)
    with pytest.raises(AssertionError, match="offset 1 holds another message"):
        ledger.judge(0, [bodies[0], bodies[2], bodies[2]])


def test_an_offset_that_was_acknowledged_for_two_messages_is_found(ledger: Ledger) -> None:
    bodies = stored(ledger, 3)
    later = ledger.next_body(0)
    ledger.acknowledge(0, 2, later)
    with pytest.raises(AssertionError, match="offset 2 was acknowledged for two messages"):
        ledger.judge(0, [*bodies[:2], later])


def test_a_message_that_nobody_sent_is_found(ledger: Ledger) -> None:
    bodies = stored(ledger, 3)
    with pytest.raises(AssertionError, match="1 messages that nobody sent"):
        ledger.judge(0, [*bodies, b"0:9:x"])


def test_messages_out_of_order_are_found(ledger: Ledger) -> None:
    bodies = [ledger.next_body(0) for _ in range(2)]
    with pytest.raises(AssertionError, match="out of order"):
        ledger.judge(0, bodies[::-1])


def test_a_message_that_was_not_read_or_read_as_another_is_missing() -> None:
    ledger = Ledger(8)
    ledger.acknowledge(0, 0, b"a")
    ledger.acknowledge(0, 1, b"b")
    ledger.acknowledge(3, 7, b"c")
    ledger.note_read(0, 0, b"a")
    ledger.note_read(0, 1, b"x")
    assert ledger.missing == ["queue 0 offset 1", "queue 3 offset 7"]
    ledger.note_read(0, 0, b"a")
    assert (ledger.twice, ledger.contradictions) == (1, [])
    ledger.note_read(0, 1, b"b")
    assert ledger.contradictions == ["queue 0: two messages had offset 1"]


def test_a_pause_may_have_begun_before_the_step_and_last_until_now() -> None:
    ledger = Ledger(8)
    for queue_id in range(8):
        for offset, at in enumerate((92, 97) if queue_id == 4 else (91, 99, 100)):
            ledger.acknowledge(queue_id, offset, b"", at)
    assert ledger.longest_pause(96, 100) == 8, "since the last acknowledgement before it"
    assert ledger.longest_pause(99.5, 100) == 3
    assert ledger.count == ledger.measured == 3 * 7 + 2


def test_a_pause_of_all_queues_is_over_when_one_of_them_goes_on() -> None:
    ledger, pauses = Ledger(2), Pauses()
    for queue_id, at in ((0, 1), (1, 4), (0, 6)):
        ledger.acknowledge(queue_id, at, b"", at)
    assert pauses.note("kill", 0, ledger) == 3
    assert pauses.by_kind == {"kill": [3]}
