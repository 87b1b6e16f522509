from collections.abc import Callable
from itertools import count

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.broker.conftest import not_none

from roquet.broker.ingest.property_normalizer import (
    FROM_BROKERS,
    SPECIAL,
    NormalizedProperties,
    PropertyNormalizer,
    ended,
    plain_batch,
    plain_facts,
)
from roquet.model.errors import MessageIllegal
from roquet.model.properties import PROPERTIES_SIZE_MAX
from roquet.wire.java_hash import hash_code
from roquet.wire.records.property_text import decode_properties, is_well_formed

pytestmark = pytest.mark.usefixtures("form")

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


def test_an_empty_key_counts_as_missing() -> None:
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


def test_properties_reserved_for_brokers_are_replaced() -> None:
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
def test_a_delivery_time_is_found_unless_a_delay_level_is_set(text: str, timed: bool) -> None:
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


def test_a_recall_names_the_message_that_it_cancels() -> None:
    with pytest.raises(MessageIllegal, match="recall a message"):
        new_stamps().normalize(b"TIMER_DEL_UNIQKEY\x01u\x02TIMER_DELAY_MS\x0199\x02", True)


@pytest.mark.parametrize("text", ["true", "TRUE", "True"])
def test_a_repeated_property_text_is_recognised_as_a_transaction(text: str) -> None:
    normalizer = new_stamps()
    for number in range(3):
        raw = f"UNIQ_KEY\x01k{number}\x02TRAN_MSG\x01{text}\x02PGROUP\x01g\x02".encode()
        normalized = normalizer.normalize(raw, True)
        assert (normalized.is_half, normalized.is_special) == (True, True)
        with pytest.raises(MessageIllegal, match="transaction"):
            normalizer.normalize(raw)


@pytest.mark.parametrize("text", ["false", "1", "yes"])
def test_a_transaction_flag_other_than_true_is_none(text: str) -> None:
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
def test_property_texts_do_not_affect_others(texts: list[str]) -> None:
    used = PropertyNormalizer("C", lambda: "new")
    for text in texts:
        raw = text.encode("utf-8", "surrogatepass")
        for may_wait in (True, False):
            fresh = outcome(PropertyNormalizer("C", lambda: "new"), raw, may_wait)
            assert outcome(used, raw, may_wait) == fresh


@pytest.mark.parametrize(
    "text", [b"UNIQ_KEY\x01\xff\x02KEYS\x01k", b"TAGS\x01\xff\x02UNIQ_KEY\x01k"]
)
def test_bytes_that_are_not_utf_8_are_stored_as_they_are(text: bytes) -> None:
    """As Apache's broker stores those of a batch."""
    normalized = PropertyNormalizer("C", lambda: "new").normalize(text)
    assert normalized.text == text + b"\x02CLUSTER\x01C\x02"
    assert normalized.unique_key in (b"\xff", b"k")
    assert normalized.tag_code == (hash_code("\ufffd") if b"TAGS" in text else 0)
    delayed = PropertyNormalizer("C", lambda: "new").normalize(text + b"\x02DELAY\x013\x02", True)
    assert (delayed.delay_level, delayed.tag_code) == (3, normalized.tag_code)


@pytest.mark.parametrize(("level", "asked"), [("3", 3), ("99", 99), ("0", 0), ("-1", 0)])
def test_a_message_that_may_wait_says_its_level(level: str, asked: int) -> None:
    normalized = PropertyNormalizer("C", lambda: "key1").normalize(
        f"DELAY\x01{level}\x02".encode(), True
    )
    assert normalized.delay_level == asked


