"""Hashes are Java's, one at a time or for many records."""

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from roquet.store.key_index.hasher import hash_key, hash_keys, key_hashes
from roquet.wire.java_hash import hash_code
from roquet.wire.records.partial_decode import index_keys

NAMES = st.text("ab#é😀\x00z", max_size=30)
ASCII_NAMES = st.text(st.characters(max_codepoint=127, exclude_characters="\x01\x02 "), max_size=40)

TEXTS = st.lists(
    st.lists(
        st.sampled_from(
            [b"UNIQ_KEY\x01", b"KEYS\x01", b"\x02", b"a", b"b c", b" ", b"\0", b"\xc3\xa9", b"\xff",
             b"UNIQ_KEY\x01u1\x02", b"UNIQ_KEY\x01u2\x02", b"KEYS\x01k\x02", b"XUNIQ_KEY\x01x\x02"]
        ),
        max_size=5,
    ).map(b"".join),
    max_size=5,
)  # fmt: skip


def java(topic: str, key: str) -> int:
    """The least number has no absolute value."""
    signed = hash_code(f"{topic}#{key}")
    return abs(signed) if signed != -(2**31) else 0


def unique(key: str) -> bytes:
    return f"UNIQ_KEY\x01{key}\x02".encode()


@given(NAMES, st.lists(NAMES, max_size=5))
def test_hashes_are_javas_made_not_negative(topic: str, keys: list[str]) -> None:
    for key in keys:
        assert hash_key(topic.encode(), key.encode()) == java(topic, key)


def test_the_least_number_counts_as_zero() -> None:
    assert hash_code("T#DWIECHC") == -(2**31)
    assert hash_key(b"T", b"DWIECHC") == 0


def test_a_key_that_is_not_utf_8_is_read_as_java_does_it() -> None:
    assert hash_key(b"T", b"a\xffb") == java("T", "a\ufffdb")


@pytest.mark.usefixtures("form")
class TestManyRecords:
    @given(NAMES, st.lists(ASCII_NAMES, max_size=30))
    @example("T", [f"7F0000015AB4{n:020X}" for n in range(1000, 1300)])
    @example("T", ["hash"] * 9)
    @example("T", ["DWIECHC", "DWIECHD"])
    def test_hashes_of_unique_keys_are_those_of_each(self, topic: str, keys: list[str]) -> None:
        hashes, owners = hash_keys([topic.encode()] * len(keys), list(map(unique, keys)))
        named = [(owner, key) for owner, key in enumerate(keys) if key]
        assert owners == [owner for owner, _ in named]
        assert hashes == [java(topic, key) for _, key in named]

    @given(TEXTS, st.lists(NAMES, min_size=5, max_size=5))
    @example([b"UNIQ_KEY\x01u%d\x02TAGS\x01t\x02" % n for n in range(5)], ["T"] * 5)
    @example([b"KEYS\x01k%d\x02UNIQ_KEY\x01u\x02" % n for n in range(5)], ["T"] * 5)
    @example([b"UNIQ_KEY\x01u\x02UNIQ_KEY\x01v\x02", b"\0"], ["T"] * 5)
    @example([b"UNIQ_KEY\x01u1\x02", b"UNIQ_KEY\x01\x02u\x02"], ["T"] * 5)
    @example([b"aUNIQ_KEY\x01u\x02", b"\x02UNIQ_KEY\x01u\x02"], ["T"] * 5)
    @example([b"UNIQ_KEY\x01u\x02", b"UNIQ_KEY\x01uu"], ["T"] * 5)
    @example([b"UNIQ_KEY\x01u"], ["é"] * 5)
    def test_each_record_has_all_its_keys(self, texts: list[bytes], names: list[str]) -> None:
        topics = [name.encode() for name in names[: len(texts)]]
        hashes, owners = hash_keys(topics, texts)
        expected = [
            (owner, hash_key(topics[owner], key))
            for owner, text in enumerate(texts)
            for key in index_keys(text)
        ]
        assert list(zip(owners, hashes, strict=True)) == expected

    def test_hashes_stay_right_from_message_to_message(self) -> None:
        for topic in ("T", "T#7F", "Flüge"):
            keys = [f"7F0000015AB4{n:016X}" for n in range(3_000)]
            hashes, owners = hash_keys([topic.encode()] * 3_000, list(map(unique, keys)))
            assert owners == list(range(3_000))
            assert hashes == [java(topic, key) for key in keys]

    def test_an_error_of_one_key_is_raised(self) -> None:
        def fail(topic: bytes, key: bytes) -> int:
            raise OverflowError("odd")

        with pytest.raises(OverflowError, match="odd"):
            key_hashes([b"T"], [unique("é")], fail)

    def test_topics_and_texts_of_unequal_number_are_a_bug(self) -> None:
        with pytest.raises(ValueError, match="zip"):
            hash_keys([b"T"], [])


@given(TEXTS, st.lists(st.one_of(NAMES.map(str.encode), st.binary(max_size=9)), max_size=5))
def test_both_forms_give_the_same_hashes(
    outcome_of_both: Callable[[Callable[[], object]], object],
    texts: list[bytes],
    topics: list[bytes],
) -> None:
    outcome_of_both(lambda: hash_keys(topics, texts))
    outcome_of_both(lambda: hash_keys(topics[: len(texts)], texts[: len(topics)]))
    outcome_of_both(lambda: hash_keys([b"T"] * len(texts), texts))
