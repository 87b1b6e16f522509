from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.for_each import for_each
from tests.vector_lines import vector_lines

from roquet.model.errors import UsageError
from roquet.rules.tag_filter import is_single_tag, parse_tags, tag_codes
from roquet.wire.java_hash import hash_code

ROWS: list[dict[str, Any]] = vector_lines("tags.jsonl")
TAG_SUBSCRIPTIONS = [
    row
    for row in ROWS
    if row["in"]["op"] == "subscription"
    or (row["in"]["op"] == "build" and row["in"]["type"] in ("TAG", None))
]


@for_each(TAG_SUBSCRIPTIONS)
def test_an_expression_means_the_tags_that_java_finds(row: dict[str, Any]) -> None:
    expression, expected = row["in"]["expression"], row["out"]
    if "error" in expected:
        with pytest.raises(UsageError, match="names no tag"):
            parse_tags(expression)
    else:
        assert sorted(parse_tags(expression) or ()) == sorted(expected["tags"])
        assert sorted(tag_codes(expression, hash_code) or ()) == sorted(expected["codes"])


@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        ("\u00a0", {"\u00a0"}),
        ("a\u3000|| b\u00a0", {"a\u3000", "b\u00a0"}),
        ("\t a \x00||\x1fb\n", {"a", "b"}),
        (" ", set()),
        ("|| ||", set()),
        ("a||", {"a"}),
    ],
)
def test_java_trims_what_is_not_above_a_blank_and_nothing_else(
    expression: str, tags: set[str]
) -> None:
    assert parse_tags(expression) == frozenset(tags)


@pytest.mark.parametrize("expression", ["||", "||||"])
def test_separators_alone_are_refused(expression: str) -> None:
    with pytest.raises(UsageError, match="names no tag"):
        parse_tags(expression)


def test_blanks_alone_match_no_message() -> None:
    assert tag_codes("|| ||", hash_code) == frozenset()


def test_every_message_is_wanted_by_all() -> None:
    assert tag_codes("*", hash_code) is None


def test_a_message_without_a_tag_is_not_wanted_by_a_tag() -> None:
    wanted = tag_codes("TagA", hash_code)
    assert wanted is not None
    assert 0 not in wanted


def test_tags_of_one_hash_cannot_be_told_apart_here() -> None:
    assert tag_codes("AaAa", hash_code) == frozenset({hash_code("BBBB")})


@given(st.lists(st.text("abcXYZ_", min_size=1), min_size=1), st.sampled_from(["||", " || ", "|| "]))
def test_each_named_tag_is_wanted(named: list[str], separator: str) -> None:
    assert tag_codes(separator.join(named), hash_code) == frozenset(map(hash_code, named))


@pytest.mark.parametrize(
    ("tag", "may"),
    [
        ("paid", True), ("\u3000a\u00a0", True), ("", False), ("*", False), ("a||b", False),
        ("||", False), (" a", False), ("\r", False),
    ],
)  # fmt: skip
def test_a_tag_is_one_that_a_subscription_can_name(tag: str, may: bool) -> None:
    assert is_single_tag(tag) == may
