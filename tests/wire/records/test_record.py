"""Message records, against Java's, and after any damage."""

from ipaddress import ip_address
from struct import pack as struct_pack
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.for_each import for_each
from tests.vector_lines import vector_pairs

from roquet.model.errors import MessageIllegal, RecordError
from roquet.model.properties import PROPERTIES_SIZE_MAX
from roquet.wire.records import record
from roquet.wire.records.record import Record

pytestmark = pytest.mark.usefixtures("form")


def host(fields: dict[str, Any], which: str) -> bytes:
    ip = ip_address(fields[f"{which}_host"])
    port: int = fields[f"{which}_port"]
    return ip.packed + port.to_bytes(4, "big")


def pack(r: Record) -> bytes:
    return record.pack(
        r.queue_id, r.flag, r.queue_offset, r.position, r.sys_flag, r.born_ms, r.born_host,
        r.stored_ms, r.store_host, r.reconsume_times, r.prepared_position, r.body,
        r.topic.encode(), r.properties,
    )  # fmt: skip


ints = st.integers(-(2**31), 2**31 - 1)
longs = st.integers(-(2**63), 2**63 - 1)
hosts = st.sampled_from([8, 20]).flatmap(lambda size: st.binary(min_size=size, max_size=size))
topics = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20),
    st.integers(120, 300).map(lambda size: "t" * size),
)


BODIES = st.binary(max_size=50)


@st.composite
def records(draw: st.DrawFn, bodies: st.SearchStrategy[bytes] = BODIES) -> Record:
    born_host, store_host = draw(hosts), draw(hosts)
    v6 = 16 * (len(born_host) == 20) | 32 * (len(store_host) == 20)
    drawn = Record(
        topic=draw(topics),
        queue_id=draw(ints),
        queue_offset=draw(longs),
        position=draw(longs),
        size=0,
        body=draw(bodies),
        properties=draw(st.sampled_from([b"", b"a\x01b", b"KEYS\x01k1 k2\x02TAGS\x01t\x02"])),
        flag=draw(ints),
        sys_flag=draw(st.integers(0, 2**31 - 1)) & ~48 | v6,
        born_ms=draw(longs),
        born_host=born_host,
        stored_ms=draw(longs),
        store_host=store_host,
        reconsume_times=draw(ints),
        prepared_position=draw(longs),
        crc=0,
    )
    packed = pack(drawn)
    return msgspec.structs.replace(drawn, size=len(packed), crc=record.body_crc(drawn.body))


@for_each(vector_pairs("records.jsonl", "encode"))
def test_a_record_is_packed_as_java_packs_it(given_: dict[str, Any], out: Any) -> None:
    m = given_["message"]
    packed = record.pack(
        m["queue_id"], m["flag"], m["queue_offset"], m["physical_offset"], m["sys_flag"],
        m["born_timestamp"], host(m, "born"), m["store_timestamp"], host(m, "store"),
        m["reconsume_times"], m["prepared_transaction_offset"], bytes.fromhex(m["body"]),
        m["topic"].encode(), m["properties_string"].encode(),
    )  # fmt: skip
    assert packed.hex() == out["record"]

    split = record.pack_split(
        m["queue_id"], m["flag"], m["queue_offset"], m["physical_offset"], m["sys_flag"],
        m["born_timestamp"], host(m, "born"), m["store_timestamp"], host(m, "store"),
        m["reconsume_times"], m["prepared_transaction_offset"], bytes.fromhex(m["body"]),
        m["topic"].encode(), m["properties_string"].encode(),
    )  # fmt: skip
    assert (bytes(split), len(split)) == (packed, len(packed))


@for_each(vector_pairs("records.jsonl", "decode"))
def test_a_record_is_read_as_java_reads_it(given_: dict[str, Any], out: Any) -> None:
    raw = bytes.fromhex(given_["record"])
    if out is None:
        assert not record.is_whole(raw)
        with pytest.raises(RecordError):
            record.decode(raw)
        return
    message = record.to_message(record.decode(raw), broker="b", decompress=given_["decompress"])
    assert_same(message, out)
    assert message.broker_name == "b"


