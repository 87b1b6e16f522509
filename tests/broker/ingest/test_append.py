from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace
from tests.broker.conftest import FakePeer, make_send, refuses

from roquet.broker.ingest.append import BrokerOrigin, Ingest, IngestResult
from roquet.broker.settings.config import BrokerConfig
from roquet.model.errors import MessageIllegal
from roquet.model.properties import PROPERTIES_SIZE_MAX
from roquet.store.config import StoreConfig
from roquet.store.store import Store, StoredBatch
from roquet.wire.codes import ResponseCode
from roquet.wire.java_hash import hash_code
from roquet.wire.receipt_handle import decode_recall_handle
from roquet.wire.records.batch import BatchItem, encode_batch
from roquet.wire.records.message_id import parse_offset_message_id, unique_key_origin
from roquet.wire.records.property_text import decode_properties
from roquet.wire.records.record import Record, decode

pytestmark = pytest.mark.usefixtures("form")

HOST = b"\x0a\x00\x00\x01\x00\x00\x2a\x9f"
HOST_V6 = bytes(15) + b"\x01\x00\x00\x2a\x9f"
SMALL = StoreConfig(log_file_size=1 << 20, queue_file_entries=1000)


class StoppedClock:
    def __init__(self) -> None:
        self.ms = 1_700_000_000_123

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms

    async def sleep(self, ms: int) -> None:
        self.ms += ms


class IngestHarness:
    """A put with its store, and what it told of arrivals."""

    def __init__(self, store_host: bytes = HOST, **settings: Any) -> None:
        self.clock = StoppedClock()
        self.arrived: list[tuple[str, int, int, list[int]]] = []
        self.store = Store.open(None, SMALL, now_ms=0)
        origin = BrokerOrigin(store_host=store_host, pid=77, seed=1)
        self.config = BrokerConfig(max_message_size=1_000, cluster_name="C", **settings)
        self.ingest = Ingest(
            self.store, self.config, self.clock, origin,
            lambda topic, queue_id, offset, codes: self.arrived.append(
                (topic, queue_id, offset, list(codes))
            ),
        )  # fmt: skip

        self.peer = FakePeer()

    def append(self, body: bytes = b"body", queue_id: int = 0, **fields: Any) -> IngestResult:
        """Store a message of the peer."""
        return self.ingest.append(make_send(body, **fields), queue_id, self.peer)

    def append_batch(self, body: bytes, **fields: Any) -> StoredBatch:
        """Store a batch of the peer."""
        return self.ingest.append_batch(make_send(body, **fields), 0, self.peer)

    def record(self, topic: str = "orders", offset: int = 0) -> Record:
        messages = self.store.read(topic, 0, offset, count_max=1)
        return decode(messages.parts[0])


@pytest.fixture
def harness() -> Iterator[IngestHarness]:
    harness = IngestHarness()
    yield harness
    harness.store.close(0)


def properties_of(record: Record) -> dict[str, str]:
    return decode_properties(record.properties)


def test_a_message_is_stored_as_it_came_with_a_key_and_the_cluster(harness: IngestHarness) -> None:
    text = "KEYS\x01k1 k2\x02TAGS\x01red\x02"
    stored = harness.append(b"hello", flag=3, reconsume_times=2, properties=text)
    record = harness.record()
    assert (record.body, record.flag, record.reconsume_times) == (b"hello", 3, 2)
    assert (record.born_ms, record.stored_ms) == (1_700_000_000_000, 1_700_000_000_123)
    assert (record.born_host, record.store_host) == (harness.peer.host_bytes, HOST)
    assert properties_of(record) == {
        "KEYS": "k1 k2",
        "TAGS": "red",
        "UNIQ_KEY": stored.unique_key,
        "CLUSTER": "C",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }


def test_the_senders_own_key_is_kept(harness: IngestHarness) -> None:
    assert harness.append(properties="UNIQ_KEY\x01mine\x02").unique_key == "mine"
    assert properties_of(harness.record())["UNIQ_KEY"] == "mine"


def test_keys_made_here_differ_and_name_this_broker(harness: IngestHarness) -> None:
    keys = [harness.append().unique_key for _ in range(3)]
    assert len(set(keys)) == 3
    assert unique_key_origin(keys[0]) == ("10.0.0.1", 77)


def test_keys_go_on_in_the_next_month(harness: IngestHarness) -> None:
    before = harness.append().unique_key
    harness.clock.ms += 40 * 24 * 3_600_000
    after = harness.append().unique_key
    assert before != after


