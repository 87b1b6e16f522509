import asyncio
from collections.abc import Callable, Iterator
from itertools import accumulate

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from roquet.broker.filtering.filter_cache import CompiledFilter, FilterCache
from roquet.broker.filtering.filter_scan import (
    SCAN_MAX,
    STEP_MAX,
    STEP_MIN,
    scan,
    scan_count,
    scan_once,
)
from roquet.broker.settings.config import BrokerConfig
from roquet.model.subscription import SQL92
from roquet.rules import sql92
from roquet.store.config import StoreConfig
from roquet.store.reading.reader import RecordBlock, Slice
from roquet.store.store import Draft, Store
from roquet.wire.records.partial_decode import property_positions
from roquet.wire.records.property_text import decode_properties, encode_properties
from roquet.wire.records.record import decode_many, pack

pytestmark = pytest.mark.usefixtures("form")

Fill = Callable[..., None]

NAMES = st.sampled_from(["a", "b", "ab", "$a_1"])
TEXTS = st.sampled_from(["", "x", "xy", "5", "99", "true", "\ufffd", "x\ufffd", "\u4e2d", "(.*"])
NUMBERS = st.sampled_from(["0", "5", "9", "98", "100", "5.0", "98.5", "1e2"])
COMPARED = st.one_of(
    st.builds("{} {} '{}'".format, NAMES, st.sampled_from(["=", "<>"]), TEXTS),
    st.builds("{} {} {}".format, NAMES, st.sampled_from(["=", "<>", "<", "<=", ">"]), NUMBERS),
    st.builds("{} BETWEEN {} AND {}".format, NAMES, NUMBERS, NUMBERS),
    st.builds("{} IN ('{}', '{}')".format, NAMES, TEXTS, TEXTS),
    st.builds("{} {} '{}'".format, NAMES, st.sampled_from(["STARTSWITH", "CONTAINS"]), TEXTS),
    st.builds("{} IS {}NULL".format, NAMES, st.sampled_from(["", "NOT "])),
    st.builds("{} = {}".format, NAMES, NAMES),
    st.sampled_from(["TRUE", "FALSE"]),
)
EXPRESSIONS = st.recursive(
    COMPARED,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=5,
)

# Well-formed, and as a peer might send them: without values, twice, with bytes that are not UTF-8.
PIECES = st.one_of(
    st.builds(
        lambda name, value: name + b"\x01" + value,
        st.sampled_from([b"a", b"b", b"ab", b"$a_1", b"xa", b""]),
        st.sampled_from(
            [b"", b"x", b"xy", b"5", b"98", b"99", b"100", b"-5", b"05", b"98.7", b"1e3", b"\xff",
             b"x\xff", "\u4e2d".encode(), b"(.*", b"a\x01x", b"true", b"\x00", b"x\x00"]
        ),
    ),
    st.sampled_from([b"", b"a", b"\x01", b"a\x01\x01x", b"\xed\xa0\x80"]),
)  # fmt: skip
PROPERTIES = st.builds(
    lambda pieces, end: b"\x02".join(pieces) + end,
    st.lists(PIECES, max_size=6),
    st.sampled_from([b"", b"\x02", b"\x02\x02"]),
).filter(lambda text: not text.endswith(b"\0"))  # which no record has


@pytest.fixture
def store() -> Iterator[Store]:
    config = StoreConfig(
        log_file_size=1 << 16, queue_file_entries=300, index_slots=20, index_entries=100
    )
    store = Store.open(None, config, now_ms=1, pid=1)
    yield store
    store.close(2)


@pytest.fixture
def fill(store: Store) -> Fill:
    """Stores a message with each of these values of `a`; others' messages may lie between."""

    def put(*values: int | str, between: int = 0, body: bytes = b"") -> None:
        for value in values:
            properties = encode_properties({"a": str(value), "b": "x"})
            store.append(Draft("orders", 0, body or str(value).encode(), properties), 1)
            for _ in range(between):
                store.append(Draft("orders", 1, b"other", properties), 1)

    return put


def wanted(expression: str) -> CompiledFilter:
    return FilterCache().find(BrokerConfig(), SQL92, expression)


def look(
    store: Store, expression: str, at: int = 0, *, look: int = 1_000, count: int = 99,
    size: int = 1 << 20,
) -> Slice:  # fmt: skip
    return scan_once(store, ("orders", 0, at), wanted(expression), (look, count, size))


def bodies(messages: Slice) -> list[str]:
    return [record.body.decode() for part in messages.parts for record in decode_many(bytes(part))]


@pytest.mark.parametrize("between", [0, 3])
def test_matching_messages_are_found_at_any_offset(store: Store, fill: Fill, between: int) -> None:
    fill(*range(20), between=between)
    messages = look(store, "a > 16 OR a = 3")
    assert bodies(messages) == ["3", "17", "18", "19"]
    assert (messages.count, messages.next_offset) == (4, 20)
    assert messages.size == sum(map(len, messages.parts))
    assert bodies(look(store, "a IS NULL OR a < 2")) == ["0", "1"]