class TestPlainTexts:
    """Texts whose facts are read from the bytes as they are."""

    def test_the_facts_are_tag_code_whether_the_sender_waits_and_unique_key(self) -> None:
        text = b"UNIQ_KEY\x017F01\x02TAGS\x01red\x02WAIT\x01false\x02a\x01\x02"
        assert plain_facts(text) == (hash_code("red"), False, b"7F01")
        assert plain_facts(KEY.encode()) == (0, True, b"k")

    def test_of_two_properties_with_one_name_the_last_counts(self) -> None:
        text = "UNIQ_KEY\x01a\x02TAGS\x01red\x02WAIT\x01false\x02"
        again = "UNIQ_KEY\x01b\x02TAGS\x01\x02WAIT\x01true\x02"
        assert plain_facts(f"{text}{again}".encode()) == (0, True, b"b")
        assert plain_facts(f"{again}{text}".encode()) == (hash_code("red"), False, b"a")

    @pytest.mark.parametrize("name", sorted(SPECIAL))
    def test_a_property_that_asks_for_something_is_not_plain(self, name: str) -> None:
        assert plain_facts(f"{KEY}{name}\x010\x02".encode()) is None
        assert plain_facts(f"{name}\x01\x02{KEY}".encode()) is None
        assert plain_facts(f"{KEY}x{name}\x010\x02{name}x\x010\x02".encode()) is not None

    @pytest.mark.parametrize(
        "text",
        [
            "", "TAGS\x01red\x02", "UNIQ_KEY\x01\x02", "XUNIQ_KEY\x01k\x02",
            "UNIQ_KEY\x01k\x02UNIQ_KEY\x01\x02", f"{KEY}a", f"{KEY}a\x01b", f"{KEY}\x02",
            f"{KEY}a\x02", f"{KEY}\x01b\x02", f"{KEY}a\x01b\x01c\x02", "UNIQ_KEY\x01k",
        ],
    )  # fmt: skip
    def test_odd_texts_are_not_plain(self, text: str) -> None:
        assert plain_facts(text.encode("utf-8", "surrogatepass")) is None

    @pytest.mark.parametrize("word", ["r\xe9d", "\u7ea2", "\U0001f600", "\ud800"])
    def test_texts_beyond_ascii_are_plain(self, word: str) -> None:
        text = f"UNIQ_KEY\x01{word}\x02TAGS\x01{word}\x02{word}\x01{word}\x02"
        raw, key = (one.encode("utf-8", "surrogatepass") for one in (text, word))
        assert plain_facts(raw) == (hash_code(word), True, key)
        assert plain_batch([raw], b"", b"") == ([raw], [hash_code(word)], True)

    @pytest.mark.parametrize("size", range(1, 20))
    def test_one_byte_that_is_no_text_is_seen_anywhere(self, size: int) -> None:
        for at in range(size):
            value = bytearray(b"v" * size)
            assert plain_facts(b"UNIQ_KEY\x01k\x02a\x01%b\x02" % bytes(value)) is not None
            value[at] = 0x80
            assert plain_facts(b"UNIQ_KEY\x01k\x02a\x01%b\x02" % bytes(value)) is None

    def test_a_batch_gets_what_it_shares_and_what_is_added(self) -> None:
        texts = [
            b"UNIQ_KEY\x01a\x02WAIT\x01false\x02TAGS\x01red\x02",
            b"UNIQ_KEY\x01b",
            b"UNIQ_KEY\x01c\x02",
        ]
        assert plain_batch(texts, b"TAGS\x01blue\x02", b"CLUSTER\x01C\x02") == (
            [ended(text) + b"TAGS\x01blue\x02CLUSTER\x01C\x02" for text in texts],
            [hash_code("blue")] * 3,
            False,
        )
        assert plain_batch([b"", b""], KEY.encode(), b"") == ([KEY.encode()] * 2, [0, 0], True)

    def test_a_batch_with_one_text_that_is_not_plain_is_not_plain(self) -> None:
        plain = KEY.encode()
        for odd in (b"", b"TAGS\x01red\x02", plain + b"DELAY\x013\x02", b"UNIQ_KEY\x01\xff\x02"):
            assert plain_batch([plain, odd, plain], b"", b"") is None

    def test_a_batch_is_plain_up_to_the_limit_of_what_is_stored(self) -> None:
        added = b"CLUSTER\x01C\x02"
        space = PROPERTIES_SIZE_MAX - len(KEY) - len(added) - len("a\x01\x02")
        fits, more = (f"{KEY}a\x01{'x' * size}\x02".encode() for size in (space, space + 1))
        assert len(not_none(plain_batch([fits], b"", added))[0][0]) == PROPERTIES_SIZE_MAX
        assert plain_batch([more], b"", added) is None
        assert plain_batch([fits], b"b", added) is None


def outcome_of_batch(texts: list[bytes], shared: bytes, *, together: bool) -> object:
    normalizer = PropertyNormalizer("Cluster", iter(f"NEW{n}" for n in range(99)).__next__)
    try:
        if together:
            return normalizer.normalize_batch(texts, shared)
        normalized = [normalizer.normalize(ended(text) + shared) for text in texts]
        return [n.text for n in normalized], [n.tag_code for n in normalized], normalized[0].waits
    except MessageIllegal as error:
        return str(error)


BATCH_PIECES = st.sampled_from(
    ["UNIQ_KEY\x01k\x02", "UNIQ_KEY\x01\x02", "KEYS\x01a b\x02", "ROQUET_ROW\x01r/1\x02",
     "TAGS\x01red\x02", "TAGS\x01blau\xe4\x02", "DELAY\x010\x02", "DELAY\x013\x02",
     "WAIT\x01false\x02", "TRAN_MSG\x01true\x02", "x\x01y\x01z\x02", "\0", "POP_CK\x01p\x02",
     "lonely\x02", "TIMER_OUT_MS\x011\x02", "open\x01end"]
)  # fmt: skip
BATCH_TEXTS = st.lists(BATCH_PIECES, max_size=4).map("".join)
COUNT = 11


