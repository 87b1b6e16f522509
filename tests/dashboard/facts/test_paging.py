from starlette.datastructures import QueryParams

from roquet.dashboard.facts.paging import ROWS, ListPart, list_part

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
