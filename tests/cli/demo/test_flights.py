import io
import json
import zipfile
from pathlib import Path

import pytest

from roquet.cli.demo import flights
from roquet.model.errors import UsageError
from roquet.model.names import topic_fault

LINES = """\
year,dep_time,carrier,flight,tailnum,origin,time_hour
2013,517,UA,1545,N14228,EWR,2013-01-01T10:00:00Z
2013,NA,AA,791,NA,LGA,2013-01-02T00:00:00Z
2013,533,UA,1714,,LGA,2013-01-01T10:00:00Z
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("flights.csv", LINES)
    path = tmp_path / "flights.csv.zip"
    path.write_bytes(content.getvalue())
    return path


def test_a_row_travels_as_json_with_numbers_as_numbers(file: Path) -> None:
    first = next(flights.read(file))
    assert json.loads(first.body) == {
        "year": 2013,
        "dep_time": 517,
        "carrier": "UA",
        "flight": 1545,
        "tailnum": "N14228",
        "origin": "EWR",
        "time_hour": "2013-01-01T10:00:00Z",
    }


def test_an_aircraft_is_key_and_order_key_and_a_carrier_is_the_tag(file: Path) -> None:
    first = next(flights.read(file))
    assert (first.keys, first.order_key, first.tag) == (("N14228",), "N14228", "UA")


def test_a_flight_without_an_aircraft_may_go_anywhere(file: Path) -> None:
    _, cancelled, unknown = flights.read(file)
    assert (cancelled.keys, cancelled.order_key) == ((), None)
    assert (unknown.keys, unknown.order_key) == ((), None)
    assert json.loads(cancelled.body)["dep_time"] is None


def test_every_message_carries_its_line_number(file: Path) -> None:
    assert [m.properties["row"] for m in flights.read(file)] == ["0", "1", "2"]


def test_a_slice_is_the_head_of_the_file(file: Path) -> None:
    assert [m.properties["row"] for m in flights.read(file, 2)] == ["0", "1"]
    assert len(list(flights.read(file, 99))) == 3


def test_the_lines_are_counted_without_the_heading(file: Path) -> None:
    assert flights.count_flights(file) == 3


def test_the_topic_has_a_legal_name() -> None:
    assert topic_fault(flights.TOPIC) is None


def test_the_real_file_is_found_and_begins_on_the_first_of_january() -> None:
    first = next(flights.read(flights.archive_path()))
    assert json.loads(first.body)["time_hour"] == "2013-01-01T10:00:00Z"


def test_without_the_package_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flights, "PACKAGE", "nycflights-that-nobody-has")
    with pytest.raises(UsageError, match=r"pip install 'roquet\[demo\]'"):
        flights.archive_path()