def test_an_append_reports_the_arrival_with_offset_and_tag_code(harness: IngestHarness) -> None:
    harness.append(properties="TAGS\x01red\x02")
    harness.append()
    assert harness.arrived == [("orders", 0, 0, [hash_code("red")]), ("orders", 0, 1, [0])]


def test_the_message_id_is_the_address_of_the_record(harness: IngestHarness) -> None:
    harness.append()
    stored = harness.append()
    place = parse_offset_message_id(harness.ingest.message_id(stored.appended.position))
    assert place == (HOST, stored.appended.position)


def test_an_ipv6_sender_and_broker_are_flagged() -> None:
    harness = IngestHarness(store_host=HOST_V6)
    harness.ingest.append(make_send(), 0, FakePeer(HOST_V6))
    record = harness.record()
    assert record.sys_flag == 16 | 32
    assert (record.born_host, record.store_host) == (HOST_V6, HOST_V6)


def test_a_clients_word_on_hosts_and_inner_batches_is_not_believed(harness: IngestHarness) -> None:
    harness.append(sys_flag=1 | 2 | 8 | 16 | 32 | 64 | 128 | 0x200)
    assert harness.record().sys_flag == 1 | 2 | 0x200


def test_a_changed_address_is_used_for_later_messages(harness: IngestHarness) -> None:
    harness.ingest.set_origin(BrokerOrigin(store_host=HOST_V6, pid=1, seed=1))
    harness.append()
    assert harness.record().store_host == HOST_V6


@pytest.mark.parametrize("size", [0, 1_001])
def test_a_body_of_no_or_too_many_bytes_is_illegal(harness: IngestHarness, size: int) -> None:
    with pytest.raises(MessageIllegal, match="body"):
        harness.append(bytes(size))
    assert harness.store.end_position == 0


def test_the_longest_body_fits(harness: IngestHarness) -> None:
    harness.append(bytes(1_000))
    assert len(harness.record().body) == 1_000


def test_properties_over_their_limit_are_illegal(harness: IngestHarness) -> None:
    text = f"a\x01{'x' * PROPERTIES_SIZE_MAX}\x02"
    with pytest.raises(MessageIllegal, match="properties are"):
        harness.append(properties=text)


@pytest.mark.parametrize(
    "text",
    [
        "TIMER_DELAY_SEC\x01soon\x02",
        "TIMER_DELAY_MS\x01\x02",
        "TIMER_DELIVER_MS\x011e12\x02",
        "TIMER_DEL_UNIQKEY\x01u\x02TIMER_DELAY_MS\x015\x02",
        "DELAY\x01soon\x02",
    ],
)
def test_a_later_delivery_is_refused_and_not_made_early(harness: IngestHarness, text: str) -> None:
    with pytest.raises(MessageIllegal, match=text.split("\x01", maxsplit=1)[0]):
        harness.append(properties=text)
    assert harness.store.end_position == 0


@pytest.mark.parametrize("level", ["0", "-1"])
def test_no_delay_is_no_reason_to_refuse(harness: IngestHarness, level: str) -> None:
    harness.append(properties=f"DELAY\x01{level}\x02")
    assert properties_of(harness.record())["DELAY"] == level


WHEEL = "rmq_sys_wheel_timer"
NOW = 1_700_000_000_123


@pytest.mark.parametrize(
    ("text", "out"),
    [
        ("TIMER_DELAY_SEC\x015\x02", "1700000005000"),
        ("TIMER_DELAY_MS\x01500\x02", "1700000000000"),
        ("TIMER_DELIVER_MS\x011700000002000\x02", "1700000001000"),
        ("TIMER_DELIVER_MS\x011700000002001\x02", "1700000002000"),
    ],
)
def test_a_timed_message_is_stored_like_in_apaches_broker(
    harness: IngestHarness, text: str, out: str
) -> None:
    sent = f"TAGS\x01red\x02{text}UNIQ_KEY\x01u\x02"
    stored = harness.append(b"hello", queue_id=2, properties=sent)
    record = harness.record(WHEEL)
    properties = properties_of(record)
    assert (properties["TIMER_OUT_MS"], properties["REAL_TOPIC"]) == (out, "orders")
    assert properties["REAL_QID"] == "2"
    assert (properties["TAGS"], properties["UNIQ_KEY"], record.body) == ("red", "u", b"hello")
    assert harness.arrived == [(WHEEL, 0, 0, [hash_code("red")])]
    handle = decode_recall_handle(stored.recall_handle)
    assert (handle.topic, handle.deliver_ms, handle.unique_key) == ("orders", int(out) + 1, "u")


