import json
from pathlib import Path

from roquet.model import properties

CODES = Path(__file__).parent.parent / "vectors" / "codes.jsonl"

TEXTS = {
    name: value
    for name, value in vars(properties).items()
    if isinstance(value, str) and name.isupper() and "SEPARATOR" not in name
}
OURS = {
    properties.SINK_ROW, properties.REPLAYED_FROM, properties.SET_ASIDE_SERVICE,
    properties.SET_ASIDE_REASON, properties.SET_ASIDE_PLACE, properties.SET_ASIDE_GOAL,
    properties.BODY_TYPE, properties.DEAD_LETTER_REASON, properties.MIRRORED_FROM,
    properties.BORN_MS,
}  # fmt: skip
"""Not system properties: Apache's peers see those of a user."""


def test_every_name_is_a_genuine_one() -> None:
    rows = [json.loads(line) for line in CODES.read_text("ascii").splitlines()]
    apache = {row["out"]["text"] for row in rows if row["in"]["kind"] == "property"}
    assert set(TEXTS.values()) - apache == OURS


def test_no_two_names_are_the_same_property() -> None:
    assert len(set(TEXTS.values())) == len(TEXTS)


def test_every_name_of_ours_is_closed_to_users() -> None:
    assert set(TEXTS.values()) == properties.RESERVED | OURS


def test_no_name_holds_what_separates_them() -> None:
    apart = {properties.NAME_VALUE_SEPARATOR, properties.PROPERTY_SEPARATOR}
    assert [text for text in TEXTS.values() if set(text) & apart] == []


def test_the_longest_text_still_fits_a_signed_16_bit_length() -> None:
    assert properties.PROPERTIES_SIZE_MAX.to_bytes(2, "big", signed=True) == b"\x7f\xff"


def test_keys_are_separated_by_u_0020_alone() -> None:
    keys = ("lot\u3000A", "lot\xa0B", "lot\tC", "\x0bD\u2028", "\u3000E", "\x85")
    assert properties.split_keys(" ".join(keys)) == keys
    assert properties.split_keys("  a  b ") == ("a", "b")
    assert properties.split_keys(" ") == properties.split_keys("") == ()
