"""Compiled forms equal the Python forms on any input, and no input makes them read elsewhere.

The forms of the broker and of the key index are compared beside their own tests.
"""

import gc
import inspect
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from itertools import accumulate
from struct import pack as pack_numbers

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from msgspec import Raw

from roquet.model.errors import MessageIllegal, RecordError
from roquet.store.consume_queue.entries import entry_columns
from roquet.wire.records import batch, partial_decode, record, speedups
from roquet.wire.records.speedups import COMPILED, compiled, use_compiled
from roquet.wire.signing import signed_header

OutcomeOfBoth = Callable[[Callable[[], object]], object]

needs_compiled = pytest.mark.skipif(not COMPILED, reason="needs the compiled forms: make install")

INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
WIDE = st.one_of(st.integers(0, 9), INT32, INT64, st.sampled_from([2**31, 2**32, 2**63, 2**64]))
"""Numbers of which some fit in no field."""

BODIES = st.one_of(st.binary(max_size=20), st.sampled_from([b"", bytes(3), b"x" * 300]))
TOPICS = st.sampled_from(
    [b"T", b"", b"orders", b"t" * 127, b"t" * 128, b"t" * 300, "é".encode(), b"\xff", b"a\0",
     b"\xed\xa0\x80"]
)  # fmt: skip
TEXTS = st.one_of(
    st.lists(
        st.sampled_from(
            [b"UNIQ_KEY\x017F01\x02", b"TAGS\x01red\x02", b"a\x01", b"\x01", b"\x02", b"b", b"\xff",
             b"\xc3\xa9", b"\xed\xa0\x80", b"a\x01v\x02", b"aa\x01w\x02"]
        ),
        max_size=6,
    ).map(b"".join),
    st.binary(max_size=30),
    st.sampled_from([b"x" * size for size in (32_766, 32_767, 32_768, 65_535)]),
)  # fmt: skip

SIZES = [0, 1, 22, 91, 255, 32_767, 32_768, 65_535, 2**31 - 1, 2**31, 2**32 - 22, 2**32 - 1]
EDITS = st.lists(
    st.tuples(
        st.sampled_from(["cut", "flip", "number", "short", "insert", "delete"]),
        st.integers(0, 400),
        st.sampled_from(SIZES),
    ),
    max_size=3,
)
"""Damages: what is done, where (from the start, modulo the size) and with which number."""


def damage(raw: bytes, edits: list[tuple[str, int, int]]) -> bytes:
    data = bytearray(raw)
    for what, place, number in edits:
        at = place % (len(data) + 1)
        match what:
            case "cut":
                del data[at:]
            case "flip" if at < len(data):
                data[at] ^= 1 << number % 8
            case "number":
                data[at : at + 4] = pack_numbers(">I", number)
            case "short":
                data[at : at + 2] = pack_numbers(">H", number & 0xFFFF)
            case "insert":
                data[at:at] = bytes(number % 30)
            case "delete":
                del data[at : at + number % 30]
            case _:
                pass  # a bit behind the end
    return bytes(data)


def encode_record(flags: int, position: int, body: bytes, topic: bytes, text: bytes) -> bytes:
    hosts = bytes(range(20 if flags & 16 else 8)), bytes(range(20 if flags & 32 else 8))
    return record.pack(
        3, -9, 77, position, flags, 1, hosts[0], 1234, hosts[1], 2, -1, body, topic, text
    )


SHORT_TEXTS = TEXTS.filter(lambda text: len(text) <= 32_767 and not text.endswith(b"\0"))
FLAGS = st.sampled_from([0, 16, 32, 48])
RECORDS = st.builds(encode_record, FLAGS, INT64, BODIES, TOPICS, SHORT_TEXTS)
ITEMS = st.builds(batch.encode_item, INT32, BODIES, SHORT_TEXTS)

COLUMNS = st.lists(st.tuples(WIDE, BODIES, TEXTS, WIDE), max_size=5).map(
    lambda rows: record.BatchColumns(
        *(map(list, zip(*rows, strict=True)) if rows else ([], [], [], []))
    )
)


@given(st.lists(ITEMS, max_size=5), EDITS, st.sampled_from([0, 1, 2, 2**31]))
def test_both_take_a_batch_apart_or_refuse_it_alike(
    outcome_of_both: OutcomeOfBoth, items: list[bytes], edits: list[tuple[str, int, int]], most: int
) -> None:
    body = damage(b"".join(items), edits)
    outcome_of_both(lambda: batch.item_columns(body, most))


