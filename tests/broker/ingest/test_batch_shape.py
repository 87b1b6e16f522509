"""Texts of a batch are alike when they differ in nothing but their keys."""

from hypothesis import example, given
from hypothesis import strategies as st

from roquet.broker.ingest.batch_shape import BATCH_MIN, SIZE_MAX, have_one_shape
from roquet.broker.ingest.property_normalizer import PropertyNormalizer
from roquet.model.errors import MessageIllegal

COUNT = BATCH_MIN + 3


def text(key: str, more: str = "TAGS\x01red\x02") -> bytes:
    return f"UNIQ_KEY\x01{key}\x02{more}".encode()


def texts(odd: bytes | None = None) -> list[bytes]:
    texts = [text(f"7F{number:04}") for number in range(COUNT)]
    return texts if odd is None else [*texts[:4], odd, *texts[4:]]


def test_keys_of_all_kinds_may_differ() -> None:
    assert have_one_shape(texts())
    assert have_one_shape(
        [
            f"ROQUET_ROW\x01a/0/1/{n}\x02a\x01b\x02KEYS\x01k{n} x\x02UNIQ_KEY\x01{n}\x02".encode()
            for n in range(COUNT)
        ]
    )


def test_anything_else_that_differs_is_seen() -> None:
    for odd in (
        text("7F", "TAGS\x01blue\x02"),
        text("7F", "TAGS\x01red\x02DELAY\x013\x02"),
        text("7F", ""),
        text("", "TAGS\x01red\x02"),
        text("7F\x01x"),
        text("7\0F"),
        text("7F") + b"\0" + text("7F"),
        text("é"),
        b"",
        b"TAGS\x01red\x02",
        text("7F").replace(b"UNIQ", b"XUNIQ"),
    ):
        assert not have_one_shape(texts(odd)), odd


def test_one_more_and_one_less_are_not_taken_for_two() -> None:
    """Two texts in one, and none in the next, have as many parts as two."""
    batch = texts()
    batch[3:5] = [batch[3] + batch[4], b""]
    assert not have_one_shape(batch)
    batch[3:5] = [batch[3] + b"\0" + batch[4], b""]
    assert not have_one_shape(batch)


def test_few_and_long_ones_are_left_to_be_looked_at_alone() -> None:
    assert not have_one_shape(texts()[: BATCH_MIN - 1])
    assert not have_one_shape(
        [text(f"{n:03}", "a\x01" + "x" * SIZE_MAX + "\x02") for n in range(COUNT)]
    )


def outcome(batch: list[bytes], *, together: bool) -> object:
    normalizer = PropertyNormalizer("Cluster", iter(f"NEW{n}" for n in range(99)).__next__)
    try:
        if together:
            return normalizer.normalize_batch(batch)
        normalized = [normalizer.normalize(text) for text in batch]
        return [s.text for s in normalized], [s.tag_code for s in normalized], normalized[0].waits
    except MessageIllegal as error:
        return str(error)


pieces = st.sampled_from(
    ["UNIQ_KEY\x01k\x02", "UNIQ_KEY\x01\x02", "KEYS\x01a b\x02", "ROQUET_ROW\x01r/1\x02",
     "TAGS\x01red\x02", "TAGS\x01blau\xe4\x02", "DELAY\x010\x02", "DELAY\x013\x02",
     "WAIT\x01false\x02", "TRAN_MSG\x01true\x02", "x\x01y\x01z\x02", "\0", "POP_CK\x01p\x02",
     "lonely\x02", "TIMER_OUT_MS\x011\x02"]
)  # fmt: skip
shapes = st.lists(pieces, max_size=4).map("".join)


@given(shapes, st.lists(shapes, max_size=1), st.integers(0, COUNT))
@example("UNIQ_KEY\x01k\x02", ["UNIQ_KEY\x01k\x02DELAY\x013\x02"], 5)
def test_a_batch_is_stamped_as_its_messages_are(shape: str, odd: list[str], at: int) -> None:
    batch = [shape.replace("\x01k\x02", f"\x01k{n}\x02") for n in range(COUNT)]
    batch[at:at] = odd
    given_ = [
        raw if not raw or raw.endswith(b"\x02") else raw + b"\x02"
        for raw in (text.encode() for text in batch)
    ]
    assert outcome(given_, together=True) == outcome(given_, together=False)