@given(BATCH_TEXTS, st.lists(BATCH_TEXTS, max_size=1), st.integers(0, COUNT), BATCH_TEXTS)
@example("UNIQ_KEY\x01k\x02", ["UNIQ_KEY\x01k\x02DELAY\x013\x02"], 5, "")
@example("UNIQ_KEY\x01k\x02", ["UNIQ_KEY\x01k\x02TAGS\x01red\x02"], 5, "")
@example("UNIQ_KEY\x01k\x02", ["UNIQ_KEY\x01k\x02\0UNIQ_KEY\x01k\x02"], 3, "")
def test_a_batch_is_normalized_as_messages(text: str, odd: list[str], at: int, shared: str) -> None:
    texts = [text.replace("\x01k\x02", f"\x01k{n}\x02").encode() for n in range(COUNT)]
    texts[at:at] = [one.encode() for one in odd]
    assert outcome_of_batch(texts, shared.encode(), together=True) == outcome_of_batch(
        texts, shared.encode(), together=False
    )


def test_one_illegal_text_refuses_the_whole_batch() -> None:
    texts = [KEY.encode(), f"{KEY}TRAN_MSG\x01true\x02".encode()]
    with pytest.raises(MessageIllegal, match="sent alone"):
        new_stamps().normalize_batch(texts, b"")


RAW_TEXTS = st.one_of(
    st.lists(PIECES, max_size=6).map(
        lambda pieces: "".join(pieces).encode("utf-8", "surrogatepass")
    ),
    st.lists(st.sampled_from([b"\x01", b"\x02", b"UNIQ_KEY\x01k\x02", b"a", b"\0", b"\xff"])).map(
        b"".join
    ),
    st.sampled_from([KEY.encode() + b"x" * 32_753 + b"\x01\x02", b"x" * 40_000]),
)


@given(
    st.lists(RAW_TEXTS, min_size=1, max_size=4),
    RAW_TEXTS,
    st.sampled_from([b"", b"CLUSTER\x01C\x02"]),
)
def test_both_forms_read_the_same_facts(
    outcome_of_both: Callable[[Callable[[], object]], object],
    texts: list[bytes],
    shared: bytes,
    added: bytes,
) -> None:
    outcome_of_both(lambda: [plain_facts(text) for text in texts])
    outcome_of_both(lambda: plain_batch(texts, b"", added))
    outcome_of_both(lambda: plain_batch(texts, shared, added))


def test_a_priority_is_read_and_kept() -> None:
    normalized = new_stamps().normalize(f"{KEY}_SYS_MSG_PRIORITY_\x013\x02".encode(), alone=True)
    assert (normalized.priority, normalized.is_special) == (3, True)
    assert decode_properties(normalized.text)["_SYS_MSG_PRIORITY_"] == "3"


@pytest.mark.parametrize("other", ["__SHARDINGKEY\x01a", "DELAY\x013", "TRAN_MSG\x01true"])
def test_a_message_whose_queue_or_time_is_decided_otherwise_has_no_priority(other: str) -> None:
    text = f"{KEY}{other}\x02_SYS_MSG_PRIORITY_\x013\x02"
    normalized = new_stamps().normalize(text.encode(), alone=True)
    assert normalized.priority is None
    assert "_SYS_MSG_PRIORITY_" not in decode_properties(normalized.text)


@pytest.mark.parametrize("priority", ["-1", "high", "", "9" * 12])
def test_a_priority_that_is_no_number_is_refused(priority: str) -> None:
    with pytest.raises(
        MessageIllegal, match=r"_SYS_MSG_PRIORITY_ is '.*', not a number from 0 to 2147483647"
    ):
        new_stamps().normalize(f"{KEY}_SYS_MSG_PRIORITY_\x01{priority}\x02".encode(), alone=True)


def test_a_batch_has_no_priorities_since_it_has_one_queue() -> None:
    with pytest.raises(MessageIllegal, match="send each message alone"):
        normalize(f"{KEY}_SYS_MSG_PRIORITY_\x013\x02")


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("name", sorted(FROM_BROKERS - {"CLUSTER", "MSG_REGION", "TRACE_ON"}))
def test_no_client_forges_a_receipt_or_what_became_of_a_message(name: str, alone: bool) -> None:
    forged = f"{KEY}mine\x01yes\x02{name}\x015 1 60000 0 0 broker-a 0 5\x02".encode()
    kept = decode_properties(new_stamps().normalize(forged, alone).text)
    assert (name in kept, kept["mine"], kept["UNIQ_KEY"]) == (False, "yes", "k")


def test_a_received_message_that_is_sent_again_loses_what_the_timer_wrote() -> None:
    text = f"{KEY}TIMER_DELAY_MS\x015000\x02TIMER_ENQUEUE_MS\x011\x02TIMER_ROLL_TIMES\x019\x02"
    kept = decode_properties(new_stamps().normalize(text.encode(), alone=True).text)
    assert kept["TIMER_DELAY_MS"] == "5000"
    assert not {"TIMER_ENQUEUE_MS", "TIMER_ROLL_TIMES"} & kept.keys()