@pytest.mark.parametrize(
    "text",
    [
        "TIMER_DELIVER_MS\x011\x02",
        f"TIMER_DELIVER_MS\x01{NOW}\x02",
        "TIMER_DELAY_SEC\x01-5\x02",
        "TIMER_DELAY_MS\x010\x02",
        "__STARTDELIVERTIME\x011800000000000\x02",
    ],
)
def test_a_past_or_invalid_delivery_time_means_at_once(harness: IngestHarness, text: str) -> None:
    assert harness.append(properties=text).recall_handle == ""
    assert harness.record().topic == "orders"


@pytest.mark.parametrize(
    "text",
    [
        f"TIMER_DELIVER_MS\x01{NOW + 100 * 365 * 86_400_000}\x02",
        "TIMER_DELAY_SEC\x01259201\x02",
        "TRAN_MSG\x01true\x02TIMER_DELAY_SEC\x01259201\x02",
    ],
)
def test_a_time_too_far_away_is_refused(harness: IngestHarness, text: str) -> None:
    with pytest.raises(MessageIllegal, match="259200 s at most"):
        harness.append(properties=text)
    assert harness.store.end_position == 0


def test_an_operator_allows_more() -> None:
    harness = IngestHarness(timer_max_delay=40 * 86_400_000)
    harness.append(properties="TIMER_DELAY_SEC\x013456000\x02")
    assert properties_of(harness.record(WHEEL))["TIMER_OUT_MS"] == "1703456000000"
    harness.store.close(0)


def test_a_level_wins_over_a_time(harness: IngestHarness) -> None:
    harness.append(properties="DELAY\x013\x02TIMER_DELAY_MS\x0199999\x02")
    (part,) = harness.store.read("SCHEDULE_TOPIC_XXXX", 2, 0).parts
    assert "TIMER_DELAY_MS" not in properties_of(decode(part))
    assert harness.store.bounds(WHEEL, 0) == (0, 0)


def test_a_timed_half_message_is_delayed_when_it_is_committed(harness: IngestHarness) -> None:
    harness.append(properties="TRAN_MSG\x01true\x02TIMER_DELAY_MS\x01900\x02")
    half = harness.record(HALVES)
    properties = properties_of(half)
    assert "TIMER_OUT_MS" not in properties
    harness.ingest.reappend(half, topic="orders", queue_id=1, properties=properties)
    assert properties_of(harness.record(WHEEL))["REAL_QID"] == "1"


def test_a_committed_message_stays_as_allowed_as_when_sent(harness: IngestHarness) -> None:
    harness.append(properties="TRAN_MSG\x01true\x02TIMER_DELAY_SEC\x0160\x02")
    half = harness.record(HALVES)
    properties = properties_of(half)
    harness.ingest.configure(BrokerConfig(timer_max_delay=10_000))
    with pytest.raises(MessageIllegal, match="10 s at most"):
        harness.ingest.reappend(half, topic="orders", queue_id=1, properties=properties)
    harness.ingest.reappend(half, topic="orders", queue_id=1, properties=properties, settles=9)
    assert properties_of(harness.record(WHEEL))["TIMER_OUT_MS"] == "1700000060000"


def test_a_delivered_timed_message_does_not_wait_again(harness: IngestHarness) -> None:
    harness.append(properties="TIMER_DELAY_MS\x01900\x02")
    waiting = harness.record(WHEEL)
    properties = properties_of(waiting)
    harness.ingest.reappend(waiting, topic="orders", properties=properties, reconsume_times=1)
    assert harness.record().reconsume_times == 1


def test_taking_back_comes_too_late_rather_than_as_a_message(harness: IngestHarness) -> None:
    harness.append()
    end, properties = harness.store.end_position, {"TIMER_DEL_UNIQKEY": "u", "TIMER_DELAY_MS": "0"}
    with pytest.raises(MessageIllegal, match="already delivered"):
        harness.ingest.reappend(harness.record(), topic="orders", properties=properties)
    assert harness.store.end_position == end


HALF = "KEYS\x01k\x02TRAN_MSG\x01true\x02TAGS\x01red\x02UNIQ_KEY\x01u\x02"
HALVES = "RMQ_SYS_TRANS_HALF_TOPIC"


