from hypothesis import given
from hypothesis import strategies as st

from roquet.rules.delay.due_queue import DueQueue

BEGIN = 1_700_000_000_000
Unit = tuple[int, int]
units = st.tuples(st.integers(0, 1_000), st.integers(0, 2**47)).map(
    lambda unit: (BEGIN + unit[0], unit[1])
)


def drained(second: DueQueue) -> list[Unit]:
    dues = []
    while (first := second.first()) is not None:
        dues.append(first)
        second.drop()
    return dues


@given(st.lists(units, unique=True), st.lists(units, unique=True))
def test_messages_come_by_time_and_then_by_coming(before: list[Unit], after: list[Unit]) -> None:
    second = DueQueue(BEGIN, -1, (0, 0))
    for unit in before:
        second.add(*unit)
    second.first()
    more = [unit for unit in after if unit not in before]
    for unit in more:
        second.add(*unit)
    assert drained(second) == sorted(before + more)


def test_messages_delivered_before_a_restart_do_not_come_again() -> None:
    second = DueQueue(BEGIN, -1, (BEGIN + 500, 104))
    for unit in [(BEGIN + 400, 900), (BEGIN + 500, 104), (BEGIN + 500, 156), (BEGIN + 501, 0)]:
        second.add(*unit)
    assert drained(second) == [(BEGIN + 500, 156), (BEGIN + 501, 0)]


def test_a_second_is_known_when_its_chain_has_ended() -> None:
    second = DueQueue(BEGIN, 52, (0, 0))
    assert not second.is_known
    second.next = -1
    assert second.is_known


def test_a_message_is_taken_back_by_topic_and_key() -> None:
    second = DueQueue(BEGIN, -1, (0, 0))
    second.recall("orders", "k1")
    assert second.is_recalled("orders", "k1")
    assert not second.is_recalled("orders", "k2")
    assert not second.is_recalled("bills", "k1")


def test_messages_due_before_the_second_come_first() -> None:
    second = DueQueue(BEGIN, -1, (0, 0))
    second.add(BEGIN + 1, 0)
    second.add(BEGIN - 700, 52)
    assert drained(second) == [(BEGIN, 52), (BEGIN + 1, 0)]
