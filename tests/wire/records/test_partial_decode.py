from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.wire.java_hash import hash_code
from roquet.wire.records import partial_decode
from roquet.wire.records.property_text import decode_properties
from roquet.wire.records.record import decode, pack

pytestmark = pytest.mark.usefixtures("form")


def packed(
    position: int = 0,
    sys_flag: int = 0,
    topic: bytes = b"T",
    body: bytes = b"body",
    properties: bytes = b"TAGS\x01a\x02",
) -> bytes:
    born = bytes(20 if sys_flag & 16 else 8)
    store = bytes(20 if sys_flag & 32 else 8)
    return pack(3, 9, 77, position, sys_flag, 1, born, 1234, store, 2, 0, body, topic, properties)


@given(
    st.sampled_from([0, 16, 32, 48]),
    st.binary(max_size=50),
    st.integers(1, 300),
    st.binary(max_size=40).filter(lambda text: not text.endswith(b"\0")),
    st.integers(0, 20),
)
def test_the_facts_are_those_of_the_decoded_record(
    sys_flag: int, body: bytes, topic_size: int, properties: bytes, at: int
) -> None:
    record = packed(500, sys_flag, b"t" * topic_size, body, properties)
    view = memoryview(bytes(at) + record + b"rest")
    facts = partial_decode.decode_partly(view, at, len(view), 500, True)
    whole = decode(record)
    assert facts == (
        whole.size, whole.queue_id, whole.queue_offset, whole.sys_flag, whole.stored_ms,
        whole.topic.encode(), whole.properties,
    )  # fmt: skip


@given(st.data())
def test_bytes_cut_short_or_from_elsewhere_are_no_record(data: st.DataObject) -> None:
    record = packed()
    cut = data.draw(st.integers(0, len(record) - 1))
    view = memoryview(record[:cut])
    assert partial_decode.decode_partly(view, 0, cut, 0, True) is None
    assert partial_decode.decode_partly(memoryview(record), 0, len(record), 1, True) is None


def test_a_flipped_bit_of_the_body_is_seen_when_asked_for() -> None:
    record = bytearray(packed(body=b"body"))
    record[record.index(b"body")] ^= 1
    assert partial_decode.decode_partly(memoryview(record), 0, len(record), 0, True) is None
    assert partial_decode.decode_partly(memoryview(record), 0, len(record), 0, False) is not None


@given(st.integers(0, 90), st.integers(0, 255))
def test_any_byte_of_the_head_may_be_anything(at: int, value: int) -> None:
    record = bytearray(packed() + bytes(50))
    record[at] = value
    facts = partial_decode.decode_partly(memoryview(record), 0, len(record), 0, True)
    assert facts is None or facts[0] <= len(record)


@given(st.binary(min_size=91, max_size=200), st.sampled_from([0, 16, 32, 48]))
def test_noise_with_a_right_beginning_is_refused_or_read_within_bounds(
    noise: bytes, sys_flag: int
) -> None:
    data = bytearray(noise)
    partial_decode.RECORD_START.pack_into(data, 0, len(data), 0xDAA320AB, 0)
    data[36:40] = sys_flag.to_bytes(4, "big")
    facts = partial_decode.decode_partly(memoryview(data), 0, len(data), 0, False)
    assert facts is None or facts[0] == len(data)


def test_the_last_of_equal_properties_counts_and_names_are_whole() -> None:
    text = b"XTAGS\x01no\x02TAGS\x01one\x02TAGS\x01two\x02KEY\x01TAGS"
    assert partial_decode.property_value(text, b"TAGS") == b"two"
    assert partial_decode.property_value(text, b"XTAGS") == b"no"
    assert partial_decode.property_value(text, b"AGS") is None
    assert partial_decode.property_value(text, b"KEY") == b"TAGS"
    assert partial_decode.property_value(b"", b"TAGS") is None


@given(st.lists(st.sampled_from([b"KEYS", b"\x01", b"\x02", b"a", b" "]), max_size=20))
def test_a_property_is_found_as_if_all_were_taken_apart(pieces: list[bytes]) -> None:
    text = b"".join(pieces)
    values = [part[5:] for part in text.split(b"\x02") if part.startswith(b"KEYS\x01")]
    assert partial_decode.property_value(text, b"KEYS") == (values[-1] if values else None)
    keys = values[-1].split(b" ") if values else []
    assert partial_decode.index_keys(text) == [key for key in keys if key]


def test_the_tag_code_is_javas_hash() -> None:
    assert partial_decode.tag_code(b"TAGS\x01red\x02") == 112785
    assert partial_decode.tag_code(b"KEYS\x01red\x02") == 0


