"""What a service cannot handle is kept whole, named, counted, and tried again when asked."""

from collections.abc import Iterator

import pytest
from tests.broker.conftest import not_none
from tests.broker.log_harness import HOST, HOST_V6, LogHarness

from roquet.broker.ingest.set_aside import INDEX, RecordLocation, location_in
from roquet.model.errors import CallRefused, RecordError, StoreError, StoreFull
from roquet.model.names import SET_ASIDE_TOPIC
from roquet.rules.retention import DiskUsage
from roquet.store.config import StoreConfig
from roquet.store.store import Draft, Store
from roquet.wire.records.property_text import decode_properties
from roquet.wire.records.record import Record, decode

SMALL = StoreConfig(log_file_size=1 << 16, queue_file_entries=100)


class SetAsideHarness(LogHarness):
    """Set aside with all that it needs."""

    def __init__(self, host: bytes = HOST) -> None:
        super().__init__(host=host, store=Store.open(None, SMALL, now_ms=0))

    def stored(self, body: bytes = b"body", topic: str = "orders", **fields: object) -> Record:
        draft = Draft(topic, 3, body, b"UNIQ_KEY\x01u\x02", **fields)  # type: ignore[arg-type]
        raw = not_none(self.store.message_at(self.store.append(draft, 5).position))
        return decode(raw)

    def copies(self) -> list[Record]:
        return self.records(SET_ASIDE_TOPIC)


@pytest.fixture
def harness() -> Iterator[SetAsideHarness]:
    harness = SetAsideHarness()
    yield harness
    harness.close()


def test_what_is_set_aside_is_stored_once_the_log_takes_it(harness: SetAsideHarness) -> None:
    record = harness.stored()
    harness.store.refuse_appends("not its own")
    with harness.set_aside.deferring("timer") as deferred:
        harness.set_aside.keep_record("timer", record, ValueError("odd"))
        with pytest.raises(StoreError):
            harness.set_aside.keep_record(INDEX, record, ValueError("odd"))
    assert not harness.set_aside.counts
    harness.store.refuse_appends(None)
    for store_copy in deferred:
        store_copy()
    assert harness.set_aside.counts == {"timer": 1}
    (kept,) = harness.copies()
    assert decode(kept.body).queue_offset == record.queue_offset


def test_a_set_aside_message_holds_the_whole_record_with_reason_and_origin(
    harness: SetAsideHarness, caplog: pytest.LogCaptureFixture
) -> None:
    record = harness.stored(reconsume_times=2)
    harness.set_aside.keep_record("timer", record, ValueError("odd"))
    (kept,) = harness.copies()
    assert decode(kept.body) == record
    assert decode_properties(kept.properties) == {
        "SET_ASIDE_SERVICE": "timer",
        "SET_ASIDE_REASON": "ValueError: odd",
        "SET_ASIDE_PLACE": f"orders/3/0/{record.position}",
    }
    assert (harness.set_aside.total, harness.set_aside.counts["timer"]) == (1, 1)
    assert harness.topics.get(SET_ASIDE_TOPIC) is not None
    assert SET_ASIDE_TOPIC not in harness.topics.sendable
    assert caplog.text.count(f"timer set a message aside: orders/3/0/{record.position}") == 1


@pytest.mark.parametrize(
    "error",
    [StoreFull("full"), StoreError("gone"), OSError(5, "EIO"), MemoryError(), CallRefused(2)],
)
def test_an_error_of_the_disk_or_of_this_moment_sets_nothing_aside(
    harness: SetAsideHarness, error: Exception
) -> None:
    record = harness.stored()
    with pytest.raises(type(error)):
        harness.set_aside.keep_record("delay", record, error)
    assert harness.set_aside.total == 0


def test_a_message_that_cannot_be_set_aside_is_not_counted(harness: SetAsideHarness) -> None:
    record = harness.stored()
    assert harness.store.watch_disk(DiskUsage(100, 0))
    with pytest.raises(StoreFull):
        harness.set_aside.keep_record("delay", record, ValueError("odd"))
    assert (harness.set_aside.total, harness.set_aside.counts["delay"]) == (0, 0)


def test_hostile_text_reaches_neither_log_nor_properties(
    harness: SetAsideHarness, caplog: pytest.LogCaptureFixture
) -> None:
    place = RecordLocation("\x1b[2J\r\nERROR forged\x01\x02\ud800" + "x" * 40_000, 0, 0, 0)
    harness.set_aside.keep(
        "delay", place, ValueError("\x1b]0;evil\x07\n\x02" + "y" * 40_000), b"raw"
    )
    (kept,) = harness.copies()
    properties = decode_properties(kept.properties)
    assert properties["SET_ASIDE_PLACE"].startswith(r"\x1b[2J\r\nERROR forged\x01\x02\ud800xxx")
    assert properties["SET_ASIDE_REASON"].startswith(r"ValueError: \x1b]0;evil\x07\n\x02yyy")
    assert len(kept.properties) < 1_000
    assert "\x1b" not in caplog.text
    assert caplog.text.count("\n") == 1
    assert kept.body == b"raw"


