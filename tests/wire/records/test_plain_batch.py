"""Plain batches are packed as their columns would be, or not at all."""

from inspect import unwrap
from typing import Any
from zlib import crc32

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fuzz_inputs import usual_items
from roquet.wire.records.batch import encode_item
from roquet.wire.records.plain_batch import PackedBatch, pack_items
from roquet.wire.records.record import decode_many
from roquet.wire.records.speedups import COMPILED

pytestmark = pytest.mark.skipif(not COMPILED, reason="without a compiler none is plain")

PLAIN = b"UNIQ_KEY\x017F01\x02TAGS\x01red\x02"
Item = tuple[int, bytes, bytes]


def arguments(items: bytes, **changed: Any) -> tuple[Any, ...]:
    numbers: dict[str, Any] = {
        "queue_id": 3, "queue_offset": 41, "position": 1 << 40, "sys_flag": 0, "born_ms": 17,
        "born_host": bytes(range(8)), "stored_ms": 18, "store_host": bytes(range(8, 16)),
        "reconsume_times": 1, "topic": b"orders", "items": items, "shared": b"WAIT\x01true\x02",
        "added": b"CLUSTER\x01C\x02",
    }  # fmt: skip
    return tuple((numbers | changed).values())


def packed(*items: Item, **changed: Any) -> PackedBatch | None:
    given_ = arguments(b"".join([encode_item(*item) for item in items]), **changed)
    found = pack_items(*given_)
    assert found == usual_items(*given_)
    return found


ITEMS = st.lists(
    st.tuples(
        st.integers(-(2**31), 2**31 - 1),
        st.binary(max_size=40),
        st.sampled_from([PLAIN, PLAIN[:-1], b"UNIQ_KEY\x01k\x02KEYS\x01a  b\x02WAIT\x01false\x02"])
        | st.binary(max_size=8).map(PLAIN.__add__),
    ),
    min_size=1,
    max_size=5,
)


@given(ITEMS, st.sampled_from([b"", b"KEYS\x01all\x02", b"a\x01b\x02"]), st.integers(0, 3))
@example([(0, b"", PLAIN)], b"", 0)
def test_a_batch_is_packed_as_its_columns_are(items: list[Item], shared: bytes, v6: int) -> None:
    hosts = {
        "sys_flag": 16 * v6,
        "born_host": bytes(20 if v6 & 1 else 8),
        "store_host": bytes(20 if v6 & 2 else 8),
    }
    found = packed(*items, shared=shared, **hosts)
    if found is not None:
        records = list(decode_many(found.records))
        assert [(record.flag, record.body) for record in records] == [item[:2] for item in items]


@pytest.mark.parametrize("size", [*range(18), 127, 128, 1_000, 70_001])
def test_the_checksum_is_that_of_zlib(size: int) -> None:
    body = bytes(n * 7 & 255 for n in range(size))
    found = packed((0, body, PLAIN))
    assert found is not None
    assert int.from_bytes(found.records[8:12]) == crc32(body) & 0x7FFF_FFFF


@pytest.mark.parametrize(
    "text",
    [b"", b"TAGS\x01red\x02", PLAIN + b"DELAY\x013\x02", PLAIN + b"torn\x02", PLAIN + b"a\0",
     PLAIN + b"KEYS\x01\xc3\xa9\x02", PLAIN + b"a\x01\xff\x02", b"UNIQ_KEY\x01\xc3\xa9\x02",
     PLAIN + b"a\x01" + b"x" * 500 + b"\x02"],
)  # fmt: skip
def test_a_message_that_is_not_plain_leaves_the_batch(text: bytes) -> None:
    assert packed((0, b"a", PLAIN)) is not None
    assert packed((0, b"a", PLAIN), (0, b"b", text)) is None


@pytest.mark.parametrize(
    "changed",
    [{"topic": b"t" * 128}, {"topic": "é".encode()}, {"born_host": bytes(20)}, {"sys_flag": 48},
     {"position": 2**63 - 10}, {"queue_offset": 2**63 - 1}, {"shared": b"torn"}],
)  # fmt: skip
def test_what_is_out_of_the_ordinary_leaves_the_batch(changed: dict[str, Any]) -> None:
    assert packed((0, b"a", PLAIN), **changed) is None


def test_a_batch_whose_lengths_disagree_is_left() -> None:
    item = encode_item(1, b"body", PLAIN)
    assert pack_items(*arguments(b"")) is None
    for at in (0, 1, 2, 3, 16, 17, 18, 19, 24, 25):
        for bits in (1, 255):
            bad = bytearray(item)
            bad[at] ^= bits
            assert pack_items(*arguments(item + bad)) is None
    for size in range(1, len(item)):
        assert pack_items(*arguments(item + item[:size])) is None


@pytest.mark.parametrize(("count", "keys"), [(4_096, 0), (1, 200), (40, 120)])
def test_a_batch_has_a_bounded_number_of_messages_and_keys(count: int, keys: int) -> None:
    text = b"UNIQ_KEY\x01k\x02KEYS\x01" + b"x " * keys + b"\x02"
    items = encode_item(0, b"", text) * count
    total = count * (1 + keys)
    found = pack_items(*arguments(items))
    assert (found is not None) is (total <= 4_096)
    assert pack_items(*arguments(items + encode_item(0, b"", text) * 4_000)) is None


def test_numbers_that_do_not_fit_are_an_error() -> None:
    with pytest.raises(OverflowError):
        packed((0, b"a", PLAIN), born_ms=2**70)


def test_without_compiled_forms_none_is_plain() -> None:
    assert unwrap(pack_items)(*arguments(encode_item(0, b"a", PLAIN))) is None
