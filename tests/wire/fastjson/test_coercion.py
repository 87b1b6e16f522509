from enum import Enum, IntEnum
from typing import Any

import msgspec
import pytest

from roquet.model.errors import FieldError
from roquet.wire.fastjson.coercion import coerce
from roquet.wire.fastjson.parser import Pairs


class Color(Enum):
    RED = "RED"
    DARK_BLUE = "DARK_BLUE"


class Number(IntEnum):
    TEN = 10
    TWENTY = 20


class Point(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    x: int
    is_far: bool = False
    tags: list[str] = msgspec.field(default_factory=list, name="TAGS")
    near: list[str]
    color: Color | None = None


@pytest.mark.parametrize(
    ("value", "wanted", "made"),
    [
        ("7", int, 7),
        (7.0, int, 7),
        ("7.0", int, 7),
        ("-7", int, -7),
        (7, str, "7"),
        (True, str, "true"),
        (False, str, "false"),
        ("TRUE", bool, True),
        ("0", bool, False),
        (1, bool, True),
        (True, bool, True),
        (3, float, 3.0),
        ("3.5", float, 3.5),
        ("BQ==", bytes, b"\x05"),
        ("red", Color, Color.RED),
        ("Dark_Blue", Color, Color.DARK_BLUE),
        (1, Color, Color.DARK_BLUE),
        ("1", Color, Color.DARK_BLUE),
        (20, Number, Number.TWENTY),
        ("ten", Number, Number.TEN),
        (None, list[int], []),
        (["1", 2], list[int], [1, 2]),
        (["1"], tuple[int, ...], (1,)),
        (["1"], set[int], {1}),
        (["1"], frozenset[int], frozenset({1})),
        (None, dict[str, int], {}),
        (Pairs([(1, "2")]), dict[str, int], {"1": 2}),
        ({"1": 2}, dict[int, str], {1: "2"}),
        (None, int | None, None),
        ("", int | None, None),
        ("", str | None, ""),
        ("5", int | None, 5),
        (Pairs([("a", [Pairs()])]), object, {"a": [{}]}),
        (Pairs([(1, None)]), Any, {"1": None}),
    ],
    ids=repr,
)
def test_a_value_is_made_to_fit(value: object, wanted: Any, made: object) -> None:
    coerced = coerce(value, wanted)
    assert coerced == made
    assert type(coerced) is type(made)


def test_a_struct_takes_its_fields_by_their_wire_names() -> None:
    value = Pairs([("x", "1"), ("isFar", "1"), ("TAGS", None), ("color", 0), ("is_far", 0), (5, 6)])
    assert coerce(value, Point) == Point(x=1, is_far=True, near=[], color=Color.RED)


@pytest.mark.parametrize(
    ("value", "wanted", "said"),
    [
        ("x", int, r"\$ is 'x', not a whole number"),
        ("", int, "not a whole number"),
        (True, int, "not a whole number"),
        ("1.5", int, "not a whole number"),
        ("9" * 20, int, "not a whole number"),
        ([], str, r"is \[\], not a text"),
        (None, str, "not a text"),
        ("perhaps", bool, "not true or false"),
        ("x", float, "not a number"),
        ("?", bytes, "not base64"),
        ("green", Color, "not a Color"),
        (2, Color, "not a Color"),
        (30, Number, "not a Number"),
        ("9" * 5000, Color, "not a Color"),
        ("x", list[str], "not a list"),
        (Pairs(), list[str], "not a list"),
        ("x", dict[str, int], "not an object"),
        ([["x"], "y"], list[list[int]], r"\$\[0\]\[0\] is 'x'"),
        (Pairs([("a", "x")]), dict[str, int], r"\$\['a'\] is 'x'"),
        (Pairs([("a", 1)]), dict[int, int], r"\$.key is 'a'"),
        (Pairs([(Pairs(), 1)]), object, "not a text"),
        (Pairs([("near", [])]), Point, r"Point: \$.x is missing"),
        (5, Point, "not an object"),
    ],
    ids=repr,
)
def test_ill_typed_values_are_reported_with_their_path(
    value: object, wanted: Any, said: str
) -> None:
    with pytest.raises(FieldError, match=said):
        coerce(value, wanted)