def assert_same(message: Any, out: Any) -> None:
    for ours, theirs in {
        "topic": "topic", "queue_id": "queue_id", "queue_offset": "queue_offset", "flag": "flag",
        "position": "physical_offset", "size": "store_size", "born_ms": "born_timestamp",
        "stored_ms": "store_timestamp", "reconsume_times": "reconsume_times",
        "prepared_position": "prepared_transaction_offset", "message_id": "msg_id",
        "offset_message_id": "offset_msg_id",
    }.items():  # fmt: skip
        assert getattr(message, ours) == out[theirs], ours
    assert message.body.hex() == (out["body"] or "")
    assert dict(message.properties) == (out["properties"] or {})
    for which, text in (("born", message.born_host), ("store", message.store_host)):
        assert record.encode_host(text) == host(out, which)


@pytest.mark.parametrize(("given_", "out"), vector_pairs("records.jsonl", "decode_many"))
def test_records_of_a_reply_end_at_a_cut_tail_as_in_java(given_: dict[str, Any], out: Any) -> None:
    messages = [record.to_message(r) for r in record.decode_many(bytes.fromhex(given_["records"]))]
    assert len(messages) == len(out)
    for ours, theirs in zip(messages, out, strict=True):
        assert_same(ours, theirs)


@pytest.mark.parametrize(("given_", "out"), vector_pairs("records.jsonl", "batch_store"))
def test_a_batch_becomes_the_records_java_makes_of_it(given_: dict[str, Any], out: Any) -> None:
    g = given_
    packed = [
        record.pack(
            g["queue_id"], item.flag, 0, 0, g["sys_flag"], g["born_timestamp"], host(g, "born"),
            g["store_timestamp"], host(g, "store"), g["reconsume_times"], 0, item.body,
            g["topic"].encode(), item.properties,
        )
        for item in record.decode_batch(bytes.fromhex(g["body"]))
    ]  # fmt: skip
    assert b"".join(packed).hex() == out["records_with_zero_offsets"]


@pytest.mark.parametrize(("given_", "out"), vector_pairs("records.jsonl", "body_crc"))
def test_a_bodys_checksum_is_javas(given_: dict[str, Any], out: Any) -> None:
    assert record.body_crc(bytes.fromhex(given_["body"])) == out


@given(records(), st.binary(max_size=9))
def test_any_record_is_read_back_wherever_it_lies(sent: Record, before: bytes) -> None:
    buffer = before + pack(sent) + before
    assert record.decode(buffer, len(before)) == sent
    assert record.decode(memoryview(bytearray(buffer)), len(before)) == sent
    assert record.is_whole(buffer, len(before))
    assert sent.size == record.size_of(
        sent.sys_flag, len(sent.body), len(sent.topic.encode()), len(sent.properties)
    )


@given(st.lists(records(), max_size=4), st.integers(0, 90))
def test_a_short_remainder_is_left_out(sent: list[Record], rest: int) -> None:
    whole = b"".join(map(pack, sent))
    assert list(record.decode_many(whole + whole[:rest])) == sent


@given(records())
def test_the_named_places_are_where_the_fields_are(sent: Record) -> None:
    raw = pack(sent)
    assert record.HEAD.unpack_from(raw) == (
        len(raw), record.TOTAL_AND_MAGIC.unpack_from(raw)[1], sent.crc, sent.queue_id, sent.flag,
        sent.queue_offset, sent.position, sent.sys_flag, sent.born_ms,
    )  # fmt: skip
    for at, width, value in (
        (record.TOTAL_AT, 4, len(raw)),
        (record.CRC_AT, 4, sent.crc),
        (record.QUEUE_ID_AT, 4, sent.queue_id),
        (record.FLAG_AT, 4, sent.flag),
        (record.QUEUE_OFFSET_AT, 8, sent.queue_offset),
        (record.POSITION_AT, 8, sent.position),
        (record.SYS_FLAG_AT, 4, sent.sys_flag),
        (record.BORN_AT, 8, sent.born_ms),
        (record.stored_ms_at(sent.sys_flag), 8, sent.stored_ms),
    ):
        assert int.from_bytes(raw[at : at + width], "big", signed=True) == value


@given(records(bodies=st.binary(min_size=1, max_size=50)))
def test_a_record_torn_at_any_byte_is_not_whole(sent: Record) -> None:
    raw = pack(sent)
    for cut in range(len(raw)):
        torn = raw[:cut] + bytes(len(raw) - cut)
        assert not record.is_whole(raw[:cut])
        assert torn == raw or not record.is_whole(torn)