@given(
    st.tuples(WIDE, INT64, INT64), st.sampled_from([0, 16, 32, 48, -1]), st.tuples(WIDE, WIDE),
    st.tuples(WIDE, WIDE), TOPICS, COLUMNS,
)  # fmt: skip
@example(
    (0, 2**63 - 2, 0), 0, (0, 0), (0, 0), b"T",
    record.BatchColumns([0, 0, 0], [b"", b"", b""], [b"", b"", b""], [0, 0, 0]),
)  # fmt: skip
@example(
    (0, 0, 2**63 - 92), 0, (0, 0), (0, 0), b"T",
    record.BatchColumns([0, 0], [b"", b""], [b"", b""], [0, 0]),
)  # fmt: skip
def test_both_pack_the_same_batch_or_refuse_it(
    outcome_of_both: OutcomeOfBoth,
    places: tuple[int, int, int],
    sys_flag: int,
    times: tuple[int, int],
    others: tuple[int, int],
    topic: bytes,
    parts: record.BatchColumns,
) -> None:
    assume(parts.flags)  # no batch is empty
    hosts = bytes(20 if sys_flag & 16 else 8), bytes(20 if sys_flag & 32 else 8)
    numbers = [*places, *times, *others, *parts.flags, *parts.tag_codes]
    is_illegal = any(len(text) > 32_767 or text.endswith(b"\0") for text in parts.properties)
    assume(not is_illegal or all(-(2**31) <= number < 2**31 for number in numbers))  # one reason
    outcome_of_both(
        lambda: record.pack_batch(
            *places, sys_flag, times[0], hosts[0], times[1], hosts[1], *others, topic, parts
        )
    )


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("odd", [bytearray(b"abc"), memoryview(b"abc")])
def test_bodies_may_be_any_bytes(odd: bytes) -> None:
    def packed(body: bytes) -> tuple[bytes, bytes]:
        parts = record.BatchColumns([1], [body], [b""], [2])
        return record.pack_batch(1, 2, 3, 0, 4, bytes(8), 5, bytes(8), 6, 7, b"T", parts)

    assert packed(odd) == packed(b"abc")


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("hosts", [(b"", bytes(8)), (bytes(8), bytes(20)), (bytes(21), bytes(8))])
def test_hosts_that_the_system_flag_denies_are_a_bug(hosts: tuple[bytes, bytes]) -> None:
    parts = record.BatchColumns([1], [b"x"], [b""], [2])
    with pytest.raises(AssertionError, match="hosts and system flag disagree"):
        record.pack_batch(1, 2, 3, 0, 4, hosts[0], 5, hosts[1], 6, 7, b"T", parts)


@pytest.mark.usefixtures("form")
def test_columns_of_unequal_length_are_a_bug() -> None:
    for parts in (
        record.BatchColumns([1, 2], [b"x"], [b""], [2]),
        record.BatchColumns([1], [b"x", b"y"], [b""], [2]),
        record.BatchColumns([1], [b"x"], [], [2]),
        record.BatchColumns([1], [b"x"], [b""], []),
    ):
        with pytest.raises(ValueError, match="zip"):
            record.pack_batch(1, 2, 3, 0, 4, bytes(8), 5, bytes(8), 6, 7, b"T", parts)


@given(st.lists(RECORDS, max_size=4), EDITS, st.integers(0, 300))
def test_both_decode_the_records_up_to_the_first_damaged_one(
    outcome_of_both: OutcomeOfBoth, records: list[bytes], edits: list[tuple[str, int, int]], at: int
) -> None:
    data = damage(b"".join(records), edits)
    outcome_of_both(lambda: record.whole_records(data, 0))
    outcome_of_both(lambda: record.whole_records(data, at))
    outcome_of_both(lambda: record.whole_records(data, len(records[0]) if records else 1))


@given(st.lists(RECORDS, max_size=4))
def test_whole_records_are_all_decoded(
    outcome_of_both: OutcomeOfBoth, records: list[bytes]
) -> None:
    data = b"".join(records)
    decoded, end = record.whole_records(data, 0)
    count = 0
    while count < len(records):
        try:
            expected = record.decode(records[count])
        except RecordError:  # its topic is not UTF-8
            break
        assert decoded[count] == expected
        count += 1
    assert (len(decoded), end) == (count, sum(map(len, records[:count])))
    outcome_of_both(lambda: record.whole_records(data, 0))


