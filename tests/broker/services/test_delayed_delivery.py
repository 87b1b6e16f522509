import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from roquet.broker.ingest.append import BrokerOrigin, Ingest
from roquet.broker.ingest.destination import Destinations
from roquet.broker.ingest.set_aside import SetAside
from roquet.broker.log.flush import Flush
from roquet.broker.log.long_polling import LongPolling
from roquet.broker.services.delayed_delivery import DelayedDelivery
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.tables.delay_offsets import DelayOffsets
from roquet.broker.tables.topics import Topics
from roquet.model.errors import StoreError, StoreFull
from roquet.model.topic import TopicConfig
from roquet.store.config import StoreConfig
from roquet.store.store import Draft, Store
from roquet.testing.clock import VirtualClock
from roquet.wire.java_hash import hash_code
from roquet.wire.records.property_text import decode_properties, encode_properties
from roquet.wire.records.record import Record, decode_many

SMALL = StoreConfig(log_file_size=1 << 20, queue_file_entries=1000)
SCHEDULE = "SCHEDULE_TOPIC_XXXX"
TEN_S = 3
"""The level that waits so long."""


class Post:
    """A delay service with all that it needs, in memory, and its clock in our hand."""

    def __init__(self, **settings: Any) -> None:
        self.clock = VirtualClock()
        self.config = BrokerConfig(**settings)
        self.store = Store.open(None, SMALL, now_ms=0)
        self.topics = Topics(None, self.config, 0)
        self.arrivals = LongPolling(self.clock)
        self.put = Ingest(
            self.store, self.config, self.clock,
            BrokerOrigin(store_host=b"\x0a\x00\x00\x01\x00\x00\x2a\x9f", pid=7, seed=1),
            self.arrivals.arrived,
        )  # fmt: skip
        self.set_aside = SetAside(self.store, self.put, self.topics, self.clock)
        self.delays = DelayOffsets(None)
        self.flush = Flush(self.store, self.config, self.clock)
        self.topics.put(TopicConfig(topic_name="orders", read_queue_nums=4, write_queue_nums=4), 0)
        self.delay = self.serving()

    def serving(self) -> DelayedDelivery:
        return DelayedDelivery(
            store=self.store,
            put=self.put,
            homes=Destinations(
                topics=self.topics,
                clock=self.clock,
                default_queue_count=self.config.default_queue_count,
                auto_create=self.config.auto_create_topic,
            ),
            set_aside=self.set_aside,
            delays=self.delays,
            arrivals=self.arrivals,
            flush=self.flush,
            clock=self.clock,
            levels=self.config.message_delay_levels,
        )

    def step(self, level: int = TEN_S) -> int | None:
        return self.delay.step(level, self.clock.now_ms())

    def records(self, topic: str = "orders", queue_id: int = 0) -> list[Record]:
        found = self.store.read(topic, queue_id, 0, count_max=1_000)
        return [record for part in found.parts for record in decode_many(part)]

    def bodies(self, topic: str = "orders", queue_id: int = 0) -> list[bytes]:
        return [record.body for record in self.records(topic, queue_id)]


@pytest.fixture
def post() -> Iterator[Post]:
    post = Post()
    yield post
    post.flush.close()
    post.store.close(0)


Later = Callable[..., None]


@pytest.fixture
def later(post: Post, peer: Any, message: Any) -> Later:
    """Sends a message that waits."""

    def send(body: bytes, level: int = TEN_S, queue_id: int = 0, **fields: Any) -> None:
        text = f"DELAY\x01{level}\x02TAGS\x01red\x02UNIQ_KEY\x01{body.decode()}\x02"
        post.put.one(message(body, properties=text, **fields), queue_id, peer)

    return send


def test_a_message_comes_at_its_time_and_not_before(post: Post, later: Later) -> None:
    later(b"one", queue_id=2)
    due = post.clock.now_ms() + 10_000
    assert post.step() == due
    post.clock.jump(9_999)
    assert post.step() == due
    assert post.bodies(queue_id=2) == []
    post.clock.jump(1)
    assert post.step() is None
    assert post.bodies(queue_id=2) == [b"one"]


