import pytest
from starlette.datastructures import QueryParams

from roquet.dashboard.form_fields import (
    ROWS,
    TEXT_MAX,
    ListPart,
    list_part,
    number_of,
    text_of,
    time_of,
)
from roquet.model.errors import UsageError


def test_empty_fields_are_missing_ones() -> None:
    query = QueryParams("a=&b=+x+")
    assert (text_of(query, "a"), text_of(query, "b"), text_of(query, "c")) == (None, "x", None)


def test_numbers_have_a_default_and_a_bound() -> None:
    query = QueryParams("a=12&b=&c=-1&d=1e3&e=99999999999999999999&f=²")
    assert number_of(query, "a", 5) == 12
    assert number_of(query, "b", 5) == 5
    for name in "cdef":
        with pytest.raises(UsageError, match="not a whole number"):
            number_of(query, name, 5)
    with pytest.raises(UsageError, match="up to 11"):
        number_of(query, "a", 5, 11)


def test_times_are_in_utc_unless_they_say_otherwise() -> None:
    query = QueryParams({"a": "1970-01-01T00:01", "b": "1970-01-01T01:01+01:00", "c": ""})
    assert (time_of(query, "a"), time_of(query, "b"), time_of(query, "c")) == (60_000, 60_000, None)
    assert time_of(QueryParams("a=1970-01-01"), "a") == 0


@pytest.mark.parametrize("text", ["yesterday", "2026-13-01"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no time like"):
        time_of(QueryParams({"a": text}), "a")


def test_fields_have_a_longest_length() -> None:
    with pytest.raises(UsageError, match="allowed"):
        text_of(QueryParams({"a": "x" * (TEXT_MAX + 1)}), "a")


def test_only_u_0020_is_cut_off_a_field() -> None:
    assert text_of(QueryParams({"key": " \u3000lot\xa0 "}), "key") == "\u3000lot\xa0"


NAMES = [f"topic-{number:03}" for number in range(ROWS * 2 + 5)]


def part(**params: str) -> ListPart[str]:
    orders = {"name": lambda name: name, "last": lambda name: -int(name[-3:])}
    return list_part(NAMES, QueryParams(params), lambda name: name, orders)


def test_a_list_has_pages() -> None:
    assert (part().page, part().pages, part().total) == (1, 3, len(NAMES))
    assert part(page="3").rows == NAMES[ROWS * 2 :]
    assert part(page="99").page == 3
    assert part(page="-1").page == part(page="x").page == part(page="0").page == 1


def test_a_search_finds_parts_of_names_in_any_case() -> None:
    assert part(q=" TOPIC-01 ").total == 10
    assert (part(q="none").total, part(q="none").pages) == (0, 1)


def test_a_list_has_an_order() -> None:
    assert part(sort="last").rows[0] == NAMES[-1]
    assert (part(sort="other").sort, part(sort="last").sort) == ("name", "last")
