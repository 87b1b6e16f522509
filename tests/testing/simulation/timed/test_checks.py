"""Checks of a day: each finds its own anomaly, and forgives what a crash explains."""

from roquet.testing.simulation.timed import checks
from roquet.testing.simulation.timed.history import BILLING, TimedAttempt
from roquet.testing.simulation.timed.stored_messages import LoggedMessage

UP = {"b": [(0, checks.FOREVER)]}


def waiting(stored_ms: int, level: int = 1) -> LoggedMessage:
    properties = {"DELAY": str(level), "REAL_TOPIC": "orders"}
    return LoggedMessage("b", "SCHEDULE_TOPIC_XXXX", "e1", 0, stored_ms, properties)


def there(stored_ms: int) -> LoggedMessage:
    return LoggedMessage("b", "orders", "e1", 0, stored_ms, {})


def tried(tries: int, began: int, ended: int) -> TimedAttempt:
    return TimedAttempt("m1", BILLING, "e1", tries, began, ended, failed=True)


def test_when_brokers_were_up() -> None:
    spans = checks.up({"a": [0, 50], "b": [0]}, {"a": [40]})
    assert spans == {"a": [(0, 40), (50, checks.FOREVER)], "b": [(0, checks.FOREVER)]}


def test_a_message_has_to_be_there_within_a_second_that_the_broker_is_up() -> None:
    spans = [(0, 10_000), (60_000, checks.FOREVER)]
    assert checks.by_when(5_000, spans) == 6_000
    assert checks.by_when(9_500, spans) == 61_000
    assert checks.by_when(30_000, spans) == 61_000
    assert checks.by_when(30_000, spans[:1]) == checks.FOREVER


def test_a_message_of_a_level_comes_when_it_is_due() -> None:
    assert list(checks.levels([waiting(0), there(1_000)], UP)) == []
    assert "late" in next(checks.levels([waiting(0), there(2_001)], UP))
    assert "never came" in next(checks.levels([waiting(0)], UP))
    assert "never came" in next(checks.levels([waiting(0), there(999)], UP))
    assert list(checks.levels([waiting(0)], UP, now_ms=1_999)) == []


def test_while_the_broker_was_down_it_is_not_late() -> None:
    spans = {"b": [(0, 500), (60_000, checks.FOREVER)]}
    assert list(checks.levels([waiting(0), there(60_500)], spans)) == []
    assert "late" in next(checks.levels([waiting(0), there(61_001)], spans))


def test_a_try_before_its_pause_is_over_is_early() -> None:
    assert list(checks.hurried([tried(0, 0, 5), tried(1, 10_005, 10_010)], {})) == []
    early = [tried(0, 0, 5), tried(1, 10_004, 10_010)]
    assert "2th time" in next(checks.hurried(early, {}))
    assert "2th time" in next(checks.hurried([tried(1, 10_004, 10_010)], {}))
    assert list(checks.hurried(early, {"b": [3]})) == []


def test_what_is_in_the_topic_is_found_oldest_first() -> None:
    found = checks.first_there([there(5), waiting(1), there(3)])
    assert [one.stored_ms for one in found["e1"]] == [3, 5]