def test_a_half_message_is_stored_in_the_half_topic(harness: IngestHarness) -> None:
    stored = harness.append(properties=f"{HALF}PGROUP\x01g\x02", sys_flag=5, queue_id=3)
    assert stored.appended.queue_offset == 0
    assert harness.store.bounds("orders", 3) == (0, 0)
    record = harness.record(HALVES)
    assert (record.queue_id, record.sys_flag, record.prepared_position) == (0, 1, 0)
    assert properties_of(record) == {
        "KEYS": "k", "TRAN_MSG": "true", "TAGS": "red", "UNIQ_KEY": "u", "PGROUP": "g",
        "MSG_REGION": "DefaultRegion", "TRACE_ON": "true",
        "CLUSTER": "C", "__transactionId__": "u", "REAL_TOPIC": "orders", "REAL_QID": "3",
    }  # fmt: skip
    red = hash_code("red")
    assert harness.store.read(HALVES, 0, 0, wanted=lambda code: code == red).count == 1


def test_a_half_message_without_a_group_is_that_of_its_sender(harness: IngestHarness) -> None:
    for number in range(2):
        harness.append(properties=HALF, producer_group="pg")
        assert properties_of(harness.record(HALVES, offset=number))["PGROUP"] == "pg"


def test_properties_of_a_half_message_about_its_queue_are_replaced(harness: IngestHarness) -> None:
    text = f"{HALF}REAL_TOPIC\x01secret\x02REAL_QID\x017\x02__transactionId__\x01x\x02"
    harness.append(properties=text, queue_id=1)
    properties = properties_of(harness.record(HALVES))
    place = properties["REAL_TOPIC"], properties["REAL_QID"], properties["__transactionId__"]
    assert place == ("orders", "1", "u")


def test_a_delayed_half_message_waits_for_its_transaction_first(harness: IngestHarness) -> None:
    harness.append(properties=f"{HALF}DELAY\x013\x02")
    assert properties_of(harness.record(HALVES))["DELAY"] == "3"
    assert harness.store.bounds("SCHEDULE_TOPIC_XXXX", 2) == (0, 0)


def test_a_failed_message_with_its_old_transaction_is_a_plain_one(harness: IngestHarness) -> None:
    text = f"{HALF}DELAY\x013\x02"
    harness.append(properties=text, topic="%RETRY%g", reconsume_times=1)
    assert harness.store.bounds(HALVES, 0) == (0, 0)
    assert harness.store.bounds("SCHEDULE_TOPIC_XXXX", 2) == (0, 1)


def test_a_flag_without_the_property_is_refused(harness: IngestHarness) -> None:
    for text in ("", "TRAN_MSG\x01false\x02"):
        with pytest.raises(MessageIllegal, match="TRAN_MSG"):
            harness.append(properties=text, sys_flag=4)
    assert harness.store.end_position == 0


def test_no_room_for_what_is_added_is_illegal(harness: IngestHarness) -> None:
    with pytest.raises(MessageIllegal, match="32767"):
        harness.append(properties=f"{HALF}a\x01{'x' * 32_660}\x02")
    assert harness.store.end_position == 0


def test_an_operator_may_refuse_transactions(harness: IngestHarness) -> None:
    harness.ingest.configure(BrokerConfig(reject_transactions=True))
    with refuses(ResponseCode.NO_PERMISSION, "transaction message is forbidden"):
        harness.append(properties=HALF)
    harness.append()


def test_properties_reserved_for_brokers_are_replaced(harness: IngestHarness) -> None:
    text = (
        "CLUSTER\x01other\x02POP_CK\x011 2 3\x02TAGS\x01red\x02UNIQ_KEY\x01k\x02"
        "MSG_REGION\x01elsewhere\x02TRACE_ON\x01maybe\x02"
    )
    harness.append(properties=text)
    assert properties_of(harness.record()) == {
        "TAGS": "red", "UNIQ_KEY": "k", "CLUSTER": "C",
        "MSG_REGION": "DefaultRegion", "TRACE_ON": "true",
    }  # fmt: skip


