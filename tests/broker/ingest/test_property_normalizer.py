from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.broker.ingest.property_normalizer import (
    CACHE_MAX,
    NormalizedProperties,
    PropertyNormalizer,
)
from roquet.model.errors import MessageIllegal
from roquet.model.properties import PROPERTIES_SIZE_MAX
from roquet.wire.java_hash import hash_code
from roquet.wire.records.property_text import decode_properties, is_well_formed

KEY = "UNIQ_KEY\x01k\x02"


def new_stamps() -> PropertyNormalizer:
    numbers = count(1)
    return PropertyNormalizer("C", lambda: f"key{next(numbers)}")


def normalize(text: str) -> NormalizedProperties:
    return new_stamps().normalize(text.encode("utf-8", "surrogatepass"))


def test_a_text_that_pairs_well_is_kept_and_added_to() -> None:
    text = "TAGS\x01red\x02a\x01\x02TAGS\x01blue\x02"
    normalized = normalize(text)
    assert normalized.text == f"{text}UNIQ_KEY\x01key1\x02CLUSTER\x01C\x02".encode()
    assert normalized.unique_key == b"key1"
    assert normalized.tag_code == hash_code("blue"), "of two the last counts, as in Java"


def test_the_senders_own_key_is_kept() -> None:
    assert normalize(KEY) == NormalizedProperties(
        b"UNIQ_KEY\x01k\x02CLUSTER\x01C\x02", 0, True, b"k"
    )


def test_an_empty_key_is_none() -> None:
    assert normalize("UNIQ_KEY\x01\x02").unique_key == b"key1"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("a\x01b\x01c\x02", "a"),
        ("UNIQ_KEY\x01k\x01l\x02", "UNIQ_KEY"),
        ("UNIQ_KEY\x01k\x02KEYS\x01k\x01l\x02", "KEYS"),
    ],
)
def test_a_value_that_readers_would_cut_or_drop_is_refused(text: str, name: str) -> None:
    with pytest.raises(MessageIllegal, match=f"property {name} holds"):
        normalize(text)


def test_the_last_separator_may_be_missing() -> None:
    assert normalize("TAGS\x01red\x02UNIQ_KEY\x01k") == normalize(
        "TAGS\x01red\x02UNIQ_KEY\x01k\x02"
    )


def test_a_sender_may_not_want_to_wait() -> None:
    assert normalize("WAIT\x01true\x02").waits
    assert not normalize("WAIT\x01false\x02").waits


def test_what_only_brokers_may_say_is_replaced() -> None:
    normalized = normalize(f"CLUSTER\x01other\x02POP_CK\x011 2\x02{KEY}")
    assert normalized.text == b"UNIQ_KEY\x01k\x02CLUSTER\x01C\x02"


def test_a_name_inside_a_value_means_nothing() -> None:
    normalized = normalize(f"note\x01DELAY TRAN_MSG TAGS CLUSTER\x02{KEY}")
    assert normalized.tag_code == 0
    assert decode_properties(normalized.text)["note"] == "DELAY TRAN_MSG TAGS CLUSTER"


@pytest.mark.parametrize("level", ["0", "-1"])
def test_no_delay_is_no_reason_to_refuse(level: str) -> None:
    assert decode_properties(normalize(f"DELAY\x01{level}\x02").text)["DELAY"] == level


@pytest.mark.parametrize(
    "text",
    [
        "DELAY\x013\x02",
        "DELAY\x01soon\x02",
        "TIMER_DELAY_SEC\x015\x02",
        "TIMER_DELAY_MS\x01soon\x02",
        "TIMER_DELIVER_MS\x011\x02",
        "TIMER_DEL_UNIQKEY\x01u\x02",
    ],
)
def test_a_later_delivery_is_refused(text: str) -> None:
    with pytest.raises(MessageIllegal, match=text.partition("\x01")[0]):
        normalize(text)


@pytest.mark.parametrize(
    ("text", "timed"),
    [
        ("TIMER_DELAY_SEC\x015\x02", True),
        ("TIMER_DELAY_MS\x015\x02DELAY\x010\x02", True),
        ("TIMER_DELIVER_MS\x015\x02DELAY\x013\x02", False),
        ("__STARTDELIVERTIME\x01999\x02", False),
    ],
)
def test_a_delivery_time_is_told_unless_a_level_is_asked_for_too(text: str, timed: bool) -> None:
    normalized = new_stamps().normalize(text.encode(), True)
    assert normalized.timed is timed
    assert normalized.is_special is (timed or normalized.delay_level > 0)
    assert normalized.text.startswith(text.encode())


def test_a_delay_counts_though_the_message_was_delayed_once_before() -> None:
    normalized = new_stamps().normalize(
        b"TIMER_OUT_MS\x0199\x02a\x01b\x02TIMER_DELAY_MS\x015\x02", True
    )
    assert normalized.timed
    assert normalized.text.startswith(b"a\x01b\x02TIMER_DELAY_MS\x015\x02")
    assert b"TIMER_OUT_MS" not in normalized.text


def test_who_takes_a_message_back_asks_for_it() -> None:
    with pytest.raises(MessageIllegal, match="recall a message"):
        new_stamps().normalize(b"TIMER_DEL_UNIQKEY\x01u\x02TIMER_DELAY_MS\x0199\x02", True)


@pytest.mark.parametrize("text", ["true", "TRUE", "True"])
def test_a_message_of_a_transaction_says_so_the_second_time_as_well(text: str) -> None:
    normalizer = new_stamps()
    for number in range(3):
        raw = f"UNIQ_KEY\x01k{number}\x02TRAN_MSG\x01{text}\x02PGROUP\x01g\x02".encode()
        normalized = normalizer.normalize(raw, True)
        assert (normalized.is_half, normalized.is_special) == (True, True)
        with pytest.raises(MessageIllegal, match="transaction"):
            normalizer.normalize(raw)