def test_a_scan_step_ends_after_the_last_examined_message(store: Store, fill: Fill) -> None:
    fill(*range(20))
    messages = look(store, "a >= 15", look=10)
    assert (messages.count, messages.next_offset) == (0, 10)
    assert bodies(look(store, "a >= 15", at=messages.next_offset, look=6)) == ["15"]


@pytest.mark.parametrize("expression", ["a >= 5", "a IS NULL OR a >= 5"])
def test_the_next_scan_brings_what_was_too_large(store: Store, fill: Fill, expression: str) -> None:
    fill(*range(10))
    messages = look(store, expression, count=2)
    assert (bodies(messages), messages.next_offset) == (["5", "6"], 7)
    size = len(messages.parts[0])
    messages = look(store, expression, size=2 * size + 1)
    assert (bodies(messages), messages.next_offset) == (["5", "6"], 7)


def test_one_message_always_fits(store: Store, fill: Fill) -> None:
    fill(1, 2, 3)
    assert bodies(look(store, "a > 1", size=1)) == ["2"]


def test_text_in_a_body_is_not_taken_for_a_property(store: Store, fill: Fill) -> None:
    fill(1, 5, body=b"\x02c\x017\x02a\x015\x02c\x017")
    assert look(store, "c = 7").count == 0
    assert look(store, "a = 5").next_offset == 2
    assert look(store, "a = 5").count == 1


@pytest.mark.parametrize("expression", ["a >= 190 OR a = 3", "a IS NULL OR a = 3 OR a > 189"])
def test_a_scan_continues_block_by_block(
    store: Store, fill: Fill, monkeypatch: pytest.MonkeyPatch, expression: str
) -> None:
    monkeypatch.setattr("roquet.broker.filtering.filter_scan.BLOCK_COUNT_MIN", 3)
    monkeypatch.setattr("roquet.broker.filtering.filter_scan.BLOCK_SIZE", 2_000)
    fill(*range(200))
    messages = look(store, expression, look=195)
    assert bodies(messages) == ["3", "190", "191", "192", "193", "194"]
    assert messages.next_offset == 195
    size = messages.size // messages.count
    messages = look(store, expression, size=3 * size)
    assert (bodies(messages), messages.next_offset) == (["3", "190", "191"], 192)
    messages = look(store, expression, count=2)
    assert (bodies(messages), messages.next_offset) == (["3", "190"], 191)


