"""Deliveries: what is due is delivered, goes on, or was taken back."""

import logging
from itertools import pairwise

import pytest
from tests.broker.conftest import failing
from tests.broker.services.conftest import TimerHarness

from roquet.broker.services.delayed_delivery import STEP_COUNT
from roquet.broker.services.timer import deliveries
from roquet.model.errors import StoreFull
from roquet.model.topic import TopicConfig
from roquet.store.timer.layout import TimerSlot, TimerUnit

TIMER = "rmq_sys_wheel_timer"
START = 1_700_000_000_000
HOUR_MS = 3_600_000

SHORT = 3 * HOUR_MS
"""A retention that makes a window of two hours, so that a far message is one of three."""


@pytest.mark.parametrize("delay", [1, 999, 1_000, 1_001, 1_500, 2_000, 59_999, 3_600_000])
def test_a_message_is_delivered_at_its_time(harness: TimerHarness, delay: int) -> None:
    harness.after(b"one", delay)
    harness.settle()
    harness.wait(delay - 1)
    assert harness.bodies() == []
    harness.wait(1)
    assert harness.bodies() == [b"one"]
    assert [record.stored_ms for record in harness.records()] == [START + delay]


def test_a_delivered_message_has_the_properties_that_apaches_sets(harness: TimerHarness) -> None:
    harness.skip(350)
    harness.send(
        b"one", {"KEYS": "k", "TAGS": "red", "TIMER_DELAY_MS": "2000"}, 2,
        flag=5, reconsume_times=2,
    )  # fmt: skip
    harness.wait(2_000)
    (record,) = harness.records(queue_id=2)
    assert (record.flag, record.reconsume_times, record.born_ms) == (5, 2, 5)
    (properties,) = harness.properties(queue_id=2)
    assert properties == {
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


def test_messages_come_in_the_order_of_their_times_then_as_they_came(harness: TimerHarness) -> None:
    for number, delay in enumerate((1_700, 1_200, 3_000, 1_700, 1_100, 2_001)):
        harness.after(b"%d" % number, delay)
    harness.wait(5_000)
    assert harness.bodies() == [b"4", b"1", b"0", b"3", b"5", b"2"]


def test_a_message_that_comes_in_the_second_it_is_due_is_in_time(harness: TimerHarness) -> None:
    harness.after(b"first", 300)
    harness.after(b"last", 900)
    harness.wait(400)
    harness.after(b"between", 200)
    harness.wait(600)
    assert harness.bodies() == [b"first", b"between", b"last"]
    assert [record.stored_ms - START for record in harness.records()] == [300, 600, 900]


def test_large_messages_come_a_few_at_a_time(
    harness: TimerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "STEP_BYTES", 1_000)
    for number in range(5):
        harness.after(b"%d" % number * 600, 1_000)
    while harness.timer.behind:
        harness.step()
    harness.skip(1_000)
    counts = []
    while len(harness.bodies()) < 5:
        harness.step()
        counts.append(len(harness.bodies()))
    assert counts == [0, 0, 0, 0, 1, 2, 3, 4, 5], "each is looked at, then delivered, by itself"


def test_overdue_messages_come_at_once_in_the_order_of_their_times(harness: TimerHarness) -> None:
    for number, delay in enumerate((5_000, 9_000_000, 2_000, 7_200_000)):
        harness.after(b"%d" % number, delay)
    harness.settle()
    harness.stop()
    harness.skip(24 * HOUR_MS)
    harness.open()
    harness.settle()
    assert harness.bodies() == [b"2", b"0", b"3", b"1"]


def test_empty_seconds_of_a_long_pause_are_not_examined_one_by_one(
    harness: TimerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    examined, slot = list[int](), harness.timers.slot

    def counted(time_ms: int) -> TimerSlot | None:
        examined.append(time_ms)
        return slot(time_ms)

    monkeypatch.setattr(harness.timers, "slot", counted)
    harness.after(b"one", 9 * HOUR_MS)
    harness.settle()
    harness.skip(24 * HOUR_MS)
    harness.settle()
    assert harness.bodies() == [b"one"]
    assert len(examined) < 100
    assert harness.timers.read_ms == START + 24 * HOUR_MS


def test_a_recalled_message_is_not_delivered_however_many_wait(harness: TimerHarness) -> None:
    """What takes it back is stored behind a flood, and their second comes before that is taken."""
    harness.after(b"on the wheel", 5_000)
    harness.settle()
    harness.skip(3_999)
    harness.after_each(500, 60_000)
    harness.after(b"behind", 1_001)
    for body in (b"on the wheel", b"behind"):
        harness.recall(body, START + 4_001)
    harness.skip(1_500)
    harness.after(b"kept", 0)
    harness.after(b"late", 100)
    harness.settle()
    assert harness.bodies() == [b"kept"]
    harness.wait(100)
    assert harness.bodies() == [b"kept", b"late"]


def test_under_a_flood_messages_are_late_by_what_waits_alone(harness: TimerHarness) -> None:
    for second in range(10):
        harness.after(b"%d" % second, 1_000 * second + 500)
    harness.settle()
    for _ in range(1_500):  # what 2.4 s take
        harness.after(b"flood", 60_000)
    for _ in range(100):
        for _ in range(STEP_COUNT):
            harness.after(b"flood", 60_000)
        harness.skip(100)
        harness.step()
    assert harness.timer.behind == 1_500
    assert harness.bodies() == [b"%d" % second for second in range(6)]


def test_a_normal_restart_delivers_nothing_twice_and_nothing_late() -> None:
    harness = TimerHarness(slots=256)
    bodies = harness.after_each(20, 1_000, 100)
    for _ in range(12):
        harness.wait(170)
        harness.restart()
    harness.wait(2_000)
    assert harness.bodies() == bodies


def test_a_kill_repeats_some_deliveries_and_loses_none() -> None:
    harness = TimerHarness(slots=256)
    bodies = harness.after_each(20, 1_000, 100)
    harness.settle()
    for turn in range(15):
        harness.wait(190)
        if turn % 3 == 0:
            harness.save()
        harness.kill()
    harness.wait(2_000)
    assert list(dict.fromkeys(harness.bodies())) == bodies


def test_a_far_message_is_written_again_on_its_way() -> None:
    harness = TimerHarness(retention_ms=SHORT)
    harness.after(b"one", 3 * HOUR_MS - 500)
    harness.settle()
    harness.wait(HOUR_MS)
    assert harness.bodies(TIMER) == [b"one"]
    harness.wait(HOUR_MS + 1_000)
    assert harness.bodies(TIMER) == [b"one", b"one"]
    assert harness.properties(TIMER)[1]["TIMER_ROLL_TIMES"] == "1"
    assert harness.bodies() == []
    harness.wait(HOUR_MS - 1_501)
    assert harness.bodies() == []
    harness.wait(1)
    assert harness.bodies() == [b"one"]
    assert harness.records()[0].stored_ms == START + 3 * HOUR_MS - 500


def test_any_time_is_reached_in_stages() -> None:
    harness = TimerHarness(timer_max_delay=40 * 24 * HOUR_MS, retention_ms=SHORT)
    harness.after(b"far", 40 * 24 * HOUR_MS)
    harness.after(b"one", 15 * HOUR_MS)
    harness.wait(15 * HOUR_MS - 1)
    assert harness.bodies() == []
    harness.wait(1)
    assert harness.bodies() == [b"one"]
    times = [record.stored_ms for record in harness.records(TIMER) if record.body == b"one"]
    assert max(later - sooner for sooner, later in pairwise(times)) <= 2 * HOUR_MS
    assert harness.properties()[0]["TIMER_ROLL_TIMES"] == str(len(times) - 1) == "7"
    assert harness.timings.get("orders") == 1


class TestTakenBack:
    """Messages whose senders have changed their minds."""

    def test_a_recalled_message_is_never_delivered(self, harness: TimerHarness) -> None:
        harness.after(b"one", 5_000)
        harness.after(b"two", 5_000)
        harness.wait(2_000)
        harness.recall(b"one", START + 4_001)
        harness.wait(10_000)
        assert harness.bodies() == [b"two"]
        assert harness.timings.total == 0

    def test_a_recall_in_the_second_of_delivery_may_be_in_time(self, harness: TimerHarness) -> None:
        harness.after(b"one", 4_800)
        harness.wait(4_000)
        harness.recall(b"one", START + 4_001)
        harness.wait(10_000)
        assert harness.bodies() == []

    def test_a_recall_after_the_delivery_has_no_effect(self, harness: TimerHarness) -> None:
        harness.after(b"one", 1_500)
        harness.after(b"two", 1_900)
        harness.wait(1_600)
        harness.recall(b"one", START + 1_700)
        harness.wait(10_000)
        assert harness.bodies() == [b"one", b"two"]

    def test_another_topic_s_message_of_the_same_key_stays(self, harness: TimerHarness) -> None:
        harness.after(b"one", 5_000)
        harness.recall(b"one", START + 4_001, topic="bills")
        harness.wait(10_000)
        assert harness.bodies() == [b"one"]
        assert harness.bodies("bills") == []

    def test_a_far_one_meets_what_takes_it_back_in_its_own_second(self) -> None:
        harness = TimerHarness(retention_ms=SHORT)
        harness.after(b"one", 5 * HOUR_MS)
        harness.wait(HOUR_MS // 2)
        harness.recall(b"one", START + 5 * HOUR_MS)
        harness.wait(5 * HOUR_MS)
        assert harness.bodies() == []
        assert len(harness.bodies(TIMER)) > 2
        assert harness.timings.total == 0

    def test_a_recall_in_the_format_of_5_4_is_read(self, harness: TimerHarness) -> None:
        harness.after(b"one", 5_000)
        harness.recall(b"orders+one", START + 4_001)
        harness.wait(10_000)
        assert harness.bodies() == []

    def test_a_kill_between_changes_nothing(self, harness: TimerHarness) -> None:
        harness.after(b"one", 5_000)
        harness.recall(b"one", START + 4_001)
        harness.wait(1_000)
        harness.kill()
        harness.wait(10_000)
        assert harness.bodies() == []


def test_a_store_that_is_full_keeps_the_message_waiting(
    harness: TimerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    for body in (b"one", b"two"):
        harness.after(body, 1_000)
    harness.settle()

    harness.skip(1_500)
    monkeypatch.setattr(harness.store, "append", failing(StoreFull("no room")))
    with pytest.raises(StoreFull):
        harness.settle()
    with pytest.raises(StoreFull):
        harness.settle()
    monkeypatch.undo()
    harness.settle()
    assert harness.bodies() == [b"one", b"two"]


def test_a_queue_and_a_topic_that_are_gone_are_replaced(harness: TimerHarness) -> None:
    harness.after(b"one", 1_000, queue_id=3)
    harness.after(b"two", 1_000, topic="bills", queue_id=1)
    harness.topics.put(TopicConfig(topic_name="orders", read_queue_nums=2, write_queue_nums=2), 0)
    harness.wait(1_000)
    assert harness.bodies(queue_id=1) == [b"one"]
    assert harness.bodies("bills", 1) == [b"two"]
    assert harness.topics.get("bills") is not None


@pytest.mark.parametrize("topic", ["", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", TIMER])
def test_a_message_for_nowhere_does_not_hold_up_the_others(
    harness: TimerHarness, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    harness.after(b"one", 1_000)
    (record,) = harness.records(TIMER)
    lost = {"TIMER_OUT_MS": str(START)} | ({"REAL_TOPIC": topic} if topic else {})
    harness.ingest.reappend(record, topic=TIMER, properties=lost)
    harness.after(b"two", 1_000)
    with caplog.at_level(logging.WARNING):
        harness.wait(1_000)
    assert f"cannot be delivered to topic {topic!r}" in caplog.text
    assert harness.set_aside.total == 1
    assert harness.bodies() == [b"one", b"two"]


def test_properties_without_room_for_more_are_delivered_as_they_are(harness: TimerHarness) -> None:
    big = "x" * (32_767 - 180)
    harness.send(b"one", {"P": big, "TIMER_DELIVER_MS": str(START + 1_000)})
    harness.wait(1_000)
    (properties,) = harness.properties()
    assert properties["P"] == big
    assert "TIMER_DEQUEUE_MS" not in properties


def test_a_message_that_cannot_be_delivered_is_logged_and_skipped(
    harness: TimerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.after(b"one", 1_000, topic="../etc")
    harness.after(b"two", 1_000)
    harness.wait(1_000)
    assert harness.bodies() == [b"two"]
    assert "timer set a message aside: rmq_sys_wheel_timer/0/0/0" in caplog.text
    assert harness.set_aside.total == 1


@pytest.mark.parametrize(
    ("unit", "warning"),
    [
        (TimerUnit(1, START, START + 1_000, 10**9, 100, 0), "is gone"),
        (TimerUnit(1, START, START + 1_000, 0, 101, 0), "is gone"),
    ],
)
def test_a_unit_whose_message_is_gone_does_not_hold_up_the_others(
    harness: TimerHarness, unit: TimerUnit, warning: str, caplog: pytest.LogCaptureFixture
) -> None:
    harness.after(b"one", 2_000)
    harness.settle()
    harness.timers.add(unit)
    harness.wait(2_000)
    assert warning in caplog.text
    assert harness.bodies() == [b"one"]


def test_a_record_of_another_topic_is_not_delivered(harness: TimerHarness) -> None:
    plain = harness.send(b"plain").appended
    harness.after(b"one", 2_000)
    harness.settle()
    harness.timers.add(TimerUnit(1, START, START + 1_000, plain.position, plain.size, 0))
    harness.wait(2_000)
    assert harness.bodies() == [b"plain", b"one"]


def test_a_damaged_record_is_logged_and_skipped(
    harness: TimerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    stored = [harness.after(body, 1_000).appended for body in (b"one", b"two")]
    harness.settle()
    log = next(held for path, held in harness.files.contents.items() if "commitlog" in str(path))
    at = stored[0].position + 88 + 2
    view = memoryview(log)
    view[at] ^= 0xFF
    harness.wait(1_000)
    assert "has a damaged body" in caplog.text
    assert harness.set_aside.total == 1
    assert harness.bodies() == [b"two"]


def test_a_broken_chain_is_logged(harness: TimerHarness, caplog: pytest.LogCaptureFixture) -> None:
    for body in (b"one", b"two", b"three"):
        harness.after(body, 2_000)
    harness.settle()
    log = next(held for path, held in harness.files.contents.items() if "timerlog" in str(path))
    memoryview(log)[52:104] = bytes(52)
    harness.wait(2_000)
    assert "the timer log ends at 52, in a chain of units" in caplog.text
    assert harness.bodies() == [b"three"]


def test_a_timed_revive_message_is_passed_to_the_revive_service(harness: TimerHarness) -> None:
    topic = "rmq_sys_REVIVE_LOG_DefaultCluster"
    harness.after(b"note", 1_000, topic=topic, queue_id=3)
    harness.wait(1_000)
    ((record, queue_id, offset),) = harness.noted
    assert (record.body, queue_id, offset) == (b"note", 3, 0)


def test_a_hundred_thousand_of_one_minute_come_in_small_steps(harness: TimerHarness) -> None:
    count, spread = 2_000, 1_200
    for number in range(count):
        harness.after(b"%d" % number, 10_000 + number * spread // count)
    harness.wait(10_000)
    begun = len(harness.bodies())
    least, most = count, 0
    while (at := harness.step()) is not None and begun < count:
        if at > harness.clock.now_ms():
            harness.clock.jump(at - harness.clock.now_ms())
        now = harness.store.bounds("orders", 0)[1]
        least, most, begun = min(least, now - begun), max(most, now - begun), now
    assert most <= 64
    assert [record.stored_ms - START for record in harness.records()] == [
        10_000 + number * spread // count for number in range(count)
    ]


def test_a_unit_of_a_message_of_a_later_second_delivers_nothing(harness: TimerHarness) -> None:
    stored = harness.after(b"later", 60_000).appended
    harness.settle()
    slot_ms = START + 5_000
    harness.timers.add(TimerUnit(1, START, slot_ms, stored.position, stored.size, 0))
    harness.wait(30_000)
    assert harness.bodies() == []
    harness.wait(31_000)
    assert harness.bodies() == [b"later"]
