"""Checks of the timed workload: each finds its own anomaly, and forgives what may happen."""

from roquet.model.queue import MessageQueue
from simulation.history import HandlingAttempt
from simulation.timed import checks
from simulation.timed.consumer import BILLING
from simulation.timed.stored_messages import LoggedMessage

UP = {"b": [(0, checks.FOREVER)]}


def logged(topic: str, stored_ms: int, properties: dict[str, str]) -> LoggedMessage:
    return LoggedMessage(
        host="b", topic=topic, name="e1", tries=0, stored_ms=stored_ms, properties=properties
    )


def waiting(stored_ms: int, level: int = 1) -> LoggedMessage:
    properties = {"DELAY": str(level), "REAL_TOPIC": "orders"}
    return logged("SCHEDULE_TOPIC_XXXX", stored_ms, properties)


def delivered(stored_ms: int) -> LoggedMessage:
    return logged("orders", stored_ms, {})


def failed(tries: int, began: int, ended: int) -> HandlingAttempt:
    return HandlingAttempt(
        consumer="c1", group=BILLING, name="e1", queue=MessageQueue("orders", "b", 0), offset=0,
        tries=tries, began_ms=began, ended_ms=ended, failed=True,
    )  # fmt: skip


def test_when_brokers_were_up() -> None:
    spans = checks.up_spans({"a": [0, 50], "b": [0]}, {"a": [40]})
    assert spans == {"a": [(0, 40), (50, checks.FOREVER)], "b": [(0, checks.FOREVER)]}


def test_a_message_has_to_be_there_within_a_second_that_the_broker_is_up() -> None:
    spans = [(0, 10_000), (60_000, checks.FOREVER)]
    assert checks.deadline(5_000, spans) == 6_000
    assert checks.deadline(9_500, spans) == 61_000
    assert checks.deadline(30_000, spans) == 61_000
    assert checks.deadline(30_000, spans[:1]) == checks.FOREVER


def test_a_message_of_a_level_comes_when_it_is_due() -> None:
    assert list(checks.levels([waiting(0), delivered(1_000)], UP)) == []
    assert "late" in next(checks.levels([waiting(0), delivered(2_001)], UP))
    assert "never came" in next(checks.levels([waiting(0)], UP))
    assert "never came" in next(checks.levels([waiting(0), delivered(999)], UP))
    assert list(checks.levels([waiting(0)], UP, end_ms=1_999)) == []


def test_while_the_broker_was_down_it_is_not_late() -> None:
    spans = {"b": [(0, 500), (60_000, checks.FOREVER)]}
    assert list(checks.levels([waiting(0), delivered(60_500)], spans)) == []
    assert "late" in next(checks.levels([waiting(0), delivered(61_001)], spans))


def test_a_try_before_its_pause_is_over_is_early() -> None:
    assert list(checks.hurried([failed(0, 0, 5), failed(1, 10_005, 10_010)], {})) == []
    early = [failed(0, 0, 5), failed(1, 10_004, 10_010)]
    assert "try 2" in next(checks.hurried(early, {}))
    assert "try 2" in next(checks.hurried([failed(1, 10_004, 10_010)], {}))
    assert list(checks.hurried(early, {"b": [3]})) == []


def test_deliveries_come_oldest_first() -> None:
    found = checks.deliveries([delivered(5), waiting(1), delivered(3)])
    assert [one.stored_ms for one in found["e1"]] == [3, 5]