def test_what_is_delivered_is_the_message_that_was_sent(post: Post, later: Later) -> None:
    later(b"one", flag=5, reconsume_times=2)
    post.clock.jump(10_000)
    post.step()
    (found,) = post.records()
    assert (found.flag, found.reconsume_times, found.born_ms) == (5, 2, 1_700_000_000_000)
    properties = decode_properties(found.properties)
    assert properties["DELAY"] == "3"  # its consumers may ask for it, as genuine ones can
    assert (properties["TAGS"], properties["UNIQ_KEY"]) == ("red", "one")
    red = hash_code("red")
    assert post.store.read("orders", 0, 0, wanted=lambda code: code == red).count == 1


def test_the_messages_of_a_level_come_in_order(post: Post, later: Later) -> None:
    for number in range(200):
        later(b"%d" % number)
        post.clock.jump(10)
    while (at := post.step()) is not None:
        if at > post.clock.now_ms():
            post.clock.jump(at - post.clock.now_ms())
    assert post.bodies() == [b"%d" % number for number in range(200)]
    times = [record.stored_ms - 10_000 for record in post.records()]
    assert times == [record.stored_ms for record in post.records(SCHEDULE, TEN_S - 1)]


def test_a_step_is_short_and_says_when_there_is_more(post: Post, later: Later) -> None:
    for number in range(100):
        later(b"%d" % number)
    post.clock.jump(10_000)
    assert post.step() == post.clock.now_ms()
    assert len(post.bodies()) == 64
    assert post.step() is None
    assert len(post.bodies()) == 100


def test_levels_do_not_wait_for_each_other(post: Post, later: Later) -> None:
    later(b"slow", level=18)
    later(b"quick", level=1)
    post.clock.jump(1_000)
    assert [post.step(level) for level in (1, 18)] == [None, 1_700_007_200_000]
    assert post.bodies() == [b"quick"]


def test_a_clock_that_was_set_back_makes_nobody_wait_longer(post: Post, later: Later) -> None:
    later(b"one")
    post.clock._start_ms -= 3_600_000
    at = post.step()
    assert at == post.clock.now_ms() + 10_000
    post.clock.jump(5_000)
    assert post.step() == at
    post.clock.jump(5_000)
    post.step()
    assert post.bodies() == [b"one"]


