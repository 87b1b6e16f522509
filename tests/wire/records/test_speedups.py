"""Compiled forms equal the Python forms on any input, and no input makes them read elsewhere.

Random calls of both are compared by `tools/gates/fuzz_speedups.py`.
"""

import gc
import inspect
import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from roquet.model.errors import MessageIllegal, RecordError
from roquet.store.consume_queue.entries import entry_columns
from roquet.wire.records import batch, partial_decode, record, speedups
from roquet.wire.records.speedups import COMPILED, compiled, use_compiled
from roquet.wire.signing import signed_by

OutcomeOfBoth = Callable[[Callable[[], object]], object]

needs_compiled = pytest.mark.skipif(not COMPILED, reason="needs the compiled forms: make install")

INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)

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


def encode_record(flags: int, position: int, body: bytes, topic: bytes, text: bytes) -> bytes:
    hosts = bytes(range(20 if flags & 16 else 8)), bytes(range(20 if flags & 32 else 8))
    return record.pack(
        3, -9, 77, position, flags, 1, hosts[0], 1234, hosts[1], 2, -1, body, topic, text
    )


SHORT_TEXTS = TEXTS.filter(lambda text: len(text) <= 32_767 and not text.endswith(b"\0"))
FLAGS = st.sampled_from([0, 16, 32, 48])
RECORDS = st.builds(encode_record, FLAGS, INT64, BODIES, TOPICS, SHORT_TEXTS)


@pytest.mark.parametrize(("places", "count"), [((0, 2**63 - 2, 0), 3), ((0, 0, 2**63 - 92), 2)])
def test_both_refuse_a_batch_that_passes_the_last_offset_or_position(
    outcome_of_both: OutcomeOfBoth, places: tuple[int, int, int], count: int
) -> None:
    parts = record.BatchColumns([0] * count, [b""] * count, [b""] * count, [0] * count)
    outcome_of_both(
        lambda: record.pack_batch(*places, 0, 0, bytes(8), 0, bytes(8), 0, 0, b"T", parts)
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


@pytest.mark.usefixtures("form")
@given(st.lists(RECORDS, max_size=4))
def test_whole_records_are_all_decoded(records: list[bytes]) -> None:
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
    assert (call(8), call(9)) == (-8, 4)
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
     partial_decode.property_positions, signed_by],
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
        ("signed_by", (Raw(b"{}"), b"", None, ())),
        ("signed_by", (Raw(b"{}"), b"", {}, None)),
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