@given(records(), st.integers(-(2**31), 2**31 - 1))
def test_another_length_anywhere_is_noticed(sent: Record, wrong: int) -> None:
    raw = bytearray(pack(sent))
    at = 84 + 12 * bool(sent.sys_flag & 16) + 12 * bool(sent.sys_flag & 32)
    for place, right in ((0, len(raw)), (at, len(sent.body))):
        damaged = bytearray(raw)
        damaged[place : place + 4] = struct_pack(">i", wrong)
        assert wrong == right or not record.is_whole(bytes(damaged))


def test_a_damaged_body_is_noticed_unless_nobody_asks() -> None:
    raw = bytearray(pack(EXAMPLE))
    raw[record.RECORD_SIZE_MIN - 3] ^= 1
    with pytest.raises(RecordError, match="checksum"):
        record.decode(bytes(raw))
    assert record.decode(bytes(raw), check_crc=False).topic == "orders"


def test_a_record_too_short_for_its_hosts_is_noticed() -> None:
    raw = bytearray(pack(EXAMPLE))
    raw[record.SYS_FLAG_AT + 3] = 48
    with pytest.raises(RecordError, match="lengths that disagree"):
        record.decode(bytes(raw))


def test_a_blank_is_no_record() -> None:
    blank = record.TOTAL_AND_MAGIC.pack(200, record.MAGIC_BLANK) + bytes(192)
    with pytest.raises(RecordError, match="magic 0xcbd43194"):
        record.decode(blank)


def test_properties_over_the_limit_are_refused() -> None:
    with pytest.raises(MessageIllegal, match="32767"):
        pack(msgspec.structs.replace(EXAMPLE, properties=bytes(32_768)))


def test_damage_between_records_is_not_passed_over() -> None:
    raw = pack(EXAMPLE)
    with pytest.raises(RecordError, match="no record at"):
        list(record.decode_many(raw + bytes(200) + raw))


EXAMPLE = Record(
    topic="orders", queue_id=1, queue_offset=2, position=3, size=0, body=b"body", properties=b"",
    flag=0, sys_flag=0, born_ms=1, born_host=bytes(8), stored_ms=2, store_host=bytes(8),
    reconsume_times=0, prepared_position=0, crc=0,
)  # fmt: skip


def test_a_run_is_its_records_one_behind_the_other() -> None:
    rows = [(1, b"body", b"a\x01b\x02", 5), (2, b"", b"", -7), (3, b"x" * 300, b"c\x01d\x02", 0)]
    parts = record.BatchColumns(*zip(*rows, strict=True))
    for topic, sys_flag, host in ((b"orders", 0, bytes(8)), (b"L" * 200, 48, bytes(20))):
        records, expected, position = list[bytes](), b"", 1000
        for step, (flag, body, properties, tag_code) in enumerate(rows):
            one = record.pack(
                2, flag, 40 + step, position, sys_flag, 6, host, 7, host, 8, 9, body, topic,
                properties,
            )  # fmt: skip
            expected += record.ENTRY.pack(position, len(one), tag_code)
            position += len(one)
            records.append(one)
        run, entries = record.pack_batch(
            2, 40, 1000, sys_flag, 6, host, 7, host, 8, 9, topic, parts
        )
        assert run == b"".join(records)
        assert entries == expected


def test_a_batch_with_properties_that_end_in_a_zero_byte_is_refused() -> None:
    parts = record.BatchColumns([0, 0], [b"a", b"b"], [b"a\x01b\x02", b"\0"], [0, 0])
    assert len(parts) == 2
    with pytest.raises(MessageIllegal, match="zero byte"):
        record.pack_batch(2, 40, 1000, 0, 6, bytes(8), 7, bytes(8), 8, 9, b"orders", parts)


def test_a_batch_with_properties_over_the_limit_is_refused() -> None:
    parts = record.BatchColumns([0], [b"body"], [bytes(PROPERTIES_SIZE_MAX + 1)], [0])
    with pytest.raises(MessageIllegal, match=f"{PROPERTIES_SIZE_MAX} fit"):
        record.pack_batch(2, 40, 1000, 0, 6, bytes(8), 7, bytes(8), 8, 9, b"orders", parts)
