"""Deliveries: what is due is delivered, goes on, or was taken back."""

import logging
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from roquet.broker.services.timer import deliveries, intake
from roquet.model.errors import StoreFull
from roquet.model.topic import TopicConfig
from roquet.store.timer.layout import TimerUnit

if TYPE_CHECKING:
    from tests.broker.services.conftest import Tower

TIMER = "rmq_sys_wheel_timer"
START = 1_700_000_000_000
HOUR_MS = 3_600_000

SHORT = 3 * HOUR_MS
"""A retention that makes a window of two hours, so that a far message is one of three."""


@pytest.mark.parametrize("delay", [1, 999, 1_000, 1_001, 1_500, 2_000, 59_999, 3_600_000])
def test_a_message_comes_at_its_time_and_not_before(tower: "Tower", delay: int) -> None:
    tower.after(b"one", delay)
    tower.settle()
    tower.wait(delay - 1)
    assert tower.bodies() == []
    tower.wait(1)
    assert tower.bodies() == [b"one"]
    assert [record.stored_ms for record in tower.records()] == [START + delay]


def test_what_is_delivered_says_what_the_genuine_broker_says(tower: "Tower") -> None:
    tower.skip(350)
    tower.send(
        b"one", {"KEYS": "k", "TAGS": "red", "TIMER_DELAY_MS": "2000"}, 2,
        flag=5, reconsume_times=2,
    )  # fmt: skip
    tower.wait(2_000)
    (record,) = tower.records(queue_id=2)
    assert (record.flag, record.reconsume_times, record.born_ms) == (5, 2, 5)
    (found,) = tower.properties(queue_id=2)
    assert found == {
        "KEYS": "k",
        "TAGS": "red",
        "TIMER_DELAY_MS": "2000",
        "UNIQ_KEY": "one",
        "CLUSTER": "DefaultCluster",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "TIMER_OUT_MS": str(START + 2_000),
        "REAL_TOPIC": "orders",
        "REAL_QID": "2",
        "TIMER_ENQUEUE_MS": str(START),
        "TIMER_DEQUEUE_MS": str(START + 2_350),
    }


def test_messages_come_in_the_order_of_their_times_and_then_of_their_coming(
    tower: "Tower",
) -> None:
    for number, delay in enumerate((1_700, 1_200, 3_000, 1_700, 1_100, 2_001)):
        tower.after(b"%d" % number, delay)
    tower.wait(5_000)
    assert tower.bodies() == [b"4", b"1", b"0", b"3", b"5", b"2"]


def test_a_message_that_comes_in_the_second_it_is_due_is_in_time(tower: "Tower") -> None:
    tower.after(b"first", 300)
    tower.after(b"last", 900)
    tower.wait(400)
    tower.after(b"between", 200)
    tower.wait(600)
    assert tower.bodies() == [b"first", b"between", b"last"]
    assert [one.stored_ms - START for one in tower.records()] == [300, 600, 900]


def test_large_messages_come_a_few_at_a_time(
    tower: "Tower", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "STEP_BYTES", 1_000)
    for number in range(5):
        tower.after(b"%d" % number * 600, 1_000)
    while tower.timer.behind:
        tower.step()
    tower.skip(1_000)
    counts = []
    while len(tower.bodies()) < 5:
        tower.step()
        counts.append(len(tower.bodies()))
    assert counts == [0, 0, 0, 0, 1, 2, 3, 4, 5], "each is looked at, then delivered, by itself"


def test_overdue_messages_come_at_once_after_a_rest_in_the_order_of_their_times(
    tower: "Tower",
) -> None:
    for number, delay in enumerate((5_000, 9_000_000, 2_000, 7_200_000)):
        tower.after(b"%d" % number, delay)
    tower.settle()
    tower.stop()
    tower.skip(24 * HOUR_MS)
    tower.open()
    tower.settle()
    assert tower.bodies() == [b"2", b"0", b"3", b"1"]


