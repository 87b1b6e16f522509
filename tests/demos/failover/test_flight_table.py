from collections.abc import Iterator
from pathlib import Path

import pytest

from demos.failover import flight_table
from demos.failover.flight_table import FlightTable, TableCounts
from demos.failover.timeline import Acknowledgement


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "flights.sqlite"


@pytest.fixture
def table(path: Path) -> Iterator[FlightTable]:
    with FlightTable(path) as table:
        yield table


def receipt(queue_id: int, offset: int, row: int) -> Acknowledgement:
    return Acknowledgement(row=row, queue_id=queue_id, offset=offset, at_ms=0, broker="a")


def test_messages_are_counted_by_offset_and_flights_once(table: FlightTable, path: Path) -> None:
    table.add(0, 0, 10, "N1")
    table.add(0, 1, 10, "N1")  # its first answer was lost
    table.add(1, 0, 11, None)
    assert flight_table.count_messages(path) == 3
    counts = flight_table.count_all(path, [receipt(0, 1, 10), receipt(1, 0, 11)])
    assert counts == TableCounts(messages=3, rows=2, conflicts=0, disordered=0, found=2)


def test_a_message_that_comes_again_changes_nothing(table: FlightTable, path: Path) -> None:
    table.add(0, 0, 10, "N1")
    table.add(0, 0, 10, "N1")
    counts = flight_table.count_all(path, [])
    assert (counts.messages, counts.conflicts) == (1, 0)


def test_an_offset_with_another_flight_than_before_is_a_conflict(
    table: FlightTable, path: Path
) -> None:
    table.add(0, 0, 10, "N1")
    table.add(0, 0, 11, "N2")
    assert flight_table.count_all(path, []).conflicts == 1


def test_an_acknowledged_flight_has_to_be_at_the_offset_of_its_receipt(
    table: FlightTable, path: Path
) -> None:
    table.add(0, 0, 10, "N1")
    receipts = [receipt(0, 0, 11), receipt(0, 1, 10), receipt(1, 0, 10)]
    assert flight_table.count_all(path, receipts).found == 0


@pytest.mark.parametrize(
    ("messages", "disordered"),
    [
        ([(0, 0, 1, "N1"), (0, 1, 5, "N1"), (0, 2, 3, "N2"), (1, 0, 4, None)], 0),
        ([(0, 0, 5, "N1"), (0, 1, 1, "N1")], 1),
        ([(0, 0, 1, "N1"), (1, 0, 5, "N1")], 1),
        ([(0, 0, 1, "N1"), (0, 1, 5, "N1"), (0, 2, 1, "N1")], 0),
    ],
    ids=["in order", "later first", "two queues", "a repeat came late"],
)
def test_flights_of_an_aircraft_are_in_one_queue_in_their_order(
    table: FlightTable,
    path: Path,
    messages: list[tuple[int, int, int, str | None]],
    disordered: int,
) -> None:
    for message in messages:
        table.add(*message)
    assert flight_table.count_all(path, []).disordered == disordered


def test_a_table_that_is_not_made_yet_has_no_messages(path: Path) -> None:
    assert flight_table.count_messages(path) == 0
    path.touch()
    assert flight_table.count_messages(path) == 0