@pytest.mark.parametrize("text", ["false", "1", "yes"])
def test_what_is_not_true_is_no_transaction(text: str) -> None:
    for _ in range(2):
        normalized = normalize(f"UNIQ_KEY\x01k\x02TRAN_MSG\x01{text}\x02")
        assert decode_properties(normalized.text)["TRAN_MSG"] == text
        assert (normalized.is_half, normalized.is_special) == (False, False)


def test_the_limit_counts_what_is_added() -> None:
    drain = PROPERTIES_SIZE_MAX - len("UNIQ_KEY\x01key1\x02CLUSTER\x01C\x02a\x01\x02")
    assert len(normalize(f"a\x01{'x' * drain}\x02").text) == PROPERTIES_SIZE_MAX
    with pytest.raises(MessageIllegal, match="32767 fit"):
        normalize(f"a\x01{'x' * (drain + 1)}\x02")


def test_lone_surrogates_of_java_survive() -> None:
    assert decode_properties(normalize("a\x01\ud83d\x02").text)["a"] == "\ud83d"


NAMES = st.text(st.characters(exclude_characters="\x01\x02\x00"), min_size=1, max_size=8)


@given(st.dictionaries(NAMES.map(lambda name: f"u{name}"), NAMES, max_size=6), st.booleans())
def test_properties_survive(properties: dict[str, str], ends: bool) -> None:
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    stored = decode_properties(normalize(text if ends else text.removesuffix("\x02")).text)
    assert stored == {**properties, "UNIQ_KEY": "key1", "CLUSTER": "C"}


@given(st.text("ab\x01\x02\x00", max_size=20))
def test_whatever_comes_is_stored_so_that_recovery_believes_it(text: str) -> None:
    try:
        stored = normalize(text).text
    except MessageIllegal:
        assert any("\x01" in value for value in decode_properties(text).values())
        return
    assert is_well_formed(stored)
    assert decode_properties(stored) == {
        **decode_properties(text),
        "UNIQ_KEY": "key1",
        "CLUSTER": "C",
    }


KEY_PIECES = [
    "UNIQ_KEY\x01k1\x02", "UNIQ_KEY\x01k2\x02", "UNIQ_KEY\x01\x02", "UNIQ_KEY\x01\xe9\x02",
    "UNIQ_KEY\x01a\x01b\x02", "UNIQ_KEY\x01cut", "MYUNIQ_KEY\x01k\x02", "UNIQ_KEY", "KEYS",
    "KEYS\x01k\x02", "KEYS\x01l m\x02", "KEYS\x01\xe9\x02", "KEYS\x01\x02", "KEYS\x01a\x01b\x02",
    "MYKEYS\x01x\x02", "a\x01KEYS", "ROQUET_ROW\x01q/0/0/1\x02", "ROQUET_ROW\x01q/0/0/2\x02",
    "ROQUET_ROW\x01\xe9\x02", "ROQUET_ROW", "MYROQUET_ROW\x01x\x02", "KEYS\x01ROQUET_ROW",
]  # fmt: skip
OTHER_PIECES = [
    "TAGS\x01red\x02", "TAGS\x01blue\x02", "WAIT\x01false\x02", "WAIT\x01true\x02",
    "DELAY\x011\x02", "DELAY\x010\x02", "TRAN_MSG\x01true\x02", "CLUSTER\x01x\x02",
    "\x01", "\x02", "x", "a\x01\udc00\x02",
]  # fmt: skip
PIECES = st.sampled_from(KEY_PIECES + OTHER_PIECES)


def outcome(
    normalizer: PropertyNormalizer, text: bytes, may_wait: bool
) -> NormalizedProperties | str:
    try:
        return normalizer.normalize(text, may_wait)
    except MessageIllegal as error:
        return repr(error)


@given(st.lists(st.lists(PIECES, max_size=6).map("".join), max_size=30))
def test_what_was_learned_of_other_texts_changes_nothing(texts: list[str]) -> None:
    learned = PropertyNormalizer("C", lambda: "new")
    for text in texts:
        raw = text.encode("utf-8", "surrogatepass")
        for may_wait in (True, False):
            plain = outcome(PropertyNormalizer("C", lambda: "new"), raw, may_wait)
            assert outcome(learned, raw, may_wait) == plain


def test_bytes_that_are_no_text_are_refused_also_when_the_rest_is_known() -> None:
    normalizer = new_stamps()
    normalizer.normalize(b"UNIQ_KEY\x01k\x02KEYS\x01k\x02")
    for bad in (b"UNIQ_KEY\x01\xff\x02KEYS\x01k\x02", b"UNIQ_KEY\x01k\x02KEYS\x01\xff\x02"):
        with pytest.raises(MessageIllegal, match="UTF-8"):
            normalizer.normalize(bad)


def test_only_so_many_texts_are_remembered() -> None:
    normalizer = new_stamps()
    for number in range(2 * CACHE_MAX):
        text = f"UNIQ_KEY\x01k\x02TAGS\x01t{number}\x02"
        assert normalizer.normalize(text.encode()).tag_code == hash_code(f"t{number}")


@pytest.mark.parametrize(("level", "asked"), [("3", 3), ("99", 99), ("0", 0), ("-1", 0)])
def test_a_message_that_may_wait_says_its_level(level: str, asked: int) -> None:
    normalized = PropertyNormalizer("C", lambda: "key1").normalize(
        f"DELAY\x01{level}\x02".encode(), True
    )
    assert normalized.delay_level == asked