def test_what_was_taken_back_in_time_is_not_delivered_however_much_waits(tower: "Tower") -> None:
    """What takes it back is stored behind a flood, and their second comes before that is taken."""
    tower.after(b"on the wheel", 5_000)
    tower.settle()
    tower.skip(3_999)
    for number in range(500):
        tower.after(b"%d" % number, 60_000)
    tower.after(b"behind", 1_001)
    for body in (b"on the wheel", b"behind"):
        tower.recall(body, START + 4_001)
    tower.skip(1_500)
    tower.after(b"kept", 0)
    tower.after(b"late", 100)
    tower.settle()
    assert tower.bodies() == [b"kept"]
    tower.wait(100)
    assert tower.bodies() == [b"kept", b"late"]


def test_under_a_flood_messages_are_late_by_what_waits_and_not_by_more_and_more(
    tower: "Tower",
) -> None:
    for second in range(10):
        tower.after(b"%d" % second, 1_000 * second + 500)
    tower.settle()
    for _ in range(1_500):  # what 2.4 s take
        tower.after(b"flood", 60_000)
    for _ in range(100):
        for _ in range(intake.STEP_COUNT):
            tower.after(b"flood", 60_000)
        tower.skip(100)
        tower.step()
    assert tower.timer.behind == 1_500
    assert tower.bodies() == [b"%d" % second for second in range(6)]


def test_a_normal_restart_delivers_nothing_twice_and_nothing_late(
    new_tower: "type[Tower]",
) -> None:
    tower = new_tower(slots=256)
    for number in range(20):
        tower.after(b"%d" % number, 1_000 + 100 * number)
    for _ in range(12):
        tower.wait(170)
        tower.restart()
    tower.wait(2_000)
    assert tower.bodies() == [b"%d" % number for number in range(20)]


def test_a_kill_brings_some_again_and_loses_none(new_tower: "type[Tower]") -> None:
    tower = new_tower(slots=256)
    for number in range(20):
        tower.after(b"%d" % number, 1_000 + 100 * number)
    tower.settle()
    for turn in range(15):
        tower.wait(190)
        if turn % 3 == 0:
            tower.save()
        tower.kill()
    tower.wait(2_000)
    assert set(tower.bodies()) == {b"%d" % number for number in range(20)}
    assert list(dict.fromkeys(tower.bodies())) == [b"%d" % number for number in range(20)]


def test_a_far_message_is_written_again_on_its_way(new_tower: "type[Tower]") -> None:
    tower = new_tower(retention_ms=SHORT)
    tower.after(b"one", 3 * HOUR_MS - 500)
    tower.settle()
    tower.wait(HOUR_MS)
    assert tower.bodies(TIMER) == [b"one"]
    tower.wait(HOUR_MS + 1_000)
    assert tower.bodies(TIMER) == [b"one", b"one"]
    assert tower.properties(TIMER)[1]["TIMER_ROLL_TIMES"] == "1"
    assert tower.bodies() == []
    tower.wait(HOUR_MS - 1_501)
    assert tower.bodies() == []
    tower.wait(1)
    assert tower.bodies() == [b"one"]
    assert tower.records()[0].stored_ms == START + 3 * HOUR_MS - 500


def test_any_time_is_reached_in_stages(new_tower: "type[Tower]") -> None:
    tower = new_tower(timer_max_delay=40 * 24 * HOUR_MS, retention_ms=SHORT)
    tower.after(b"far", 40 * 24 * HOUR_MS)
    tower.after(b"one", 15 * HOUR_MS)
    tower.wait(15 * HOUR_MS - 1)
    assert tower.bodies() == []
    tower.wait(1)
    assert tower.bodies() == [b"one"]
    times = [one.stored_ms for one in tower.records(TIMER) if one.body == b"one"]
    assert max(later - sooner for sooner, later in pairwise(times)) <= 2 * HOUR_MS
    assert tower.properties()[0]["TIMER_ROLL_TIMES"] == str(len(times) - 1) == "7"
    assert tower.timings.get("orders") == 1