def test_a_record_too_large_to_be_copied_is_kept_as_a_reference(harness: SetAsideHarness) -> None:
    record = harness.stored(b"x" * (SMALL.log_file_size - 200))
    harness.set_aside.keep_record("timer", record, ValueError("odd"))
    (kept,) = harness.copies()
    assert kept.body == b""
    harness.set_aside.retry(kept)
    assert harness.records("orders", 3)[1].body == record.body


def test_a_message_put_back_equals_the_original(harness: SetAsideHarness) -> None:
    record = harness.stored(flag=9, sys_flag=1, born_ms=8, reconsume_times=2, tag_code=4)
    harness.set_aside.keep_record("timer", record, ValueError("odd"))
    retried: list[Record] = []
    harness.set_aside.on_retry["orders"] = retried.append
    (kept,) = harness.copies()
    harness.set_aside.retry(kept)
    (again,) = retried
    assert harness.records("orders", 3) == [record, again]
    for field in ("body", "properties", "flag", "sys_flag", "born_ms", "reconsume_times"):
        assert getattr(again, field) == getattr(record, field)
    assert harness.arrived[-1] == ("orders", 3, 1)
    assert harness.set_aside.total == 1, "the copy stays"


def test_a_service_gets_its_message_back_before_replicas_have_it(harness: SetAsideHarness) -> None:
    record = harness.stored()
    harness.store.set_confirmed(record.position)
    harness.set_aside.keep_record("timer", record, ValueError("odd"))
    retried: list[Record] = []
    harness.set_aside.on_retry["orders"] = retried.append
    harness.store.set_confirmed(None)
    (kept,) = harness.copies()
    assert kept.body, "the copy is whole"
    harness.store.set_confirmed(record.position)
    harness.set_aside.retry(kept)
    assert [again.body for again in retried] == [record.body]


def test_a_message_is_put_back_where_its_service_expects_it(harness: SetAsideHarness) -> None:
    record = harness.stored()
    harness.set_aside.keep_record("revive", record, ValueError("odd"), goal=("%RETRY%g_a", 2))
    (kept,) = harness.copies()
    harness.set_aside.retry(kept)
    assert [message.body for message in harness.records("%RETRY%g_a", 2)] == [b"body"]
    assert len(harness.records("orders", 3)) == 1


def test_a_delayed_message_that_is_tried_again_is_due_now(harness: SetAsideHarness) -> None:
    record = harness.stored(topic="SCHEDULE_TOPIC_XXXX", tag_code=10**18)
    harness.set_aside.keep_record("delay", record, ValueError("odd"))
    (kept,) = harness.copies()
    harness.set_aside.retry(kept)
    entries = harness.store.queue_stats.entries("SCHEDULE_TOPIC_XXXX", 3, 0, 9)
    assert entries[1][2] == harness.clock.now_ms()


def test_a_record_that_only_lacks_keys_is_indexed_and_not_stored(harness: SetAsideHarness) -> None:
    record, indexed = harness.stored(), list[int]()
    harness.set_aside.on_index = indexed.append
    harness.set_aside.keep_record(INDEX, record, ValueError("odd"))
    (kept,) = harness.copies()
    harness.set_aside.retry(kept)
    assert indexed == [record.position]
    assert len(harness.records("orders", 3)) == 1


def test_a_message_neither_copied_nor_logged_cannot_be_put_back(harness: SetAsideHarness) -> None:
    harness.set_aside.keep("timer", RecordLocation("orders", 0, 0, 10**6), ValueError("odd"))
    (kept,) = harness.copies()
    with pytest.raises(RecordError, match="neither the message nor a copy"):
        harness.set_aside.retry(kept)


def test_a_damaged_record_says_where_it_lies_as_its_head_does(harness: SetAsideHarness) -> None:
    record = harness.stored()
    raw = not_none(harness.store.message_at(record.position))
    assert location_in(raw, "orders", 3) == RecordLocation("orders", 3, 0, record.position)


def test_a_broker_with_an_ipv6_address_keeps_and_retries_as_well() -> None:
    harness = SetAsideHarness(HOST_V6)
    record = harness.stored()
    harness.set_aside.keep_record("timer", record, ValueError("odd"))
    (kept,) = harness.copies()
    assert kept.store_host == HOST_V6
    harness.set_aside.retry(kept)
    assert harness.records("orders", 3)[1].store_host == HOST_V6