@given(st.lists(TEXTS, max_size=4), st.sampled_from(["a", "aa", "b", "é", "", "TAGS", "\ud800"]))
def test_both_find_the_same_property(
    outcome_of_both: OutcomeOfBoth, texts: list[bytes], name: str
) -> None:
    outcome_of_both(lambda: [partial_decode.property_finder(name)(text) for text in texts])


@given(
    st.lists(RECORDS, max_size=4),
    EDITS,
    TOPICS,
    st.lists(st.sampled_from([-1, 0, 1, 90, 91, 2**31, 2**62]), max_size=3),
)
def test_both_locate_the_properties_of_records(
    outcome_of_both: OutcomeOfBoth,
    records: list[bytes],
    edits: list[tuple[str, int, int]],
    topic: bytes,
    odd: list[int],
) -> None:
    block = damage(b"".join(records), edits)
    edges = list(accumulate(map(len, records), initial=0))
    for places in (edges, tuple(edges), odd):
        outcome_of_both(partial(partial_decode.property_positions, block, places, topic))


# -- layout --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("topic_size", [1, 127, 128, 32_767])
@pytest.mark.parametrize("sys_flag", [0, 16, 32, 48])
def test_a_packed_batch_is_the_packed_records_and_their_entries(
    topic_size: int, sys_flag: int
) -> None:
    hosts = bytes(range(20 if sys_flag & 16 else 8)), bytes(range(20 if sys_flag & 32 else 8))
    topic, position, expected, entries = b"t" * topic_size, 2**40, b"", b""
    rows = [
        (-1, b"", b"", -5),
        (2**31 - 1, b"x" * 999, b"a\x01b\x02", 2**63 - 1),
        (0, b"", b"p" * 32_767, 0),
    ]
    for index, (flag, body, text, code) in enumerate(rows):
        packed = record.pack(
            -7, flag, 2**41 + index, position, sys_flag, -1, hosts[0], 2**62, hosts[1], 16, -2,
            body, topic, text,
        )  # fmt: skip
        expected += packed
        entries += record.ENTRY.pack(position, len(packed), code)
        position += len(packed)
    parts = record.BatchColumns(*map(list, zip(*rows, strict=True)))
    assert record.pack_batch(
        -7, 2**41, 2**40, sys_flag, -1, hosts[0], 2**62, hosts[1], 16, -2, topic, parts
    ) == (expected, entries)
    records, end = record.whole_records(expected, 0)
    assert (len(records), end) == (3, len(expected))
    assert [one.topic for one in records] == [topic.decode()] * 3


@pytest.mark.usefixtures("form")
def test_the_smallest_record_and_batch_item_have_the_stated_sizes() -> None:
    parts = record.BatchColumns([0], [b""], [b""], [0])
    records, entries = record.pack_batch(0, 0, 0, 0, 0, bytes(8), 0, bytes(8), 0, 0, b"", parts)
    assert (len(records), len(entries)) == (record.RECORD_SIZE_MIN, record.ENTRY.size)
    assert record.whole_records(records, 0) == ([record.decode(records)], record.RECORD_SIZE_MIN)
    assert record.whole_records(records[:-1], 0) == ([], 0)
    item = batch.encode_item(5, b"", b"")
    assert len(item) == batch.BATCH_ITEM_SIZE_MIN
    assert batch.item_columns(item, 1) == ([5], [b""], [b""])
    with pytest.raises(RecordError, match="is cut short"):
        batch.item_columns(item[:-1], 1)


@pytest.mark.usefixtures("form")
def test_properties_have_one_limit() -> None:
    for size, is_legal in ((32_767, True), (32_768, False)):
        parts = record.BatchColumns([0], [b""], [b"p" * size], [0])
        arguments = (0, 0, 0, 0, 0, bytes(8), 0, bytes(8), 0, 0, b"T", parts)
        if is_legal:
            assert len(record.pack_batch(*arguments)[0]) == record.RECORD_SIZE_MIN + 1 + size
        else:
            with pytest.raises(MessageIllegal, match="32768 bytes: 32767 fit"):
                record.pack_batch(*arguments)


# -- the switch ----------------------------------------------------------------------------------


def test_a_function_without_a_compiled_form_is_left_as_it_is() -> None:
    def has_no_other_form() -> int:
        return 1

    assert compiled(has_no_other_form) is has_no_other_form