def test_region_and_trace_follow_the_settings_except_in_batches(harness: IngestHarness) -> None:
    config = replace(harness.config, region="north", trace_on=False)
    harness.ingest.configure(config)
    for _ in range(2):  # the second text is known from the first
        harness.append(properties="UNIQ_KEY\x01k\x02")
    harness.append_batch(batch_of(b"a", properties=b"UNIQ_KEY\x01k\x02"))
    in_batch = {"UNIQ_KEY": "k", "CLUSTER": "C"}
    alone = {**in_batch, "MSG_REGION": "north", "TRACE_ON": "false"}
    assert [properties_of(harness.record(offset=n)) for n in range(3)] == [alone, alone, in_batch]


def test_wait_false_appends_without_waiting_for_the_flush(harness: IngestHarness) -> None:
    assert harness.append().waits
    assert harness.append(properties="WAIT\x01true\x02").waits
    assert not harness.append(properties="WAIT\x01false\x02").waits


@pytest.mark.parametrize("fields", [{"flag": 2**40}, {"born_timestamp": 2**70}])
def test_a_number_out_of_range_is_illegal(harness: IngestHarness, fields: dict[str, Any]) -> None:
    with pytest.raises(MessageIllegal, match="out of range"):
        harness.append(**fields)
    harness.append(b"next")
    assert harness.record().body == b"next"


def batch_of(*bodies: bytes, properties: bytes = b"") -> bytes:
    return encode_batch(BatchItem(7, body, properties) for body in bodies)


def test_a_batch_becomes_messages_of_its_own(harness: IngestHarness) -> None:
    body = encode_batch(
        [BatchItem(1, b"one", b"TAGS\x01red\x02UNIQ_KEY\x01k1"), BatchItem(2, b"two", b"")]
    )
    stored = harness.append_batch(body, properties="WAIT\x01true\x02UNIQ_KEY\x01whole\x02")
    first, second = harness.record(), harness.record(offset=1)
    assert stored.appended.queue_offset == 0
    ids = [harness.ingest.message_id(result.position) for result in (first, second)]
    assert harness.ingest.message_ids(stored.appended.positions) == ",".join(ids)
    assert (first.body, first.flag, second.body, second.flag) == (b"one", 1, b"two", 2)
    assert properties_of(first) == {"TAGS": "red", "UNIQ_KEY": "k1", "WAIT": "true", "CLUSTER": "C"}
    assert unique_key_origin(properties_of(second)["UNIQ_KEY"]) == ("10.0.0.1", 77)
    assert harness.arrived == [("orders", 0, 0, [hash_code("red"), 0])]


def test_a_batch_takes_its_wait_from_the_whole(harness: IngestHarness) -> None:
    assert not harness.append_batch(batch_of(b"a"), properties="WAIT\x01false\x02").waits


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b"", "no body"),
        (batch_of(b"x" * 1_000), "this broker takes 1000"),
        (batch_of(b"whole", b"cut")[:-1], "message 1 of the batch"),
        (b"not a batch at all, but long enough", "message 0 of the batch"),
        (batch_of(b"x", properties=b"DELAY\x015\x02"), "DELAY"),
    ],
)
def test_a_spoiled_batch_is_refused(harness: IngestHarness, body: bytes, complaint: str) -> None:
    with pytest.raises(MessageIllegal, match=complaint):
        harness.append_batch(body)
    assert harness.store.end_position == 0


def test_a_batch_to_a_retry_topic_is_refused(harness: IngestHarness) -> None:
    with pytest.raises(MessageIllegal, match="retry"):
        harness.append_batch(batch_of(b"x"), topic="%RETRY%g")


def test_a_batch_with_a_number_out_of_range_stores_nothing(harness: IngestHarness) -> None:
    with pytest.raises(MessageIllegal, match="out of range"):
        harness.append_batch(batch_of(b"x", b"y"), born_timestamp=2**70)
    assert harness.store.end_position == 0


@pytest.mark.parametrize(
    ("asked", "level", "delay_ms"), [("3", 3, 10_000), ("18", 18, 7_200_000), ("99", 18, 7_200_000)]
)
def test_a_delayed_message_waits_at_its_level(
    harness: IngestHarness, asked: str, level: int, delay_ms: int
) -> None:
    text = f"DELAY\x01{asked}\x02TAGS\x01red\x02UNIQ_KEY\x01k\x02"
    harness.append(b"later", queue_id=5, properties=text)
    due = 1_700_000_000_123 + delay_ms
    assert harness.arrived == [("SCHEDULE_TOPIC_XXXX", level - 1, 0, [due])]
    (part,) = harness.store.read(
        "SCHEDULE_TOPIC_XXXX", level - 1, 0, wanted=lambda code: code == due
    ).parts
    assert properties_of(decode(part)) == {
        "MSG_REGION": "DefaultRegion", "TRACE_ON": "true",
        "DELAY": str(level), "TAGS": "red", "UNIQ_KEY": "k", "CLUSTER": "C",
        "REAL_TOPIC": "orders", "REAL_QID": "5",
    }  # fmt: skip