class TestTakenBack:
    """Messages whose senders have changed their minds."""

    def test_it_never_comes(self, tower: "Tower") -> None:
        tower.after(b"one", 5_000)
        tower.after(b"two", 5_000)
        tower.wait(2_000)
        tower.recall(b"one", START + 4_001)
        tower.wait(10_000)
        assert tower.bodies() == [b"two"]
        assert tower.timings.total == 0

    def test_in_the_very_second_it_comes_it_may_be_in_time(self, tower: "Tower") -> None:
        tower.after(b"one", 4_800)
        tower.wait(4_000)
        tower.recall(b"one", START + 4_001)
        tower.wait(10_000)
        assert tower.bodies() == []

    def test_after_it_came_nothing_happens(self, tower: "Tower") -> None:
        tower.after(b"one", 1_500)
        tower.after(b"two", 1_900)
        tower.wait(1_600)
        tower.recall(b"one", START + 1_700)
        tower.wait(10_000)
        assert tower.bodies() == [b"one", b"two"]

    def test_another_topic_s_message_of_the_same_key_stays(self, tower: "Tower") -> None:
        tower.after(b"one", 5_000)
        tower.recall(b"one", START + 4_001, topic="bills")
        tower.wait(10_000)
        assert tower.bodies() == [b"one"]
        assert tower.bodies("bills") == []

    def test_a_far_one_meets_what_takes_it_back_in_its_own_second(
        self, new_tower: "type[Tower]"
    ) -> None:
        tower = new_tower(retention_ms=SHORT)
        tower.after(b"one", 5 * HOUR_MS)
        tower.wait(HOUR_MS // 2)
        tower.recall(b"one", START + 5 * HOUR_MS)
        tower.wait(5 * HOUR_MS)
        assert tower.bodies() == []
        assert len(tower.bodies(TIMER)) > 2
        assert tower.timings.total == 0

    def test_as_5_4_writes_it_with_the_topic_in_front(self, tower: "Tower") -> None:
        tower.after(b"one", 5_000)
        tower.recall(b"orders+one", START + 4_001)
        tower.wait(10_000)
        assert tower.bodies() == []

    def test_a_kill_between_changes_nothing(self, tower: "Tower") -> None:
        tower.after(b"one", 5_000)
        tower.recall(b"one", START + 4_001)
        tower.wait(1_000)
        tower.kill()
        tower.wait(10_000)
        assert tower.bodies() == []


def test_a_store_that_is_full_keeps_the_message_waiting(
    tower: "Tower", monkeypatch: pytest.MonkeyPatch
) -> None:
    for body in (b"one", b"two"):
        tower.after(body, 1_000)
    tower.settle()

    def full(*_: object) -> None:
        raise StoreFull("no room")

    tower.skip(1_500)
    monkeypatch.setattr(tower.store, "append", full)
    with pytest.raises(StoreFull):
        tower.settle()
    with pytest.raises(StoreFull):
        tower.settle()
    monkeypatch.undo()
    tower.settle()
    assert tower.bodies() == [b"one", b"two"]


def test_a_queue_and_a_topic_that_are_gone_are_replaced(tower: "Tower") -> None:
    tower.after(b"one", 1_000, queue_id=3)
    tower.after(b"two", 1_000, topic="bills", queue_id=1)
    tower.topics.put(TopicConfig(topic_name="orders", read_queue_nums=2, write_queue_nums=2), 0)
    tower.wait(1_000)
    assert tower.bodies(queue_id=1) == [b"one"]
    assert tower.bodies("bills", 1) == [b"two"]
    assert tower.topics.get("bills") is not None


@pytest.mark.parametrize("topic", ["", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", TIMER])
def test_a_message_for_nowhere_does_not_hold_up_the_others(
    tower: "Tower", topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    tower.after(b"one", 1_000)
    (record,) = tower.records(TIMER)
    lost = {"TIMER_OUT_MS": str(START)} | ({"REAL_TOPIC": topic} if topic else {})
    tower.put.reappend(record, topic=TIMER, queue_id=0, properties=lost, reconsume_times=0)
    tower.after(b"two", 1_000)
    with caplog.at_level(logging.WARNING):
        tower.wait(1_000)
    assert f"cannot be delivered to topic {topic!r}" in caplog.text
    assert tower.set_aside.total == 1
    assert tower.bodies() == [b"one", b"two"]


def test_properties_that_leave_no_room_for_more_are_delivered_as_they_are(tower: "Tower") -> None:
    big = "x" * (32_767 - 180)
    tower.send(b"one", {"P": big, "TIMER_DELIVER_MS": str(START + 1_000)})
    tower.wait(1_000)
    (found,) = tower.properties()
    assert found["P"] == big
    assert "TIMER_DEQUEUE_MS" not in found


def test_a_message_that_cannot_be_stored_again_is_told_and_left_out(
    tower: "Tower", caplog: pytest.LogCaptureFixture
) -> None:
    tower.after(b"one", 1_000, topic="../etc")
    tower.after(b"two", 1_000)
    tower.wait(1_000)
    assert tower.bodies() == [b"two"]
    assert "timer set a message aside: rmq_sys_wheel_timer/0/0/0" in caplog.text
    assert tower.set_aside.total == 1


@pytest.mark.parametrize(
    ("unit", "told"),
    [
        (TimerUnit(1, START, START + 1_000, 10**9, 100, 0), "is gone"),
        (TimerUnit(1, START, START + 1_000, 0, 101, 0), "is gone"),
    ],
)
def test_a_unit_whose_message_is_gone_does_not_hold_up_the_others(
    tower: "Tower", unit: TimerUnit, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    tower.after(b"one", 2_000)
    tower.settle()
    tower.timers.add(unit)
    tower.wait(2_000)
    assert told in caplog.text
    assert tower.bodies() == [b"one"]


def test_a_record_of_another_topic_is_not_delivered(tower: "Tower") -> None:
    plain = tower.send(b"plain").appended
    tower.after(b"one", 2_000)
    tower.settle()
    tower.timers.add(TimerUnit(1, START, START + 1_000, plain.position, plain.size, 0))
    tower.wait(2_000)
    assert tower.bodies() == [b"plain", b"one"]


def test_a_damaged_record_is_told_and_left_out(
    tower: "Tower", caplog: pytest.LogCaptureFixture
) -> None:
    stored = [tower.after(body, 1_000).appended for body in (b"one", b"two")]
    tower.settle()
    log = next(held for path, held in tower.files.contents.items() if "commitlog" in str(path))
    at = stored[0].position + 88 + 2
    view = memoryview(log)
    view[at] ^= 0xFF
    tower.wait(1_000)
    assert "has a damaged body" in caplog.text
    assert tower.set_aside.total == 1
    assert tower.bodies() == [b"two"]


def test_a_chain_that_leads_nowhere_is_told(
    tower: "Tower", caplog: pytest.LogCaptureFixture
) -> None:
    for body in (b"one", b"two", b"three"):
        tower.after(body, 2_000)
    tower.settle()
    log = next(held for path, held in tower.files.contents.items() if "timerlog" in str(path))
    memoryview(log)[52:104] = bytes(52)
    tower.wait(2_000)
    assert "the timer log ends at 52, in a chain of units" in caplog.text
    assert tower.bodies() == [b"three"]


def test_a_note_of_the_revive_topic_is_told(tower: "Tower") -> None:
    topic = "rmq_sys_REVIVE_LOG_DefaultCluster"
    tower.after(b"note", 1_000, topic=topic, queue_id=3)
    tower.wait(1_000)
    ((record, queue_id, offset),) = tower.noted
    assert (record.body, queue_id, offset) == (b"note", 3, 0)


def test_a_hundred_thousand_of_one_minute_come_in_small_steps(tower: "Tower") -> None:
    count, spread = 2_000, 1_200
    for number in range(count):
        tower.after(b"%d" % number, 10_000 + number * spread // count)
    tower.wait(10_000)
    begun = len(tower.bodies())
    least, most = count, 0
    while (at := tower.step()) is not None and begun < count:
        if at > tower.clock.now_ms():
            tower.clock.jump(at - tower.clock.now_ms())
        now = tower.store.bounds("orders", 0)[1]
        least, most, begun = min(least, now - begun), max(most, now - begun), now
    assert most <= 64
    assert [one.stored_ms - START for one in tower.records()] == [
        10_000 + number * spread // count for number in range(count)
    ]
