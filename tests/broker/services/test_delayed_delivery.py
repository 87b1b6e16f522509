import logging
from collections.abc import Iterator
from typing import Any

import pytest
from tests.broker.conftest import failing, make_send, not_none
from tests.broker.log_harness import LogHarness

from roquet.broker.services.delayed_delivery import DelayedDelivery
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.tables.delay_offsets import DelayOffsets
from roquet.model.errors import StoreError, StoreFull
from roquet.model.topic import TopicConfig
from roquet.store.store import Draft
from roquet.wire.java_hash import hash_code
from roquet.wire.records.property_text import decode_properties, encode_properties

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
TEN_S = 3
"""The level that waits so long."""


class DelayHarness(LogHarness):
    """A delay service."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.delays = DelayOffsets(None)
        self.delay = self.serving()

    def serving(self) -> DelayedDelivery:
        return DelayedDelivery(
            message_log=self.message_log,
            delay_offsets=self.delays,
            destinations=self.destinations,
            set_aside=self.set_aside,
            clock=self.clock,
            levels=self.config.message_delay_levels,
        )

    def step(self, level: int = TEN_S) -> int | None:
        return self.delay.step(level, self.clock.now_ms())

    def later(self, body: bytes, level: int = TEN_S, queue_id: int = 0, **fields: Any) -> None:
        """Send a message that waits."""
        text = f"DELAY\x01{level}\x02TAGS\x01red\x02UNIQ_KEY\x01{body.decode()}\x02"
        self.ingest.append(make_send(body, properties=text, **fields), queue_id, self.peer)


@pytest.fixture
def harness() -> Iterator[DelayHarness]:
    harness = DelayHarness()
    yield harness
    harness.close()


def test_a_message_is_delivered_at_its_time_and_not_before(harness: DelayHarness) -> None:
    harness.later(b"one", queue_id=2)
    due = harness.clock.now_ms() + 10_000
    assert harness.step() == due
    harness.clock.jump(9_999)
    assert harness.step() == due
    assert harness.bodies(queue_id=2) == []
    harness.clock.jump(1)
    assert harness.step() is None
    assert harness.bodies(queue_id=2) == [b"one"]


def test_the_delivered_message_equals_the_one_sent(harness: DelayHarness) -> None:
    harness.later(b"one", flag=5, reconsume_times=2)
    harness.clock.jump(10_000)
    harness.step()
    (record,) = harness.records()
    assert (record.flag, record.reconsume_times, record.born_ms) == (5, 2, 1_700_000_000_000)
    properties = decode_properties(record.properties)
    assert properties["DELAY"] == "3"  # its consumers may ask for it, as genuine ones can
    assert (properties["TAGS"], properties["UNIQ_KEY"]) == ("red", "one")
    red = hash_code("red")
    assert harness.store.read("orders", 0, 0, wanted=lambda code: code == red).count == 1


def test_the_messages_of_a_level_come_in_order(harness: DelayHarness) -> None:
    for number in range(200):
        harness.later(b"%d" % number)
        harness.clock.jump(10)
    while (at := harness.step()) is not None:
        if at > harness.clock.now_ms():
            harness.clock.jump(at - harness.clock.now_ms())
    assert harness.bodies() == [b"%d" % number for number in range(200)]
    times = [record.stored_ms - 10_000 for record in harness.records()]
    assert times == [record.stored_ms for record in harness.records(SCHEDULE, TEN_S - 1)]


def test_a_step_is_short_and_says_when_there_is_more(harness: DelayHarness) -> None:
    for number in range(100):
        harness.later(b"%d" % number)
    harness.clock.jump(10_000)
    assert harness.step() == harness.clock.now_ms()
    assert len(harness.bodies()) == 64
    assert harness.step() is None
    assert len(harness.bodies()) == 100


def test_levels_do_not_wait_for_each_other(harness: DelayHarness) -> None:
    harness.later(b"slow", level=18)
    harness.later(b"quick", level=1)
    harness.clock.jump(1_000)
    assert [harness.step(level) for level in (1, 18)] == [None, 1_700_007_200_000]
    assert harness.bodies() == [b"quick"]


def test_a_clock_set_back_does_not_prolong_a_delay(harness: DelayHarness) -> None:
    harness.later(b"one")
    harness.clock.shift_wall_time(-3_600_000)
    at = harness.step()
    assert at == harness.clock.now_ms() + 10_000
    harness.clock.jump(5_000)
    assert harness.step() == at
    harness.clock.jump(5_000)
    harness.step()
    assert harness.bodies() == [b"one"]


def test_a_store_that_is_full_keeps_the_message_waiting(
    harness: DelayHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    for body in (b"one", b"two"):
        harness.later(body)
    harness.clock.jump(10_000)
    append, drain = harness.store.append, [1, 0]

    def full(draft: Draft, now_ms: int) -> Any:
        if not drain.pop(0):
            raise StoreFull("no room")
        return append(draft, now_ms)

    monkeypatch.setattr(harness.store, "append", full)
    with pytest.raises(StoreFull):
        harness.step()
    monkeypatch.undo()
    assert harness.step() is None
    assert harness.bodies() == [b"one", b"two"]


def test_a_topic_that_was_deleted_is_made_again(
    harness: DelayHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.later(b"one", queue_id=3)
    harness.topics.remove("orders", 0)
    harness.clock.jump(10_000)
    with caplog.at_level(logging.WARNING):
        harness.step()
    assert "made again" in caplog.text
    assert harness.bodies(queue_id=3) == [b"one"]
    assert not_none(harness.topics.get("orders")).read_queue_nums == 8


def test_a_message_of_a_deleted_topic_is_kept_if_topics_are_not_created_automatically(
    caplog: pytest.LogCaptureFixture,
) -> None:
    harness = DelayHarness(auto_create_topic=False)
    harness.ingest.append(make_send(b"one", properties="DELAY\x013\x02"), 1, harness.peer)
    harness.topics.remove("orders", 0)
    harness.clock.jump(10_000)
    with caplog.at_level(logging.WARNING):
        harness.step()
    assert "create it" in caplog.text
    assert harness.topics.get("orders") is None
    assert harness.bodies(queue_id=1) == [b"one"]
    harness.close()


def test_a_retry_topic_that_was_deleted_is_made_again(harness: DelayHarness) -> None:
    harness.ingest.append(
        make_send(b"one", topic="%RETRY%g", properties="DELAY\x013\x02"), 0, harness.peer
    )
    harness.clock.jump(10_000)
    harness.step()
    assert harness.bodies("%RETRY%g") == [b"one"]
    assert harness.topics.get("%RETRY%g") is not None


def test_a_queue_that_is_gone_is_replaced(harness: DelayHarness) -> None:
    harness.later(b"one", queue_id=3)
    harness.topics.put(TopicConfig(topic_name="orders", read_queue_nums=2, write_queue_nums=2), 0)
    harness.clock.jump(10_000)
    harness.step()
    assert harness.bodies(queue_id=1) == [b"one"]


@pytest.mark.parametrize(
    "properties",
    [
        {"DELAY": "3"},
        {"DELAY": "3", "REAL_TOPIC": SCHEDULE, "REAL_QID": "0"},
        {"DELAY": "3", "REAL_TOPIC": "RMQ_SYS_TRANS_HALF_TOPIC", "REAL_QID": "0"},
        {"DELAY": "3", "REAL_TOPIC": "../etc", "REAL_QID": "0"},
    ],
)
def test_a_message_for_nowhere_does_not_hold_up_the_others(
    harness: DelayHarness, properties: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    now_ms = harness.clock.now_ms()
    lost = Draft(SCHEDULE, TEN_S - 1, b"x", encode_properties(properties), now_ms + 10_000)
    harness.store.append(lost, now_ms)
    harness.later(b"one")
    harness.clock.jump(10_000)
    with caplog.at_level(logging.WARNING):
        harness.step()
    assert "delay set a message aside: SCHEDULE_TOPIC_XXXX/2/0/0" in caplog.text
    assert harness.bodies() == [b"one"]
    assert harness.set_aside.total == 1


@pytest.mark.parametrize("text", ["", "x", "-1", "9999999999"])
def test_a_queue_that_makes_no_sense_is_one_that_exists(harness: DelayHarness, text: str) -> None:
    now_ms = harness.clock.now_ms()
    properties = encode_properties({"DELAY": "3", "REAL_TOPIC": "orders", "REAL_QID": text})
    harness.store.append(Draft(SCHEDULE, TEN_S - 1, b"x", properties, now_ms), now_ms)
    harness.step()
    assert sum(len(harness.bodies(queue_id=queue_id)) for queue_id in range(4)) == 1


@pytest.mark.parametrize("saved", [-5, 7, 10**9])
def test_progress_beyond_what_is_held_begins_within_it(harness: DelayHarness, saved: int) -> None:
    harness.delays.advance(TEN_S, saved)
    harness.step()
    harness.later(b"one")
    harness.clock.jump(10_000)
    harness.step()
    assert harness.bodies() == [b"one"]
    assert harness.delays.get(TEN_S) == 1


async def test_progress_is_saved_after_the_messages(harness: DelayHarness) -> None:
    harness.later(b"one")
    harness.clock.jump(10_000)
    harness.step()
    assert harness.store.flushed_position < harness.store.end_position
    await harness.delay.save(harness.clock.now_ms())
    assert harness.store.flushed_position == harness.store.end_position
    assert not harness.delays.unsaved
    assert harness.delays.version.counter == 1
    await harness.delay.save(harness.clock.now_ms())
    assert harness.delays.version.counter == 1


async def test_progress_is_not_saved_when_the_messages_are_not(
    harness: DelayHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.later(b"one")
    harness.clock.jump(10_000)
    harness.step()
    monkeypatch.setattr(harness.store, "flush_log", failing(StoreError("the disk is gone")))
    with pytest.raises(StoreError):
        await harness.delay.save(harness.clock.now_ms())
    assert harness.delays.unsaved


def test_a_message_at_a_removed_delay_level_is_still_delivered(harness: DelayHarness) -> None:
    harness.later(b"one")
    harness.config = BrokerConfig(message_delay_levels=(1_000,))
    harness.delay = harness.serving()
    loops = list(harness.delay.work())
    for loop in loops:
        loop.close()
    assert len(loops) == 2, "level 1, which there is, and the one where it waits"
    harness.clock.jump(10_000)
    harness.step()
    assert harness.bodies() == [b"one"]


def test_a_clock_that_was_ahead_for_a_moment_delays_nothing(harness: DelayHarness) -> None:
    harness.clock.shift_wall_time(30 * 86_400_000)
    harness.later(b"ahead")
    assert harness.step() is not None
    harness.clock.shift_wall_time(-30 * 86_400_000)
    assert harness.step() == harness.clock.now_ms() + 10_000
    harness.clock.jump(10_000)
    harness.step()
    assert harness.bodies() == [b"ahead"]