def test_the_compiled_form_leaves_odd_input_to_the_python_form(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Extension:
        @staticmethod
        def half(number: int) -> int:
            return NotImplemented if number % 2 else -number

    def half(number: int) -> int:
        return number // 2

    monkeypatch.setattr(speedups, "extension", Extension)
    call = compiled(half)
    assert (call(8), call(number=8), call(9)) == (-8, -8, 4)
    before = use_compiled(False)
    assert (call(8), call(9)) == (4, 4)
    assert not use_compiled(True)
    assert call(8) == -8
    assert use_compiled(before)
    assert call.__name__ == "half"


def test_names_of_special_properties_reach_the_compiled_form(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = list[str]()

    class Extension:
        set_special = known.extend

    monkeypatch.setattr(speedups, "extension", Extension)
    speedups.set_special(["DELAY"])
    monkeypatch.setattr(speedups, "extension", None)
    speedups.set_special(["WAIT"])
    assert known == ["DELAY"]


def test_without_the_extension_module_functions_are_the_python_forms(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    extension = "roquet.wire.records._speedups"
    monkeypatch.delattr(extension, raising=False)
    monkeypatch.setitem(sys.modules, extension, None)
    spec = spec_from_file_location("alone", speedups.__file__)
    assert spec is not None
    assert spec.loader is not None
    alone = module_from_spec(spec)
    spec.loader.exec_module(alone)
    assert (alone.COMPILED, alone.extension, alone.DESCRIPTION) == (False, None, "pure Python")

    def item_columns() -> None: ...

    assert alone.compiled(item_columns) is item_columns


@needs_compiled
@pytest.mark.parametrize(
    "function",
    [batch.item_columns, record.pack_batch, record.whole_records, partial_decode.property_finder,
     partial_decode.property_positions, signed_header],
)  # fmt: skip
def test_both_forms_have_the_same_parameters(function: Callable[..., object]) -> None:
    other = getattr(speedups.extension, function.__name__)
    assert list(inspect.signature(other).parameters) == list(inspect.signature(function).parameters)


@needs_compiled
def test_none_is_no_bytes_to_the_compiled_forms() -> None:
    fast = speedups.extension
    assert fast is not None
    parts = record.BatchColumns([0], [b""], [b""], [0])
    for name, arguments in (
        ("item_columns", (None, 1)),
        ("signed_header", (Raw(b"{}"), None)),
        ("whole_records", (None, 0)),
        ("property_finder", (None,)),
        ("property_positions", (None, [0, 1], b"T")),
        ("plain_facts", (None,)),
        ("plain_batch", ([None], b"", b"")),
        ("plain_batch", ([b""], None, b"")),
        ("plain_batch", ([b""], b"", None)),
        ("key_hashes", ([None], [b""], None)),
        ("key_hashes", ([b"T"], [None], None)),
        ("pack", (0, 0, 0, 0, 0, 0, None, 0, bytes(8), 0, 0, b"", b"T", b"")),
        ("pack", (0, 0, 0, 0, 0, 0, bytes(8), 0, bytes(8), 0, 0, b"", None, b"")),
        ("encode_items", (None,)),
        ("entry_columns", (None,)),
        ("sum_sizes", (None,)),
        ("contains", (None, b"ab")),
        ("contains", (b"ab", None)),
        ("join_entries", (None, 0, 0)),
        ("numbered_texts", (None, 0, 1)),
        ("pack_batch", (0, 0, 0, 0, 0, None, 0, bytes(8), 0, 0, b"T", parts)),
        ("pack_batch", (0, 0, 0, 0, 0, bytes(8), 0, bytes(8), 0, 0, None, parts)),
    ):
        with pytest.raises(TypeError):
            getattr(fast, name)(*arguments)
    with pytest.raises(TypeError):
        fast.property_finder("a")(None)


@needs_compiled
def test_callbacks_of_garbage_collections_see_only_finished_lists() -> None:
    body, seen = batch.encode_item(1, b"x", b"") * 9, 0
    kept: list[tuple[list[int] | list[bytes], ...]] = []

    def look(phase: str, _info: object) -> None:
        nonlocal seen
        for item in gc.get_objects(generation=0) if phase == "start" else ():
            seen += len(list(item)) if type(item) is list else 0  # copies fail on unset items

    thresholds = gc.get_threshold()
    gc.callbacks.append(look)
    gc.set_threshold(1)
    try:
        for _ in range(300):  # kept, so that each list needs new memory
            kept.append(batch.item_columns(body, 9))
            kept.append(entry_columns(bytes(9 * 20)))
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(look)
    assert seen
    assert all(gc.is_tracked(column) for columns in kept for column in columns)