def test_levels_can_be_set() -> None:
    harness = IngestHarness(message_delay_levels=(700,))
    harness.append(properties="DELAY\x014\x02")
    assert harness.arrived == [("SCHEDULE_TOPIC_XXXX", 0, 0, [1_700_000_000_823])]
    harness.store.close(0)


def test_a_delay_that_does_not_fit_is_illegal(harness: IngestHarness) -> None:
    text = f"DELAY\x011\x02a\x01{'x' * (PROPERTIES_SIZE_MAX - 60)}\x02UNIQ_KEY\x01k\x02"
    with pytest.raises(MessageIllegal, match="fit"):
        harness.append(properties=text)
    assert harness.store.end_position == 0


def test_a_stored_message_is_stored_again_with_its_past(harness: IngestHarness) -> None:
    harness.append(b"squeezed", flag=9, sys_flag=1 | 0x300, properties="UNIQ_KEY\x01k\x02")
    first = harness.record()
    harness.clock.ms += 5_000
    properties, retry = {"UNIQ_KEY": "k", "TAGS": "red"}, "%RETRY%g"
    reappend = harness.ingest.reappend
    appended = reappend(first, topic=retry, properties=properties, reconsume_times=3)
    record = decode(harness.store.read("%RETRY%g", 0, 0).parts[0])
    assert (record.position, record.body, record.flag) == (appended.position, b"squeezed", 9)
    assert (record.sys_flag, record.reconsume_times) == (first.sys_flag, 3)
    assert (record.born_ms, record.born_host) == (first.born_ms, first.born_host)
    assert record.stored_ms == first.stored_ms + 5_000
    assert properties_of(record) == properties
    assert harness.arrived[-1] == ("%RETRY%g", 0, 0, [hash_code("red")])


def test_a_reappended_message_may_be_delayed(harness: IngestHarness) -> None:
    harness.append()
    harness.ingest.reappend(
        harness.record(), topic="%RETRY%g", queue_id=2, properties={"DELAY": "3"}, reconsume_times=1
    )
    record = decode(harness.store.read("SCHEDULE_TOPIC_XXXX", 2, 0).parts[0])
    assert properties_of(record) == {"DELAY": "3", "REAL_TOPIC": "%RETRY%g", "REAL_QID": "2"}


def test_a_message_of_an_ipv6_broker_is_stored_again_by_an_ipv4_one() -> None:
    other, harness = IngestHarness(HOST_V6), IngestHarness()
    other.append(b"moved")
    harness.ingest.reappend(other.record(), topic="orders", properties={})
    assert (harness.record().body, harness.record().store_host) == (b"moved", HOST)
    for broker in (other, harness):
        broker.store.close(0)


def test_a_message_with_too_many_tries_becomes_a_dead_letter() -> None:
    harness = IngestHarness()
    harness.ingest = Ingest(
        harness.store, BrokerConfig(), harness.clock, BrokerOrigin(store_host=HOST, pid=1, seed=1),
        lambda *_: None, lambda call: "%DLQ%g" if call.reconsume_times > 16 else None,
    )  # fmt: skip
    text = "DELAY\x013\x02RETRY_TOPIC\x01orders\x02UNIQ_KEY\x01k\x02"
    for times in (16, 17):
        harness.append(topic="%RETRY%g", reconsume_times=times, properties=text)
    assert harness.store.bounds("SCHEDULE_TOPIC_XXXX", 2) == (0, 1)
    dead = decode(harness.store.read("%DLQ%g", 0, 0).parts[0])
    properties = properties_of(dead)
    assert (dead.reconsume_times, properties["DELAY"]) == (17, "0")
    assert (properties["DLQ_ORIGIN_TOPIC"], properties["DLQ_ORIGIN_MESSAGE_ID"]) == ("orders", "k")
    harness.store.close(0)


def test_a_message_that_cannot_be_stored_again_is_refused(harness: IngestHarness) -> None:
    harness.append()
    with pytest.raises(MessageIllegal, match="out of range"):
        harness.ingest.reappend(
            harness.record(), topic="orders", properties={}, reconsume_times=2**31
        )