def test_a_scan_step_examines_fewer_long_messages(
    store: Store, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roquet.broker.filtering.filter_scan.STEP_SIZE", 10_000)
    monkeypatch.setattr("roquet.broker.filtering.filter_scan.BLOCK_SIZE", 5_000)
    fill(*range(60), body=bytes(1_000))
    messages = look(store, "a = 1")
    assert (messages.count, messages.next_offset) == (1, 12)
    assert look(store, "a = 1", at=12).next_offset == 24


def test_a_scan_step_of_a_long_expression_examines_fewer_messages() -> None:
    assert scan_count(wanted("a = 5")) == STEP_MAX
    assert STEP_MIN < scan_count(wanted(" OR ".join(["a = 5"] * 10))) < STEP_MAX
    assert scan_count(wanted(" OR ".join(["a = 5"] * 250))) == STEP_MIN


@given(
    st.lists(st.integers(0, 3), max_size=30),
    st.integers(1, 10),
    st.integers(1, 5),
    st.sampled_from(["a = 1", "a > 1", "a <> 1", "b = 'x' AND a < 2", "a IS NULL OR a = 0"]),
)
def test_consecutive_scan_steps_find_each_message_once(
    values: list[int], step: int, count: int, expression: str
) -> None:  # fmt: skip
    store = Store.open(None, StoreConfig(log_file_size=1 << 16), now_ms=1, pid=1)
    for value in values:
        properties = encode_properties({"a": str(value), "b": "x"})
        store.append(Draft("orders", 0, str(value).encode(), properties), 1)
    matching, at = list[str](), 0
    while at < len(values):
        messages = look(store, expression, at, look=step, count=count)
        assert messages.next_offset > at
        matching += bodies(messages)
        at = messages.next_offset
    matches = sql92.matcher(sql92.parse(expression), sql92.of_mapping)
    assert matching == [
        str(value) for value in values
        if matches({"a": str(value), "b": "x"})
    ]  # fmt: skip


def record_of(properties: bytes, body: bytes, sys_flag: int) -> bytes:
    born, stored = bytes(20 if sys_flag & 16 else 8), bytes(20 if sys_flag & 32 else 8)
    return pack(0, 0, 7, 9, sys_flag, 1, born, 1, stored, 0, 0, body, b"orders", properties)


@given(
    EXPRESSIONS,
    st.lists(PROPERTIES, min_size=1, max_size=8),
    st.sampled_from([b"", b"\x02a\x01x\x02", b"ab\x015"]),
    st.sampled_from([0, 16, 48]),
)
@example("a = '\ufffd'", [b"a\x01\xff"], b"", 0)
@example("a IS NULL", [b"a\x01x\x02a\x01\x02"], b"", 0)
@example("a IS NULL", [b"b\x01x\x02xa\x01x"], b"\x02a\x01x\x02", 0)
@example("a IS NULL", [b""], b"\x02a\x01x\x02", 48)
def test_exactly_the_messages_match_whose_decoded_properties_do(
    expression: str, properties: list[bytes], body: bytes, sys_flag: int
) -> None:
    try:
        matches = sql92.matcher(sql92.parse(expression), sql92.of_mapping)
    except sql92.ExpressionError:
        return  # BETWEEN 5 AND 0
    records = [record_of(text, body, sys_flag) for text in properties]
    edges = list(accumulate(map(len, records), initial=0))
    block = RecordBlock(b"".join(records), edges, len(records))

    class OneBlock(Store):
        def __init__(self) -> None:
            pass

        def read_block(
            self, topic: str, queue_id: int, offset: int, *, count_max: int, bytes_max: int
        ) -> RecordBlock:
            return block

    messages = look(OneBlock(), expression, look=len(records))
    assert messages.next_offset == len(records)
    assert [bytes(part) for part in messages.parts] == [
        record
        for record, text in zip(records, properties, strict=True)
        if matches(decode_properties(text.decode("utf-8", "replace")))
    ]
    begins = property_positions(block.data, edges, b"orders")
    compiled = wanted(expression)
    found = compiled.matching(block.data, begins, edges, 99)
    assert compiled.matching_decoded(block.data, begins, edges, 99) == found


def test_a_step_is_as_short_as_terms_and_properties_are_many(store: Store) -> None:
    properties = encode_properties({f"name{n:04}": "12345678" for n in range(1_700)})
    for n in range(60):
        store.append(Draft("orders", 0, str(n).encode(), properties), 1)
    reached = {}
    for terms in (2, 20, 200, 480):
        expression = " OR ".join(f"name{n:04} = 5" for n in range(terms // 2))
        reached[terms] = look(store, expression, look=60).next_offset
    assert reached[2] >= 10
    assert reached[20] <= 3
    assert reached[200] == reached[480] == 1
    assert bodies(look(store, "name0007 = 12345678 OR " + expression, count=1)) == ["0"]


class TestLookByLook:
    async def ask(self, store: Store, expression: str, count: int, size: int = 1 << 20) -> Slice:
        place = ("orders", 0, 0)
        return await scan(store, asyncio.Lock(), place, wanted(expression), (count, size))

    async def test_scan_steps_continue_until_enough_messages_are_found(
        self, store: Store, fill: Fill, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("roquet.broker.filtering.filter_scan.STEP_MAX", 7)
        fill(*range(50))
        assert bodies(await self.ask(store, "a > 20", 3)) == ["21", "22", "23"]
        messages = await self.ask(store, "a > 20", 99)
        assert (messages.count, messages.next_offset) == (29, 50)
        assert messages.size == sum(map(len, messages.parts))

    async def test_the_byte_limit_counts_all_scan_steps(
        self, store: Store, fill: Fill, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("roquet.broker.filtering.filter_scan.STEP_MAX", STEP_MIN)
        fill(*[5] * 60)
        size = (await self.ask(store, "a = 5", 1)).size
        messages = await self.ask(store, "a = 5", 99, 20 * size + 1)
        assert (messages.count, messages.next_offset) == (20, 20)
        assert (await self.ask(store, "a = 5", 99, 16 * size + 1)).count == 16

    async def test_an_answer_comes_even_when_nothing_is_found(
        self, store: Store, fill: Fill, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("roquet.broker.filtering.filter_scan.SCAN_MAX", 30)
        fill(*range(50))
        messages = await self.ask(store, "a > 40", 99)
        assert (messages.count, messages.next_offset) == (0, 30)
        assert SCAN_MAX > 10 * STEP_MAX

    async def test_an_answer_comes_after_so_many_steps_whatever_they_cost(
        self, store: Store, fill: Fill, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("roquet.broker.filtering.filter_scan.STEP_WORK", 1)
        monkeypatch.setattr("roquet.broker.filtering.filter_scan.STEPS_MAX", 5)
        fill(*range(50))
        messages = await self.ask(store, "a > 40", 99)
        assert (messages.count, messages.next_offset) == (0, 5)

    async def test_other_tasks_run_between_two_scan_steps(
        self, store: Store, fill: Fill, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("roquet.broker.filtering.filter_scan.STEP_MAX", STEP_MIN)
        fill(*range(100))
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        await self.ask(store, "a = 'never'", 99)
        task.cancel()
        assert turns >= 100 // STEP_MIN

    async def test_a_queue_deleted_during_a_scan_ends_it(
        self, store: Store, fill: Fill, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("roquet.broker.filtering.filter_scan.STEP_MAX", STEP_MIN)
        fill(*range(100))
        search = asyncio.create_task(self.ask(store, "a >= 10", 99))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        store.delete_topic("orders")
        messages = await asyncio.wait_for(search, 2)
        assert 0 < messages.count < 90
        assert messages.next_offset < 100