def test_a_store_that_is_full_keeps_the_message_waiting(
    post: Post, later: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    for body in (b"one", b"two"):
        later(body)
    post.clock.jump(10_000)
    append, drain = post.store.append, [1, 0]

    def full(draft: Draft, now_ms: int) -> Any:
        if not drain.pop(0):
            raise StoreFull("no room")
        return append(draft, now_ms)

    monkeypatch.setattr(post.store, "append", full)
    with pytest.raises(StoreFull):
        post.step()
    monkeypatch.undo()
    assert post.step() is None
    assert post.bodies() == [b"one", b"two"]


def test_a_topic_that_was_deleted_is_made_again(
    post: Post, later: Later, caplog: pytest.LogCaptureFixture
) -> None:
    later(b"one", queue_id=3)
    post.topics.remove("orders", 0)
    post.clock.jump(10_000)
    with caplog.at_level(logging.WARNING):
        post.step()
    assert "made again" in caplog.text
    assert post.bodies(queue_id=3) == [b"one"]
    made = post.topics.get("orders")
    assert made is not None
    assert made.read_queue_nums == 8


def test_where_topics_do_not_come_by_themselves_it_is_kept_for_who_creates_it(
    peer: Any, message: Any, caplog: pytest.LogCaptureFixture
) -> None:
    post = Post(auto_create_topic=False)
    post.put.one(message(b"one", properties="DELAY\x013\x02"), 1, peer)
    post.topics.remove("orders", 0)
    post.clock.jump(10_000)
    with caplog.at_level(logging.WARNING):
        post.step()
    assert "create it" in caplog.text
    assert post.topics.get("orders") is None
    assert post.bodies(queue_id=1) == [b"one"]
    post.store.close(0)


def test_a_retry_topic_that_was_deleted_is_made_again(post: Post, peer: Any, message: Any) -> None:
    post.put.one(message(b"one", topic="%RETRY%g", properties="DELAY\x013\x02"), 0, peer)
    post.clock.jump(10_000)
    post.step()
    assert post.bodies("%RETRY%g") == [b"one"]
    assert post.topics.get("%RETRY%g") is not None


def test_a_queue_that_is_gone_is_replaced(post: Post, later: Later) -> None:
    later(b"one", queue_id=3)
    post.topics.put(TopicConfig(topic_name="orders", read_queue_nums=2, write_queue_nums=2), 0)
    post.clock.jump(10_000)
    post.step()
    assert post.bodies(queue_id=1) == [b"one"]


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
    post: Post, later: Later, properties: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    now_ms = post.clock.now_ms()
    lost = Draft(SCHEDULE, TEN_S - 1, b"x", encode_properties(properties), now_ms + 10_000)
    post.store.append(lost, now_ms)
    later(b"one")
    post.clock.jump(10_000)
    with caplog.at_level(logging.WARNING):
        post.step()
    assert "delay set a message aside: SCHEDULE_TOPIC_XXXX/2/0/0" in caplog.text
    assert post.bodies() == [b"one"]
    assert post.set_aside.total == 1


@pytest.mark.parametrize("text", ["", "x", "-1", "9999999999"])
def test_a_queue_that_makes_no_sense_is_one_that_exists(post: Post, text: str) -> None:
    now_ms = post.clock.now_ms()
    properties = encode_properties({"DELAY": "3", "REAL_TOPIC": "orders", "REAL_QID": text})
    post.store.append(Draft(SCHEDULE, TEN_S - 1, b"x", properties, now_ms), now_ms)
    post.step()
    assert sum(len(post.bodies(queue_id=queue_id)) for queue_id in range(4)) == 1


@pytest.mark.parametrize("saved", [-5, 7, 10**9])
def test_progress_beyond_what_is_held_begins_within_it(
    post: Post, later: Later, saved: int
) -> None:
    post.delays.advance(TEN_S, saved)
    post.step()
    later(b"one")
    post.clock.jump(10_000)
    post.step()
    assert post.bodies() == [b"one"]
    assert post.delays.get(TEN_S) == 1


async def test_progress_is_saved_after_the_messages(post: Post, later: Later) -> None:
    later(b"one")
    post.clock.jump(10_000)
    post.step()
    assert post.store.flushed_position < post.store.end_position
    await post.delay.save(post.clock.now_ms())
    assert post.store.flushed_position == post.store.end_position
    assert not post.delays.unsaved
    assert post.delays.version.counter == 1
    await post.delay.save(post.clock.now_ms())
    assert post.delays.version.counter == 1


async def test_progress_is_not_saved_when_the_messages_are_not(
    post: Post, later: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> int:
        raise StoreError("the disk is gone")

    later(b"one")
    post.clock.jump(10_000)
    post.step()
    monkeypatch.setattr(post.store, "flush_log", broken)
    with pytest.raises(StoreError):
        await post.delay.save(post.clock.now_ms())
    assert post.delays.unsaved


def test_who_waits_at_a_level_that_the_settings_lost_comes_nevertheless(
    post: Post, later: Later
) -> None:
    later(b"one")
    post.config = BrokerConfig(message_delay_levels=(1_000,))
    post.delay = post.serving()
    loops = list(post.delay.work())
    for one in loops:
        one.close()
    assert len(loops) == 2, "level 1, which there is, and the one where it waits"
    post.clock.jump(10_000)
    post.step()
    assert post.bodies() == [b"one"]


def test_a_clock_that_was_ahead_for_a_moment_delays_nothing(post: Post, later: Later) -> None:
    post.clock._start_ms += 30 * 86_400_000
    later(b"ahead")
    at = post.step()
    assert at is not None
    post.clock._start_ms -= 30 * 86_400_000
    assert post.step() == post.clock.now_ms() + 10_000
    post.clock.jump(10_000)
    post.step()
    assert post.bodies() == [b"ahead"]
