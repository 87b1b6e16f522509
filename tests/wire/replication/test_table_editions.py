import pytest

from roquet.wire.replication.table_editions import TableEditions, parse_editions

EDITIONS = TableEditions(
    started_ms=1_763_836_680_000, topics=4, groups=17, offsets=90_211, request_modes=0
)


def test_editions_are_numbers_with_dashes_between() -> None:
    assert EDITIONS.text == "1763836680000-4-17-90211-0"
    assert parse_editions(EDITIONS.text) == EDITIONS


@pytest.mark.parametrize(
    "text", ["", "1-2-3-4", "1-2-3-4-x", "1-2-3-4--5", "1-2-3-4-5-6", "9" * 99]
)
def test_any_other_text_is_no_edition(text: str) -> None:
    assert parse_editions(text) is None
