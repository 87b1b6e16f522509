import msgspec

from roquet.net.log_fields import NAME_LENGTH_MAX, request_fields
from roquet.observe.log_lines import FIELDS
from roquet.wire.command import Command


def test_fields_of_a_request_are_found_in_its_header() -> None:
    header = {"a": "makers", "b": "orders", "password": "x"}
    found = request_fields(Command(310, fields=header), "1.2.3.4:5")
    assert found == {"client": "1.2.3.4:5", "request": 310, "topic": "orders", "group": "makers"}
    assert set(found) <= set(FIELDS)
    malformed = Command(105, fields=msgspec.Raw(b"[]"))
    assert request_fields(malformed, "c") == {"client": "c", "request": 105}


def test_names_of_a_request_are_cut() -> None:
    header = {"topic": "t" * 1_000_000, "consumerGroup": "g" * 256}
    found = request_fields(Command(11, fields=header), "1.2.3.4:5")
    assert found["topic"] == "t" * NAME_LENGTH_MAX
    assert found["group"] == "g" * NAME_LENGTH_MAX