def test_keys_are_the_unique_one_and_each_of_the_own_ones() -> None:
    assert partial_decode.index_keys(b"KEYS\x01a  b\x02UNIQ_KEY\x01U\x02") == [b"U", b"a", b"b"]
    assert partial_decode.index_keys(b"KEYS\x01\x02") == []


def test_zeros_where_text_should_be_are_a_torn_write() -> None:
    assert partial_decode.is_torn(b"To\x00", b"")
    assert partial_decode.is_torn(b"T", b"TAGS\x01a\x00")
    assert partial_decode.is_torn(b"T", b"TAGS\x01a\x02KE\x00\x00\x02")
    assert not partial_decode.is_torn(b"T", b"")
    assert not partial_decode.is_torn(b"T", b"TAGS\x01a\x02")
    assert not partial_decode.is_torn(b"T", b"odd text of an odd peer\x02")


PIECES = st.lists(
    st.tuples(st.sampled_from(["a", "aa", "b", "", "\u4e2d"]), st.text("a\u4e2d \x01", max_size=4))
)


@given(PIECES, st.booleans(), st.sampled_from(["a", "aa", "b", "\u4e2d"]))
def test_a_property_is_found_as_if_all_were_decoded(
    pieces: list[tuple[str, str]], is_closed: bool, name: str
) -> None:
    text = "\x02".join([f"{name}\x01{value}" for name, value in pieces])
    properties = (text + "\x02" * is_closed).encode()
    assert partial_decode.property_finder(name)(properties) == decode_properties(properties).get(
        name
    )


def test_the_last_value_of_two_properties_with_one_name_counts() -> None:
    find = partial_decode.property_finder("a")
    assert find(b"a\x01x\x02a\x01y\x02") == "y"
    assert find(b"a\x01x\x02a\x01\x02") == "x"
    assert find(b"a\x01\x02") is None
    assert find(b"b\x01a\x01x\x02") is None


def test_a_property_is_found_beside_one_whose_name_ends_like_its_own() -> None:
    find = partial_decode.property_finder("id")
    assert find(b"id\x015\x02order-id\x017\x02") == "5"
    assert find(b"x\x01y\x02id\x015\x02order-id\x017") == "5"
    assert find(b"x\x01y\x02order-id\x017\x02") is None


def test_a_long_text_of_nothing_but_starts_is_read_once() -> None:
    assert partial_decode.property_finder("a")(b"xa\x01" * 100_000) is None
    assert partial_decode.property_finder("a")(b"a\x01\x02" * 100_000) is None


def test_a_value_that_is_no_text_is_found_as_java_would_show_it() -> None:
    assert partial_decode.property_finder("a")(b"a\x01x\xff\x02") == "x\ufffd"
    assert partial_decode.property_finder("a")(b"\xff\x01a\x01x\x02a\x01y\x02") == "y"
    assert partial_decode.property_finder("b")(b"ab\x01\xff\x02b\x01\x02") is None


@given(
    st.one_of(st.integers(1, 300), st.sampled_from([127, 128])),
    st.lists(st.tuples(st.sampled_from([0, 16, 32, 48]), st.binary(max_size=50)), max_size=5),
)
def test_the_properties_of_many_records_have_their_places(
    topic_size: int, shapes: list[tuple[int, bytes]]
) -> None:
    records = [
        packed(0, sys_flag, b"t" * topic_size, body, b"a\x01%b\x02" % body)
        for sys_flag, body in shapes
    ]
    block, edges = b"".join(records), list(accumulate(map(len, records), initial=0))
    places = partial_decode.property_positions(block, edges, b"t" * topic_size)
    assert [block[at:stop] for at, stop in zip(places, edges[1:], strict=True)] == [
        b"a\x01%b\x02" % body for _, body in shapes
    ]


def test_no_records_have_no_properties() -> None:
    assert partial_decode.property_positions(b"", [0], b"T") == []


def test_a_damaged_record_leaves_the_places_of_others_alone() -> None:
    records = [packed(body=b"damaged"), packed(body=b"whole")]
    body_size_at = records[0].index(b"damaged") - 4
    damaged = bytearray(records[0])
    damaged[body_size_at : body_size_at + 4] = (1_000).to_bytes(4, "big")
    block, edges = bytes(damaged) + records[1], [0, len(damaged), len(damaged) + len(records[1])]
    _, at = partial_decode.property_positions(block, edges, b"T")
    assert block[at:] == b"TAGS\x01a\x02"


def test_a_tag_that_is_not_utf_8_has_the_code_that_java_gives_it() -> None:
    assert partial_decode.tag_code(b"TAGS\x01\xff\x02") == hash_code("\ufffd") == 0xFFFD
    assert partial_decode.tag_code("TAGS\x01标签\x02".encode("gbk")) == hash_code(
        "\ufffd\ufffd\u01e9"
    )
